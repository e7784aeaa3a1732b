"""From what the user asks for to how the command ended: what is missing is fetched and built, then one guest runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from xskit.bench.in_guest import COUNTED_VARIABLE, EMULATED_VARIABLE
from xskit.errors import UsageError
from xskit.vm import Say, accel, compiled, initramfs, kernels
from xskit.vm import qemu as qemus
from xskit.vm.errors import GuestError, QemuAbortedError
from xskit.vm.guest import Command, CompletedCommand, Guest, Sink
from xskit.vm.hardware import GuestHardware
from xskit.vm.places import new_run_folder, require_x86
from xskit.vm.results import bring_back, require_folder
from xskit.vm.taps import taps

__all__ = ["GuestResult", "Request", "run_guest"]


_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "VIRTUAL_ENV")
_TALKATIVE = ("loglevel=7",)
"""Who looks at the console wants to see what the kernel says, and it says next to nothing by itself (quiet)."""

_INHERITED_PREFIXES = ("LC_", "PYTHON", "XSKIT_")


@dataclass(frozen=True)
class Request:
    """One command in one guest.

    Attributes:
        kernel: version or name.
        argv: the command.
        hardware: of the guest.
        when_emulated: the hardware where the guest is emulated; None: the same.
        accel: how it is run.
        time_limit_s: for the command, once the guest is up; None: no limit.
        out: where the files go that the command leaves in $XSKIT_OUT.
        cwd: where the command runs.
        environment: variables besides those that a guest inherits.
        data_plane: see to it that the compiled data plane is in the cache.
    """

    kernel: str
    argv: Sequence[str]
    hardware: GuestHardware = field(default_factory=GuestHardware)
    when_emulated: GuestHardware | None = None
    accel: accel.Wanted = "auto"
    time_limit_s: float | None = 600.0
    out: Path = Path("vm-out")
    cwd: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=dict)
    data_plane: bool = True


@dataclass(frozen=True)
class GuestResult:
    """How it ended: the outcome, what it ran on, and the files that came back."""

    outcome: CompletedCommand
    accelerator: accel.Accelerator
    hardware: GuestHardware
    files: tuple[Path, ...]


def run_guest(
    request: Request, *, stdout: Sink, stderr: Sink, say: Say = lambda line: None, console: Sink | None = None
) -> GuestResult:
    """Run a command in a throw-away guest.

    Raises:
        UsageError: there is no such kernel, or the hardware cannot be.
        FetchError: something that is missing cannot be fetched.
        TimeLimitError: the command had not ended by then.
        GuestError: the guest did not come up, or died.
    """
    require_x86()
    if not request.argv:
        raise UsageError("there is no command to run in the guest")
    require_folder(request.out)
    _require_memory(request.hardware.memory_bytes)
    kernel = kernels.ready(request.kernel, say)
    qemu = qemus.qemu(request.hardware.model.qemu, say)
    archive = initramfs.build(kernel, qemus.busybox(say))
    accelerator = accel.choose(request.accel, qemu, kernel, archive, say)
    say(f"Linux {kernel.release} on {accelerator.name}: {accelerator.reason}")
    folder = new_run_folder()
    try:
        with ExitStack() as stack:
            preparation = stack.enter_context(compiled.Preparation()) if request.data_plane else None
            hardware = request.hardware
            if request.when_emulated is not None and not accelerator.kvm:
                hardware = request.when_emulated
            others: Sequence[Sequence[int]] = ()
            if hardware.needs_taps:
                others = stack.enter_context(taps(hardware.nics, hardware.queues, wired=not hardware.offloads))

            def boot() -> Guest:
                made = Guest(
                    qemu,
                    kernel,
                    archive,
                    hardware,
                    out=folder,
                    kvm=accelerator.kvm,
                    append=() if console is None else _TALKATIVE,
                    console=console,
                    taps=others,
                )
                stack.enter_context(made)
                made.wait_ready()
                return made

            try:
                guest = boot()
            except QemuAbortedError:
                if accelerator.kvm:
                    raise
                say("QEMU has aborted while the guest booted: once more")
                guest = boot()
            if preparation is not None:
                if not preparation.finished:
                    say("compiling the data plane for the guest, once")
                preparation.wait()
            outcome = guest.run(
                Command(request.argv, request.cwd, _environment(request, accelerator.kvm, hardware.count_instructions)),
                stdout=stdout,
                stderr=stderr,
                time_limit_s=request.time_limit_s,
            )
    except BaseException:  # the time limit and Ctrl-C too
        with suppress(GuestError):  # the first failure is the one to tell
            bring_back(folder, request.out)
        raise
    else:
        files = bring_back(folder, request.out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return GuestResult(outcome, accelerator, hardware, files)


def _require_memory(wanted_bytes: int) -> None:
    """QEMU would die of it, or the machine later.

    Raises:
        UsageError: this machine has less.
    """
    present_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted_bytes > present_bytes:
        raise UsageError(
            f"a guest cannot have {wanted_bytes >> 20} MiB of memory: this machine has {present_bytes >> 20} MiB",
            remedy="--memory 1GiB",
        )


def _environment(request: Request, kvm: bool, counted: bool) -> dict[str, str]:
    """What the command finds; a benchmark in there must know what its clock is worth."""
    inherited = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    nature = {EMULATED_VARIABLE: str(int(not kvm)), COUNTED_VARIABLE: str(int(counted))}
    return {**inherited, **nature, **compiled.environment(), **request.environment}
