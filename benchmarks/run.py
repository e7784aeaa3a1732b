"""The benchmarks: the engine and whole links against C twins. `make bench` runs all; README.md says what they mean.

    benchmarks/run.py [--quick] [--cpu N] [--json FILE] [PART...]

Exit code 1 when a target was not met.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from measure import Result
from xskit.errors import XskitError

PARTS = {
    "engine": ("stores", "pipeline"),
    "bridge": ("bridge",),
    "lateness": ("lateness",),
    "owd": ("owd",),
    "memory": ("capacity",),
    "startup": ("startup",),
    "tcp": ("tcp",),
    "api": ("api",),
}
MET = {True: "[green]met[/]", False: "[bold red]not met[/]", None: "not judged"}


def main() -> int:
    """Run the parts asked for; 0 when every target was met."""
    options = _options()
    if os.geteuid() != 0 and set(options.parts) != {"engine"}:
        raise SystemExit("all parts but `engine` need root: sudo make bench")
    console = Console()
    if not console.is_terminal:
        console.width = 150
    results: list[Result] = []
    begun = time.monotonic()
    for part in options.parts:
        for module in PARTS[part]:
            with console.status(f"{part}: {module}"):
                try:
                    results += importlib.import_module(f"parts.{module}").run(options.cpu, options.quick)
                except XskitError as error:
                    raise SystemExit(f"{part}: {error}") from error
    console.print(_table(results))
    if options.json:
        options.json.write_text(json.dumps(_as_json(options, results, time.monotonic() - begun), indent=2) + "\n")
    return int(any(result.met is False for result in results))


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description="xskit against C twins")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when left out")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less memory: wider intervals")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the CPU to measure on")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    options.parts = options.parts or list(PARTS)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}")
    return options


def _table(results: list[Result]) -> Table:
    table = Table(title="xskit against its targets")
    for heading in ("part", "what", "measured", "beside", "target", ""):
        table.add_column(heading)
    for before, result in zip([None, *results], results, strict=False):
        if before and before.part != result.part:
            table.add_section()
        met = MET[result.met] if result.target else ""
        table.add_row(result.part, result.what, result.value, result.beside, result.target, met)
    return table


def _as_json(options: Any, results: list[Result], seconds: float) -> dict[str, Any]:
    return {
        "schema": 1,
        "quick": options.quick,
        "cpu": options.cpu,
        "kernel": platform.release(),
        "seconds": round(seconds, 1),
        "load": os.getloadavg(),
        "results": [result.as_json() for result in results],
    }


if __name__ == "__main__":
    sys.exit(main())
