"""What a guest is made of, and the command line by which QEMU makes it.

    NIC 0 -- hub 0 -- NIC 1      NIC 2 -- hub 1 -- NIC 3 ...

Each NIC stands behind a PCIe root port of its own: igb needs one, and only there can a NIC be unplugged. The ports of
one virtio-serial controller carry everything between the guest and xskit; the serial line is only the console.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xskit.arguments import whole
from xskit.errors import UsageError
from xskit.vm.devices import MODELS, NicModel
from xskit.vm.qemu import Qemu

__all__ = ["CHANNELS", "GuestHardware", "command_line", "nic_arguments"]

CHANNELS = ("control", "ask", "stdout", "stderr")
"""The virtio-serial ports: what main and guest tell each other, what the command asks for, and its two streams."""

MAX_NICS = 8
MAX_CPUS = 64
LEAST_MEMORY_BYTES = 256 << 20
MAX_MEMORY_BYTES = 1 << 46
"""64 TiB: what x86-64 addresses in four levels of pages."""
GUEST_CPU = "x86-64-v3"
"""What compiled code may use in a guest, whether emulated or not: AVX2 and what came with it."""


@dataclass(frozen=True)
class GuestHardware:
    """A guest's hardware.

    Attributes:
        nics: how many; 0 and 1 are on one wire, 2 and 3 on the next.
        model: of the NICs.
        queues: of each NIC (RX and TX alike).
        cpus: of the guest.
        memory_bytes: of the guest; what it writes to files lies in there too.
        count_instructions: the guest's clock does: each takes 1 ns, and waiting takes none (QEMU's icount). Emulated
            guests only; what happens in one is then repeatable.
        offloads: NICs can have checksums and scatter-gather; then none is wired to another, and what they send goes
            nowhere.
    """

    nics: int = 2
    model: NicModel = MODELS["virtio-net"]
    queues: int = 1
    cpus: int = 2
    memory_bytes: int = 1 << 30
    count_instructions: bool = False
    offloads: bool = False

    def __post_init__(self) -> None:
        if whole("--nics", self.nics, 0, MAX_NICS, remedy="--nics {}") % 2:
            raise UsageError(
                f"--nics must be even, two on each wire, not {self.nics}", remedy=f"--nics {self.nics + 1}"
            )
        most = self.model.max_queues
        whole(f"--queues of {self.model.name}", self.queues, 1, most, remedy="--queues {}")
        whole("--cpus", self.cpus, 1, MAX_CPUS, remedy="--cpus {}")
        if whole("--memory", self.memory_bytes, 0, MAX_MEMORY_BYTES, remedy="--memory {}B") < LEAST_MEMORY_BYTES:
            raise UsageError("--memory must be at least 256MiB", remedy="--memory 1GiB")

    @property
    def needs_taps(self) -> bool:
        """Whether the NICs' wires must carry several queues, or offloads: QEMU's hubs carry neither."""
        return self.offloads or (self.model.backend_queues and self.queues > 1)


def command_line(
    qemu: Qemu,
    hardware: GuestHardware,
    *,
    kernel: Path,
    initramfs: Path,
    out: Path,
    channels: Mapping[str, int],
    kvm: bool = False,
    append: Sequence[str] = (),
    taps: Sequence[Sequence[int]] = (),
) -> list[str]:
    """The whole command line.

    Args:
        qemu: to run.
        hardware: to make.
        kernel: image.
        initramfs: archive.
        out: folder that the guest may write to.
        channels: file descriptors of connected sockets, for each of CHANNELS, "console" and "monitor".
        kvm: run on the host's own CPUs.
        append: further words for the kernel.
        taps: for each NIC the descriptors of its queues; empty: NICs are joined by QEMU's hubs.
    """
    words = [
        "console=ttyS0",
        "quiet",
        "panic=-1",
        "mitigations=off",
        "rdinit=/init",
        f"xskit.nic={hardware.model.driver}",
        *(() if kvm else _EMULATED),
        *append,
    ]
    line = [
        *qemu.argv,
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-M", "q35"),
        *_accelerator(hardware, kvm),
        *("-smp", str(hardware.cpus), "-m", f"{hardware.memory_bytes >> 20}M"),
        *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", " ".join(words)),
        *("-device", "virtio-serial-pci"),
    ]
    for name, fd in channels.items():
        line += ["-chardev", f"socket,id={name},fd={fd}"]
        if name == "console":
            line += ["-serial", "chardev:console"]
        elif name == "monitor":
            line += ["-mon", "chardev=monitor,mode=control"]
        else:
            line += ["-device", f"virtserialport,chardev={name},name=xskit.{name}"]
    line += ["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
    line += ["-virtfs", f"local,path={_escaped(out)},mount_tag=out,security_model=none,multidevs=remap"]
    for number in range(hardware.nics):
        line += ["-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1}"]
        if taps:
            line += ["-netdev", f"tap,id=net{number},vhost=off,fds={':'.join(map(str, taps[number]))}"]
        else:
            line += ["-netdev", f"hubport,id=net{number},hubid={number // 2}"]
        arguments = nic_arguments(hardware, number)
        driver = arguments.pop("driver")
        line += ["-device", ",".join([str(driver), *(f"{key}={_word(value)}" for key, value in arguments.items())])]
    return line


_EMULATED = ("tsc=reliable", "no_timer_check")
"""Emulated CPUs read one clock, but old kernels find their TSCs apart and fall back to the HPET, where each reading of
the time is an exit to QEMU: on 5.10 a worker spends its life there. And at boot a kernel looks whether its timer ticks
(check_timer, arch/x86/kernel/apic/io_apic.c): where the machine is so busy that QEMU is late, it finds none and panics.
Under KVM the kernel leaves that out by itself."""


def _accelerator(hardware: GuestHardware, kvm: bool) -> list[str]:
    if hardware.count_instructions:
        return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max,la57=off"]
    return ["-accel", "kvm" if kvm else "tcg,thread=multi", "-cpu", "host" if kvm else "max,la57=off"]


def nic_arguments(hardware: GuestHardware, number: int) -> dict[str, str | int | bool]:
    """A NIC as device_add takes it."""
    arguments: dict[str, str | int | bool] = {
        "driver": hardware.model.device,
        "id": f"nic{number}",
        "netdev": f"net{number}",
        "bus": f"port{number}",
        "mac": f"52:54:00:00:00:{number + 1:02x}",
        "romfile": "",
        **hardware.model.options,
        **(hardware.model.at_once if hardware.count_instructions else {}),
    }
    if hardware.model.backend_queues and hardware.queues > 1:
        arguments |= {"mq": True, "vectors": 2 * hardware.queues + 2}  # one for each ring, configuration, control
    return arguments


def _word(value: str | int | bool) -> str:
    """A value on the command line."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _escaped(path: Path) -> str:
    """A path in a QEMU option: commas are doubled."""
    return str(path).replace(",", ",,")
