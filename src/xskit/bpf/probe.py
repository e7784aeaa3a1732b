"""What this kernel can do with BPF, found out by trying, not by its version; each is tried once a process."""

from __future__ import annotations

import errno
from functools import cache

from xskit.abi.bpf import AttachType, MapType, ProgramType
from xskit.bpf import syscall
from xskit.bpf.asm import Assembler
from xskit.bpf.errors import BpfError
from xskit.bpf.map import Map, MapSpec
from xskit.bpf.program import Program, ProgramSpec
from xskit.bpf.support import KernelFeature, Support, tried
from xskit.errors import PrivilegeError

__all__ = ["BpfFeature", "available", "probe", "probe_all"]


class BpfFeature(KernelFeature):
    """What `probe` can try."""

    MAPS = ("BPF maps (array, per-CPU array, hash)", "4.6")
    LPM_TRIE = ("longest-prefix-match maps", "4.11")
    XSKMAP = ("maps of AF_XDP sockets", "4.18")
    XDP_PROGRAM = ("XDP programs", "4.8")
    XDP_FRAGS = ("XDP programs for multi-buffer packets", "5.18")
    LINK = ("bpf_link", "5.7")
    TCX = ("tc programs attached by bpf_link (tcx)", "6.6")


def available(feature: BpfFeature) -> bool:
    """Whether the kernel is known to have it."""
    return probe(feature).available is True


def probe_all() -> list[Support]:
    """Every feature, in the order of the enum."""
    return [probe(feature) for feature in BpfFeature]


@cache
def probe(feature: BpfFeature) -> Support:
    """Try one feature: nothing stays behind, and no interface is touched."""
    return tried(feature, _TRIALS[feature])


def _try_maps() -> None:
    for kind in (MapType.ARRAY, MapType.PERCPU_ARRAY, MapType.HASH):
        Map.create(MapSpec("xk_probe", kind, 4, 8, 1)).close()


def _try_lpm_trie() -> None:
    Map.create(MapSpec("xk_probe", MapType.LPM_TRIE, 8, 8, 1)).close()


def _try_xskmap() -> None:
    Map.create(MapSpec("xk_probe", MapType.XSKMAP, 4, 4, 1)).close()


def _try_xdp_program() -> None:
    Program.load(_nothing(ProgramType.XDP, AttachType.XDP)).close()


def _try_xdp_frags() -> None:
    Program.load(_nothing(ProgramType.XDP, AttachType.XDP, frags=True)).close()


def _try_link() -> None:
    # A program that is none: a kernel that knows the command says EBADF, one that does not EINVAL.
    _expect(errno.EBADF, BpfFeature.LINK, -1, AttachType.XDP)


def _try_tcx() -> None:
    # An interface that is none: ENODEV where tcx exists, EINVAL where it does not.
    with Program.load(_nothing(ProgramType.SCHED_CLS, AttachType.TCX_EGRESS)) as program:
        _expect(errno.ENODEV, BpfFeature.TCX, program.fd, AttachType.TCX_EGRESS)


def _expect(number: int, feature: BpfFeature, program_fd: int, attach_type: AttachType) -> None:
    """Attach to an interface that cannot exist, and see by the errno how far the kernel got."""
    try:
        syscall.link_create(program_fd, (1 << 31) - 1, attach_type, 0)
    except OSError as error:
        if error.errno == number:
            return
        if error.errno == errno.EPERM:
            raise PrivilegeError("attaching programs needs CAP_BPF and CAP_NET_ADMIN") from None
        raise BpfError(f"this kernel has no {feature.title} (Linux {feature.since})", error.errno or 0) from None


def _nothing(kind: ProgramType, attach_type: AttachType, *, frags: bool = False) -> ProgramSpec:
    return ProgramSpec("xk_probe", Assembler().returns(0).assemble(), kind, attach_type, frags=frags)


_TRIALS = {
    BpfFeature.MAPS: _try_maps,
    BpfFeature.LPM_TRIE: _try_lpm_trie,
    BpfFeature.XSKMAP: _try_xskmap,
    BpfFeature.XDP_PROGRAM: _try_xdp_program,
    BpfFeature.XDP_FRAGS: _try_xdp_frags,
    BpfFeature.LINK: _try_link,
    BpfFeature.TCX: _try_tcx,
}
