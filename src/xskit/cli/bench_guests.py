"""`xskit bench --kernel`: the same command in one guest a kernel, and what they measured as one session."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xskit.bench.merge import GuestSession, merged
from xskit.bench.results import Session
from xskit.cli.bench_options import AskedGuests
from xskit.cli.nic import USUAL_NIC
from xskit.errors import UsageError, XskitError
from xskit.netconf.signals import terminated_by_exception
from xskit.vm import kernels
from xskit.vm.devices import model
from xskit.vm.errors import GuestError
from xskit.vm.hardware import GuestHardware
from xskit.vm.session import GuestResult, Request, run_guest

if TYPE_CHECKING:
    from xskit.bench.settings import Case

__all__ = ["guest_words", "in_guests", "layout"]

MEMORY_BYTES = 2 << 30
TIME_LIMIT_S = 3600.0
_INTERRUPTED = 130
_RESULTS = "session.json"

_OUTSIDE = {
    "kernel",
    "nic",
    "accel",
    "format",
    "json",
    "report",
    "html",
    "compare",
    "least",
    "quiet",
    "interface",
    "far",
}
"""Options that are done on this side."""


def in_guests(
    asked: AskedGuests, ctx: Any, cases: Sequence[Case], *, endless: bool, columns: bool, quiet: bool
) -> Session:
    """Do it in one guest after another. Ctrl-C ends it, with what whole guests have measured so far.

    Args:
        asked: which guests.
        ctx: of the command, with its options as they were given.
        cases: what they come to.
        endless: until Ctrl-C.
        columns: xdpsock's, as they come.
        quiet: say nothing meanwhile.

    Raises:
        UsageError: there is no such kernel, or the guest says that the options cannot be meant.
        FetchError, GuestError: as of run_guest; and what the guest's xskit says.
    """
    say = _silent if quiet else _say
    found: list[GuestSession] = []
    interrupted = False
    with terminated_by_exception():
        for kernel in asked.kernels:
            kernels.ready(kernel, say)
        for kernel in asked.kernels:
            try:
                found.append(_in_guest(kernel, asked, ctx, cases, endless=endless, columns=columns, quiet=quiet))
            except KeyboardInterrupt:
                if not found:
                    raise
                interrupted = True
                break
            if found[-1].session.interrupted:
                break
    session = merged(found, ["xskit", *sys.argv[1:]])
    session.interrupted |= interrupted
    return session


def layout(mode: str, nic: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Interfaces of the guest to measure on, and what they are wired to: 0 to 1, 2 to 3."""
    if not nic:
        return (), ()
    return (("eth1", "eth2"), ("eth0", "eth3")) if mode == "forward" else (("eth0",), ("eth1",))


def guest_words(ctx: Any, near: Sequence[str], far: Sequence[str]) -> list[str]:
    """The command's own words for the guest: the options that were given, but for those that are done out here."""
    words = ["bench", str(ctx.info_name)]
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name)
        if parameter.name in _OUTSIDE or source is None or source.name == "DEFAULT":
            continue
        value = ctx.params[parameter.name]
        words += [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], str(value)]
    for option, names in (("--interface", near), ("--far", far)):
        words += [option, ",".join(names)] if names else []
    return words


def _in_guest(
    kernel: str, asked: AskedGuests, ctx: Any, cases: Sequence[Case], *, endless: bool, columns: bool, quiet: bool
) -> GuestSession:
    say = _silent if quiet else _say
    near, far = layout(str(ctx.info_name), asked.nic)
    words = [sys.executable, "-P", "-m", "xskit", *guest_words(ctx, near, far)]
    words += ["--format", "xdpsock"] if columns else ["--quiet"]
    command = f'exec {shlex.join(words)} --report "$XSKIT_OUT/{_RESULTS}"'
    complaints = bytearray()
    with tempfile.TemporaryDirectory(prefix="xskit-bench-") as folder:
        request = Request(
            kernel=kernel,
            argv=["sh", "-c", command],
            hardware=_hardware(asked, cases, near, counted=False),
            when_emulated=_hardware(asked, cases, near, counted=True),
            accel=asked.accel,
            time_limit_s=None if endless else TIME_LIMIT_S,
            out=Path(folder),
        )
        heard = _print if columns else _ignore
        ended = run_guest(request, stdout=heard, stderr=complaints.extend, say=say)
        results = Path(folder) / _RESULTS
        if ended.outcome.exit_code not in (0, _INTERRUPTED) or not results.stat().st_size:
            raise _failure(ended, complaints.decode(errors="replace"))
        session = Session.load(results)
    say(f"Linux {ended.outcome.release}: {len(session.outcomes)} cases measured")
    counted = ended.hardware.count_instructions
    return GuestSession(kernel, session, ended.accelerator.name, counted, asked.nic, ended.hardware.cpus)


def _hardware(asked: AskedGuests, cases: Sequence[Case], near: Sequence[str], *, counted: bool) -> GuestHardware:
    """The hardware. Where instructions are counted it has one CPU: the clock of several is not repeatable."""
    packets = max(2 * case.frames * case.frame_size * len(case.queues) for case in cases)
    return GuestHardware(
        nics=2 * len(near),
        model=model(asked.nic or USUAL_NIC),
        queues=1 + max(queue for case in cases for queue in case.queues) if near else 1,
        cpus=1 if counted else 2,
        memory_bytes=MEMORY_BYTES + 2 * packets,
        count_instructions=counted,
    )


def _failure(ended: GuestResult, complaints: str) -> XskitError:
    """What the guest's xskit said, said again."""
    lines = [line for line in complaints.splitlines() if line.strip()]
    cause = next((line.removeprefix("xskit: ") for line in lines if line.startswith("xskit: ")), " ".join(lines[-2:]))
    remedy = next((line.removeprefix("try: ") for line in lines if line.startswith("try: ")), None)
    kind = UsageError if ended.outcome.exit_code == UsageError.exit_code else GuestError
    return kind(f"under Linux {ended.outcome.release}: {cause}", remedy=remedy)


def _say(line: str) -> None:
    print(f"xskit: {line}", file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass


def _print(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _ignore(content: bytes) -> None:
    pass
