"""The entry point of the command `xskit`: which commands there are, and how every error is shown.

A command's module is imported only when that command is called, and what moves packets only inside the command, so
that help and mistakes are answered at once.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer

from xskit.cli import completion
from xskit.cli.surroundings import explained
from xskit.errors import Setting, UsageError, XskitError

COMMANDS = {
    "demo": "Two hosts, a link, real packets: asked against achieved.",
    "run": "A command whose only way out is an emulated link.",
    "emulate": "Links between network interfaces, as a file says.",
    "bench": "Benchmarks of AF_XDP, as xdpsock's and more; results compared.",
    "experiment": "Published experiments, repeated: the published table and yours.",
    "vm": "A command under another kernel and with other NICs, in a throw-away guest.",
    "plan": "The memory that links will need, before they are made.",
    "restore": "Put back what killed xskit processes left.",
    "version": "The version, and what this machine can do.",
}

GROUPS = {"experiment", "bench", "vm"}
"""Those of them that have commands of their own: their module holds a typer application."""

EPILOG = "Example: xskit run --owd 30ms --rate 20Mbit --loss 1% -- ip route get 192.0.2.1"

_OwnError: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of what typer raises about the command line, wherever its releases keep it."""

_INTERRUPTED = 130
_BROKEN_PIPE = 1
"""Also what typer gives when it is the first to notice."""

_UNWRITABLE = {errno.ENOSPC: "df", errno.EDQUOT: "quota", errno.EFBIG: "ulimit -f", errno.EIO: None}
"""What a full or lost output gives, and the remedy."""


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    _open_closed()
    try:
        line = completion.line_to_complete()
        code = _run((sys.argv[1:] or ["--help"]) if line is None else line)
        sys.stdout.flush()
    except BrokenPipeError:
        code = _BROKEN_PIPE
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        code = _show(XskitError(f"the output cannot be written: {why}", remedy=_UNWRITABLE[error.errno]), [])
    _silence()
    sys.exit(code)


def _open_closed() -> None:
    """Standard streams that the caller has closed: what goes there goes nowhere. Python leaves None in their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w" if number else "r", encoding="utf-8")  # noqa: SIM115  it lasts as long as we do
            if stream.fileno() != number:
                os.dup2(stream.fileno(), number)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):  # what the terminal's encoding lacks is shown as ?
        sys.stdout.reconfigure(errors="replace")


def _silence() -> None:
    """What nobody reads, or cannot be written, goes nowhere. Python would complain when it flushes at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: Sequence[str]) -> int:
    try:
        app = application(arguments)
        command = partial(app, list(arguments), prog_name="xskit", standalone_mode=False)
        if completion.is_about_completion(arguments):
            completion.run(command)
            return 0
        result = command()
        return result if isinstance(result, int) else 0
    except _OwnError as error:
        return _show(_usage(error, arguments), arguments)
    except XskitError as error:
        return _show(error, arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (OSError, ImportError, MemoryError, RuntimeError) as error:
        told = explained(error)
        if told is None:
            raise
        return _show(told, arguments)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The commands; only the one that `arguments` name is loaded, the others are known by name."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_xskit)
    called = _called(arguments)
    for name, summary in COMMANDS.items():
        settings = {"allow_interspersed_args": name != "run", "help_option_names": ["-h", "--help"]}
        if name == called in GROUPS:
            app.add_typer(getattr(import_module(f"xskit.cli.{name}"), name), name=name, short_help=summary)
            continue
        function = _load(name) if name == called else _not_called
        app.command(name, short_help=summary, context_settings=settings)(function)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        _load("version")(verbose=False, json=False)
        raise typer.Exit


def _xskit(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """AF_XDP for Python: network links emulated on real packets.

    What moves packets needs root; `xskit COMMAND --help` shows what each command does.
    """


def _not_called() -> None:
    raise AssertionError("a command that is called was loaded")


def _load(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(f"xskit.cli.{name}"), name)
    return function


def _called(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _usage(error: Exception, arguments: Sequence[str]) -> UsageError:
    """A mistake on the command line, in our words."""
    said = getattr(error, "format_message", error.__str__)().strip().rstrip(".")
    context, called = getattr(error, "ctx", None), _called(arguments)
    command = f"xskit {called}" if called in COMMANDS else "xskit"
    if context is not None and context.command_path.startswith(f"{command} "):  # of a command's own commands
        command = context.command_path
    return UsageError(f"{said[0].lower()}{said[1:]}", remedy=f"{command} --help")


def _show(error: XskitError, arguments: Sequence[str]) -> int:
    """Cause and remedy on stderr; with --json also as JSON on stdout, where that is not COMMAND's."""
    remedy = _remedy(error, _called(arguments))
    with suppress(OSError):  # nobody may read that either: the exit code tells
        print(f"xskit: {error.cause}", file=sys.stderr)
        if remedy is not None:
            print(f"try: {remedy}", file=sys.stderr)
    if "--json" in arguments and not _runs_a_command(arguments):
        print(json.dumps({"error": {"cause": error.cause, "remedy": remedy}}, indent=2))
    return error.exit_code


def _runs_a_command(arguments: Sequence[str]) -> bool:
    """Whether stdout is a COMMAND's, and --json its option."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    return words[:1] == ["run"] or words[:2] == ["vm", "run"]


def _remedy(error: XskitError, command: str) -> str | None:
    """A setting is written as an option, or as a key of the file that `xskit emulate` reads."""
    if not isinstance(error.remedy, Setting):
        return error.remedy
    if command == "emulate":
        return error.remedy.written(_as_key) + " (in the table [engine])"
    return error.remedy.written(_as_bench_option if command == "bench" else _as_option)


def _as_key(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value)}"


def _as_option(name: str, value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"--{name.replace('_', '-')} {text}"


_BENCH_WORDS = {"rx": "ring", "tx": "ring", "completion": "ring", "fill": "frames", "multi_buffer": "frags"}


def _as_bench_option(name: str, value: Any) -> str:
    """Rings have one option for all of them, and the mode has xdpsock's word."""
    name = _BENCH_WORDS.get(name, name)
    if isinstance(value, bool):
        return f"--{name}" if value else f"no --{name}"
    return _as_option(name, "skb" if (name, value) == ("mode", "generic") else value)
