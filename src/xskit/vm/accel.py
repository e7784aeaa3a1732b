"""KVM or emulation (TCG), found out by booting: where /dev/kvm opens, a stock kernel may hang under it all the same.

On nested hosts whose KVM wants guests that know of it (PVM), QEMU aborts or the kernel spins for ever. So the very
kernel is booted once, with a short limit; the answer is kept for this host kernel and QEMU, in the guest kernel's
folder: another build of it, which may have the same release, is tried anew.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xskit.errors import UsageError
from xskit.vm import Say
from xskit.vm.errors import GuestError
from xskit.vm.guest import Guest
from xskit.vm.hardware import GuestHardware
from xskit.vm.kernels import Kernel
from xskit.vm.places import new_run_folder
from xskit.vm.qemu import Qemu

__all__ = ["Accelerator", "Wanted", "choose"]

Wanted = Literal["auto", "kvm", "tcg"]

PROBE_S = 10.0
_KVM = Path("/dev/kvm")


@dataclass(frozen=True)
class Accelerator:
    """What runs the guest's instructions, and why."""

    kvm: bool
    reason: str

    @property
    def name(self) -> str:
        """As it is told: "KVM" or "TCG (emulation)"."""
        return "KVM" if self.kvm else "TCG (emulation)"


def choose(wanted: Wanted, qemu: Qemu, kernel: Kernel, initramfs: Path, say: Say) -> Accelerator:
    """The accelerator for a guest.

    Raises:
        UsageError: KVM is wanted, and there is none.
    """
    if wanted == "tcg":
        return Accelerator(False, "asked for")
    usable = os.access(_KVM, os.R_OK | os.W_OK)
    if wanted == "kvm":
        if not usable:
            raise UsageError(f"{_KVM} is missing or not accessible", remedy="--accel tcg")
        return Accelerator(True, "asked for")
    if not usable:
        return Accelerator(False, f"{_KVM} is missing or not accessible")
    return _remembered(qemu, kernel, initramfs, say)


def _remembered(qemu: Qemu, kernel: Kernel, initramfs: Path, say: Say) -> Accelerator:
    major, minor = qemu.version
    path = kernel.folder / f"accel-{platform.release()}-qemu-{major}.{minor}.json"
    with suppress(OSError, ValueError, LookupError, TypeError):  # none yet, or a damaged one
        known = json.loads(path.read_text())
        return Accelerator(bool(known["kvm"]), str(known["reason"]).partition(" (")[0])  # QEMU's message was shown once
    say(f"trying whether {kernel.release} boots under KVM ({PROBE_S:.0f} s at most)")
    found = _probe(qemu, kernel, initramfs)
    draft = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # so it is tried again next time
        draft.write_text(json.dumps({"kvm": found.kvm, "reason": found.reason}))
        draft.rename(path)
    return found


def _probe(qemu: Qemu, kernel: Kernel, initramfs: Path) -> Accelerator:
    folder = new_run_folder()
    hardware = GuestHardware(nics=0, cpus=1, memory_bytes=512 << 20)
    try:
        with Guest(qemu, kernel, initramfs, hardware, out=folder, kvm=True, append=["xskit.probe"]) as guest:
            guest.wait_ready(PROBE_S)
    except GuestError as error:
        first, *more = error.cause.splitlines()
        last = f" ({more[-1].strip(' |')})" if more else ""
        return Accelerator(False, f"under KVM {first.replace('the guest', 'a guest')}{last}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Accelerator(True, "a guest boots under it")
