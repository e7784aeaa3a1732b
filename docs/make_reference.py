"""Writes the parts of the reference pages that the code itself says: commands, settings, Python names, features.

    python docs/make_reference.py            write them anew
    python docs/make_reference.py --check    only tell which pages are not current; exit code 1 if any

A generated part stands between two comments: <!-- NAME: docs/make_reference.py --> and <!-- end of NAME -->.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

import typer
from api_text import public_text
from page_parts import write
from pydantic import BaseModel, PlainSerializer
from pydantic.fields import FieldInfo

import xskit
from xskit import units
from xskit.bpf.probe import BpfFeature
from xskit.cli.main import COMMANDS, application
from xskit.emulator.portkinds import PORT_KINDS, PortKind
from xskit.emulator.settings import DirectionSettings, EngineSettings, LabSettings, QueueSettings
from xskit.xsk.probe import SocketFeature


def table(heads: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- commands ------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command: usage, description, options, examples."""
    found = []
    for name in COMMANDS:
        command = typer.main.get_command(application([name])).commands[name]  # type: ignore[attr-defined]
        found += _with_inner(name, command)
    return "\n\n".join(found)


def _with_inner(name: str, command: Any) -> list[str]:
    inner = getattr(command, "commands", {})
    return [_command(name, command), *(part for one in inner for part in _with_inner(f"{name} {one}", inner[one]))]


def _command(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not parameter.hidden]
    options = [parameter for parameter in shown if parameter.param_type_name == "option"]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    taken = "COMMAND ..." if hasattr(command, "commands") else "[OPTIONS]" if options else ""
    usage = " ".join(word for word in ("xskit", name, taken, *(parameter.metavar for parameter in arguments)) if word)
    text, *blocks = command.help.split("\b\n")
    parts = [f"## xskit {name}", f"```text\n{usage}\n```", text.strip()]
    rows = [(f"`{_spelling(option)}`", _help(option)) for option in options]
    parts += [table(("option", "meaning"), rows)] if rows else []
    parts += [_block(block) for block in blocks]
    return "\n\n".join(parts)


def _spelling(option: Any) -> str:
    kind = option.type_descriptor.annotation
    choices = "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else ""
    value = option.metavar or ("" if option.is_flag else choices or ("NUMBER" if kind is int else "TEXT"))
    return ", ".join([*option.opts, *option.secondary_opts]) + (f" {value}" if value else "")


def _help(option: Any) -> str:
    if isinstance(option.default, bool):
        return f"{option.help} (default: {option.opts[0]})" if option.default else option.help
    default = option.show_default if isinstance(option.show_default, str) else option.default
    return option.help if default in (None, "") else f"{option.help} (default: {default})"


def _block(block: str) -> str:
    """What is shown as it stands: a title, and lines."""
    title, _, rest = block.strip().partition(":")
    lines = "\n".join(line.removeprefix("  ") for line in rest.strip("\n").splitlines())
    return f"{title}:\n\n```text\n{lines.strip()}\n```"


# -- settings ------------------------------------------------------------------------------------------------------

_KINDS = {
    units.format_duration: "duration",
    units.format_rate: "rate",
    units.format_probability: "probability",
    units.format_size: "size",
    units.format_queue_limit: "queue limit",
}


def settings(model: type[BaseModel]) -> str:
    """The keys of a table: kind, default, meaning."""
    rows = [
        (f"`{name}`", _kind(field), _default(field), field.description or "")
        for name, field in model.model_fields.items()
    ]
    return table(("key", "kind", "default", "meaning"), rows)


def _kind(field: FieldInfo) -> str:
    serializers = [part for part in _metadata(field) if isinstance(part, PlainSerializer)]
    if serializers:
        return _KINDS[serializers[0].func]
    kinds = (field.annotation, *get_args(field.annotation))
    literal = next((kind for kind in kinds if get_origin(kind) is Literal), None)
    if literal is not None:
        return " or ".join(f"`{value}`" for value in get_args(literal))
    if field.annotation is QueueSettings:
        return "queue"
    return {bool: "true or false", int: "whole number"}.get(field.annotation, "list of whole numbers")  # type: ignore[arg-type]


def _metadata(field: FieldInfo) -> list[Any]:
    """What Annotated carries, also inside `... | None`."""
    inner = [part for argument in get_args(field.annotation) for part in getattr(argument, "__metadata__", ())]
    return [*field.metadata, *inner]


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, QueueSettings):
        value = value.limit
    if isinstance(value, float):
        value = f"{value:g}"
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


# -- features ------------------------------------------------------------------------------------------------------


def features() -> str:
    """What `xskit version --verbose` tries."""
    return table(("feature", "since Linux"), [(one.title, one.since) for one in (*BpfFeature, *SocketFeature)])


# -- ports ---------------------------------------------------------------------------------------------------------


def ports() -> str:
    """Which interfaces can be ports, and why not."""
    return table(("interface", "kind or driver", "port?", "why"), [_port(row) for row in PORT_KINDS])


def _port(row: PortKind) -> Sequence[str]:
    value = " or ".join(row.option.values.values()) if row.option else ""
    title = re.sub(r" ?\(?(of kind )?{(kind|driver)}\)?", "", row.title).format(value=value)
    named = ", ".join(f"`{name}`" for name in (*row.kinds, *row.drivers))
    return title, named, row.admission.value, row.reason


# -- jitter --------------------------------------------------------------------------------------------------------


def jitter() -> str:
    """What order-preserving jitter does to the owd: simulated, so the same on every machine."""
    gaps_ns = {"10 ms": 10_000_000, "1 ms": 1_000_000, "100 us": 100_000, "10 us": 10_000}
    rows = [("`keep`", spacing, *_owd("keep", gap_ns)) for spacing, gap_ns in gaps_ns.items()]
    rows.append(("`free`", "10 us", *_owd("free", gaps_ns["10 us"])))
    return table(("order", "a packet every", "mean owd", "standard deviation"), rows)


def _owd(order: Literal["keep", "free"], gap_ns: int, count: int = 20_000) -> tuple[str, str]:
    """Mean and standard deviation."""
    from xskit.engine.virtual import VirtualPipeline

    stages = DirectionSettings.model_validate({"owd": "20ms", "jitter": "2ms", "order": order}).stages()
    arrivals = [(number * gap_ns, 1000) for number in range(count)]
    with VirtualPipeline(stages, packets=2 * count, horizon_ns=100_000_000, seed=1) as pipeline:
        departures = pipeline.run(arrivals, count * gap_ns + 1_000_000_000)
    owds = [departure.time_ns - departure.number * gap_ns for departure in departures]
    return f"{statistics.mean(owds) / 1e6:.1f} ms", f"{statistics.stdev(owds) / 1e6:.1f} ms"


# -- pages ---------------------------------------------------------------------------------------------------------

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "reference/command-line.md": {"commands": commands},
    "reference/settings.md": {
        "direction": lambda: settings(DirectionSettings),
        "queue": lambda: settings(QueueSettings),
        "lab": lambda: settings(LabSettings),
        "engine": lambda: settings(EngineSettings),
    },
    "reference/python.md": {
        "names": lambda: "\n\n".join(public_text(getattr(xskit, name)) for name in xskit.__all__ if name[0] != "_")
    },
    "reference/kernel.md": {"features": features},
    "reference/ports.md": {"ports": ports},
    "explanation/models.md": {"jitter": jitter},
}


def main(arguments: list[str]) -> int:
    """Write or check every page."""
    return write("docs/make_reference.py", PARTS, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
