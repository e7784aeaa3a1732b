"""The program that xskit attaches: it picks the AF_XDP socket of the packet's RX queue, and stamps the arrival.

```
                   |<-- 8 bytes -->|
  ... headroom ... | arrival stamp | packet ...        the stamp ends exactly where the packet (desc.addr) begins:
                                   ^ desc.addr         bpf_ktime_get_ns(), CLOCK_MONOTONIC, a u64 of this machine
```

A packet for whose queue no socket is registered goes on to the kernel's stack, untouched and unstamped (a stamp would
keep GRO from merging it).  A driver that refuses metadata gets its packets redirected without a stamp: the 8 bytes are
then whatever the frame held before, so read them only when `outcomes()` counts no UNSTAMPED, or clear them in FILL.
With `drop_chatter`, packets that a host's kernel sends unasked do not reach the socket (`chatter.py`).
Metadata before a packet: Documentation/networking/xdp-rx-metadata.rst; a multi-buffer packet has it in its first frame.
"""

from __future__ import annotations

import errno
import sys
from contextlib import ExitStack
from enum import IntEnum
from typing import Final, Self

from xskit.abi.bpf import Helper, MapType, UpdateFlag, XdpAction, XdpMd
from xskit.arguments import whole
from xskit.bpf.asm import R0, R1, R2, R3, R4, R6, R7, R8, R10, U32, U64, Assembler
from xskit.bpf.attach import BpfLink, XdpMode, attach
from xskit.bpf.chatter import jump_if_chatter
from xskit.bpf.errors import BpfError
from xskit.bpf.map import Map, MapSpec
from xskit.bpf.probe import BpfFeature, available
from xskit.bpf.program import Program, ProgramSpec
from xskit.closing import Closing
from xskit.errors import UsageError

__all__ = [
    "STAMP_BYTES",
    "Outcome",
    "RedirectProgram",
    "drop_program",
    "pass_program",
    "redirect_program",
]

STAMP_BYTES: Final = 8
"""Room that the arrival stamp takes before the packet; metadata is a multiple of 4 and on older kernels at most 32."""

_SOCKETS, _OUTCOMES = "sockets", "outcomes"


class Outcome(IntEnum):
    """What became of a packet.  Each packet is counted once: their sum is all that the program saw."""

    REDIRECTED = 0
    """Given to the socket of its queue, with its arrival stamp."""
    PASSED = 1
    """Given to the kernel's stack, because its queue has no socket."""
    UNSTAMPED = 2
    """Given to the socket of its queue without a stamp, because the driver takes no metadata."""
    CHATTER = 3
    """Dropped: the host's kernel sent it unasked."""


def redirect_program(*, frags: bool, drop_chatter: bool = False) -> ProgramSpec:
    """The program as data: it uses the maps `sockets` (XSKMAP) and `outcomes` (PERCPU_ARRAY of u64)."""
    a = Assembler()
    a.mov(R6, R1)
    a.load(R2, R6, XdpMd.RX_QUEUE_INDEX, U32)
    a.load_map(R1, _SOCKETS)
    a.mov(R3, XdpAction.PASS)  # for a queue without a socket
    a.call(Helper.REDIRECT_MAP)
    a.mov(R7, R0)  # what to return, whatever comes between
    a.store(R10, -4, Outcome.PASSED, U32)
    a.jump_if(R7, "!=", XdpAction.REDIRECT, "count")
    if drop_chatter:
        jump_if_chatter(a, R6, "chatter", "stamp")
        a.label("chatter")
        a.store(R10, -4, Outcome.CHATTER, U32)
        a.mov(R7, XdpAction.DROP)
        a.jump("count")
        a.label("stamp")

    a.call(Helper.KTIME_GET_NS)
    a.mov(R8, R0)
    a.store(R10, -4, Outcome.UNSTAMPED, U32)
    a.mov(R1, R6)
    a.mov(R2, -STAMP_BYTES)
    a.call(Helper.XDP_ADJUST_META)
    a.jump_if(R0, "!=", 0, "count")
    a.load(R2, R6, XdpMd.DATA_META, U32)
    a.load(R3, R6, XdpMd.DATA, U32)
    a.mov(R4, R2)
    a.alu(R4, "+=", STAMP_BYTES)
    a.jump_if(R4, ">", R3, "count")  # never, but the verifier cannot know
    a.jump_if(R4, "<", R3, "count")  # the driver had put metadata of its own there
    a.store(R2, 0, R8, U64)
    a.store(R10, -4, Outcome.REDIRECTED, U32)

    a.label("count")
    a.load_map(R1, _OUTCOMES)
    a.mov(R2, R10)
    a.alu(R2, "+=", -4)
    a.call(Helper.MAP_LOOKUP_ELEM)
    a.jump_if(R0, "==", 0, "done")
    a.load(R1, R0, 0, U64)
    a.alu(R1, "+=", 1)  # per CPU, and a program is not preempted by itself: no atomic needed
    a.store(R0, 0, R1, U64)
    a.label("done")
    a.mov(R0, R7)
    a.exit()
    return ProgramSpec("xk_redirect", a.assemble(), frags=frags)


