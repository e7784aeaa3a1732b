"""`xskit version`: which xskit this is; with --verbose, what it finds here."""

from __future__ import annotations

import json as json_module
import os
import platform
from typing import Annotated, Any

import typer

_LIBRARIES = ("numba", "llvmlite", "numpy", "scipy", "pydantic", "typer", "rich")


def version(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="also kernel, libraries, CPUs, features, privileges")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Print the version of xskit, and with --verbose all that a bug report should say.

    Features of the kernel are found out by trying; those that cannot be tried without root are shown as "?".

    \b
    Example: xskit version --verbose
    """
    from importlib.metadata import version as version_of

    facts: dict[str, Any] = {"xskit": version_of("xskit")}
    if verbose:
        facts |= _facts()
    if json:
        print(json_module.dumps(facts, indent=2))
    else:
        print("\n".join(_lines(facts)))


def _facts() -> dict[str, Any]:
    from xskit.netconf.privileges import CAPABILITIES, missing

    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "libraries": {name: _library(name) for name in _LIBRARIES},
        "cpus": {"online": os.cpu_count(), "allowed": sorted(os.sched_getaffinity(0))},
        "missing_privileges": missing(CAPABILITIES),
        "features": _features(),
    }


def _library(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _features() -> list[dict[str, Any]]:
    from xskit.bpf.probe import probe_all
    from xskit.xsk.probe import probe_sockets

    return [
        {
            "name": found.feature.name.lower(),
            "title": found.feature.title,
            "since": found.feature.since,
            "available": found.available,
            "detail": found.detail,
        }
        for found in (*probe_all(), *probe_sockets())
    ]


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"xskit {facts['xskit']}"]
    if "kernel" not in facts:
        return lines
    libraries = ", ".join(f"{name} {number or 'missing'}" for name, number in facts["libraries"].items())
    cpus = facts["cpus"]
    return [
        *lines,
        f"kernel      {facts['kernel']} ({facts['machine']})",
        f"Python      {facts['python']}",
        f"libraries   {libraries}",
        f"CPUs        {cpus['online']} online, this process may use {', '.join(map(str, cpus['allowed']))}",
        f"privileges  {'missing ' + ', '.join(facts['missing_privileges']) if facts['missing_privileges'] else 'all'}",
        "kernel features, found by trying:",
        *(_feature_line(feature) for feature in facts["features"]),
    ]


def _feature_line(feature: dict[str, Any]) -> str:
    mark = {True: "yes", False: "no", None: "?"}[feature["available"]]
    since = feature["since"]
    came = f"Linux {since}" if since[0].isdigit() else since
    return f"  {mark:<4}{feature['title']} ({came})" + (f": {feature['detail']}" if feature["detail"] else "")
