"""Programs: `ProgramSpec` is pure data, `Program` is what the kernel made of it."""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from xskit.abi.bpf import NAME_BYTES, AttachType, ProgramFlag, ProgramType, XdpMd
from xskit.bpf import syscall
from xskit.bpf.asm import Instruction, encode
from xskit.bpf.disasm import listing
from xskit.bpf.errors import VerifierError, errno_name, refused
from xskit.bpf.handle import Handle
from xskit.bpf.map import Map
from xskit.errors import UsageError

__all__ = ["Program", "ProgramInfo", "ProgramSpec", "TestResult", "program_info"]

LICENCE = "Dual MIT/GPL"
"""Declared to the kernel: xskit is MIT, and a few helpers are only for programs that may be taken as GPL."""


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A program not yet loaded.  The maps it uses are names; `Program.load` gets the maps."""

    name: str
    instructions: tuple[Instruction, ...]
    type: ProgramType = ProgramType.XDP
    attach_type: AttachType = AttachType.XDP
    frags: bool = False
    """Whether the program can take multi-buffer packets (Linux 5.18)."""
    licence: str = LICENCE

    @property
    def flags(self) -> ProgramFlag:
        return ProgramFlag.XDP_HAS_FRAGS if self.frags else ProgramFlag(0)

    def listing(self) -> str:
        """The instructions as text, one a line."""
        return "\n".join(listing(self.instructions))


@dataclass(frozen=True, slots=True)
class TestResult:
    """What a program did to one packet."""

    __test__ = False  # for pytest: not a test in spite of its name

    action: int
    """What it returned: an XdpAction, or a TcxAction as an unsigned number of 32 bits."""
    packet: bytes
    metadata: bytes
    """The bytes that the program left right before the packet (XDP only)."""
    duration_ns: int
    """Mean time of one run."""


class Program(Handle):
    """A program in the kernel, verified and compiled."""

    def __init__(self, fd: int, spec: ProgramSpec) -> None:
        super().__init__(fd)
        self.spec = spec

    @classmethod
    def load(cls, spec: ProgramSpec, maps: Mapping[str, Map] | None = None) -> Self:
        """BPF_PROG_LOAD (CAP_BPF and CAP_NET_ADMIN).

        Raises VerifierError with the verifier's log, PrivilegeError, BpfError, or AssemblyError for a missing map.
        """
        code = encode(spec.instructions, {name: map_.fd for name, map_ in (maps or {}).items()})
        fd, error, log = syscall.program_load(spec.type, code, spec.licence, spec.flags, spec.name, spec.attach_type)
        if error is None:
            return cls(fd, spec)
        doing = f'loading program "{spec.name}" ({spec.type.name})'
        if log.strip() and error.errno not in (errno.EMFILE, errno.ENFILE):  # it was verified, and got no descriptor
            number = error.errno or 0
            cause = f"{doing} failed: {errno_name(number)}: the verifier refused it: {_complaint(log)}"
            raise VerifierError(cause, number, log)
        raise refused(doing, error, why=_REFUSALS.get(error.errno))

    @property
    def id(self) -> int:
        """The kernel's number for it, as `bpftool prog` and `ip link` show it."""
        return program_info(self.fd).id

    def test_run(
        self,
        packet: bytes,
        *,
        metadata: bytes = b"",
        ifindex: int = 0,
        queue: int = 0,
        repeat: int = 1,
    ) -> TestResult:
        """Run the program on a packet, without any interface (BPF_PROG_TEST_RUN).

        For XDP, `metadata` (a multiple of 4 bytes) stands before the packet, and the packet seems to come from RX
        queue `queue` of `ifindex` in the caller's network namespace.  Other programs take a packet only.
        The packet needs at least its 14 bytes of Ethernet header.
        """
        xdp = self.spec.type is ProgramType.XDP
        if not xdp and (metadata or ifindex or queue):
            raise UsageError("metadata, ifindex and queue are for XDP programs")
        before = len(metadata)
        context = _XDP_MD.pack(before, before + len(packet), 0, ifindex, queue, 0) if xdp else b""
        try:
            run = syscall.program_test_run(self.fd, metadata + packet, context, repeat=repeat)
        except OSError as error:
            raise refused(f'running program "{self.spec.name}" on a packet', error) from None
        after = struct.unpack_from("=I", run.context, XdpMd.DATA)[0] if xdp else 0
        return TestResult(run.result, run.data[after:], run.data[:after], run.duration_ns)

    def run_live(self, packet: bytes, *, ifindex: int, queue: int = 0, repeat: int, batch: int = 64) -> None:
        """Make `repeat` real packets of these bytes, `batch` at a time, and do with each as the program says
        (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18): XDP_TX sends it out of `ifindex`.

        They seem to come from RX queue `queue` of `ifindex`, in the caller's network namespace.  A packet must fit one
        page with what the kernel keeps there, about 3300 bytes, and a batch has at most 256.  The call returns when all
        are made; those for which the way was full are lost, uncounted.
        """
        context = _XDP_MD.pack(0, len(packet), 0, ifindex, queue, 0)
        try:
            syscall.program_run_live(self.fd, packet, context, repeat=repeat, batch=batch)
        except OSError as error:
            raise refused(f'making packets with "{self.spec.name}"', error, why=_NO_LIVE.get(error.errno)) from None


_NO_LIVE: dict[int | None, str] = {
    errno.EINVAL: "live frames came with Linux 5.18, and a packet has at least 14 bytes and fits a page",
    errno.EOPNOTSUPP: "the interface cannot send packets of XDP",
}

_REFUSALS: dict[int | None, str] = {
    errno.EINVAL: "this kernel does not know the type of program or one of its flags",
    errno.E2BIG: "it has no instructions, or more than the kernel allows",
}
"""What a refusal means when the verifier did not even begin."""

_XDP_MD = struct.Struct("=6I")
"""struct xdp_md; in a test run data, data_end and data_meta are offsets in the bytes given."""


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """The first fields of struct bpf_prog_info."""

    id: int
    name: str


def program_info(fd: int) -> ProgramInfo:
    """Read them from a program's file descriptor.  Raises OSError."""
    info = syscall.object_info(fd, 64 + NAME_BYTES)
    (number,) = struct.unpack_from("=I", info, 4)
    return ProgramInfo(number, info[64:].split(b"\0", 1)[0].decode(errors="replace"))


def _complaint(log: str) -> str:
    """The line that says what was wrong: the last one, apart from the verifier's statistics."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    spoken = [line for line in lines if not line.startswith(("processed ", "verification time", "stack depth"))]
    return spoken[-1] if spoken else lines[-1]