def pass_program(*, frags: bool = False) -> ProgramSpec:
    """Every packet goes on to the kernel's stack."""
    return ProgramSpec("xk_pass", Assembler().returns(XdpAction.PASS).assemble(), frags=frags)


def drop_program(*, frags: bool = False) -> ProgramSpec:
    """Every packet is dropped, before the kernel has spent anything on it."""
    return ProgramSpec("xk_drop", Assembler().returns(XdpAction.DROP).assemble(), frags=frags)


class RedirectProgram(Closing):
    """The redirect program in the kernel, with its two maps.

    ```python
    with RedirectProgram.load() as redirect, redirect.attach(ifindex, XdpMode.NATIVE):
        redirect.register(queue=0, socket_fd=socket.fileno())
    ```
    """

    def __init__(self, program: Program, sockets: Map, outcomes: Map) -> None:
        self.program = program
        self._sockets = sockets
        self._outcomes = outcomes

    @classmethod
    def load(cls, queues: int = 64, *, frags: bool | None = None, drop_chatter: bool = False) -> Self:
        """Create the maps and load the program; `queues` is one more than the highest queue number to register.

        `frags`: take multi-buffer packets; None: where the kernel can (5.18).  `drop_chatter`: drop and count the
        packets that the host's kernel sends unasked.  Raises BpfError or PrivilegeError.
        """
        queues = whole("queues", queues, 1, (1 << 32) - 1)
        with ExitStack() as undo:
            sockets = undo.enter_context(Map.create(MapSpec("xk_sockets", MapType.XSKMAP, 4, 4, queues)))
            outcomes = undo.enter_context(Map.create(MapSpec("xk_outcomes", MapType.PERCPU_ARRAY, 4, 8, len(Outcome))))
            with_frags = available(BpfFeature.XDP_FRAGS) if frags is None else frags
            spec = redirect_program(frags=with_frags, drop_chatter=drop_chatter)
            program = Program.load(spec, {_SOCKETS: sockets, _OUTCOMES: outcomes})
            undo.pop_all()
        return cls(program, sockets, outcomes)

    @property
    def queues(self) -> int:
        """One more than the highest queue number that can be registered."""
        return self._sockets.spec.entries

    def attach(self, ifindex: int, mode: XdpMode) -> BpfLink:
        """Attach it to an interface of the calling thread's network namespace; see `attach`."""
        return attach(self.program, ifindex, mode)

    def register(self, queue: int, socket_fd: int) -> None:
        """From now on packets of RX queue `queue` go to this AF_XDP socket, which must be bound to that very queue:
        the kernel silently drops what is redirected to a socket of another queue or to an unbound one.

        The kernel forgets the socket by itself when it is closed.
        """
        if self.program.closed:
            raise UsageError("the redirect program is closed")
        if not 0 <= queue < self.queues:
            raise UsageError(f"RX queue {queue} is not among the {self.queues} queues the program was loaded for")
        try:
            self._sockets.set(queue, socket_fd, UpdateFlag.NOEXIST)
        except BpfError as error:
            if error.errno == errno.EEXIST:
                raise UsageError(f"RX queue {queue} has a socket already: unregister it first") from None
            raise

    def unregister(self, queue: int) -> None:
        """From now on packets of this queue go to the kernel's stack; nothing happens when they did before."""
        if 0 <= queue < self.queues:
            self._sockets.delete(queue)

    def outcomes(self) -> dict[Outcome, int]:
        """Packets by what became of them, over all CPUs, since the program was loaded."""
        return {
            outcome: sum(int.from_bytes(raw, sys.byteorder) for raw in self._outcomes.get_per_cpu(outcome) or ())
            for outcome in Outcome
        }

    def close(self) -> None:
        """Give program and maps back.  While a BpfLink holds the program, it goes on running with its maps."""
        self.program.close()
        self._sockets.close()
        self._outcomes.close()
