"""The XDP programs of the benchmarks, and how they are attached.

sockets   to the AF_XDP sockets of the packet's queue: nothing else, as libxdp's own program, so that figures compare
sink      counts and drops: the far end of what sends
echo      swaps the MAC addresses and sends back: the far end of latency
live      makes every packet go out (with BPF_F_TEST_XDP_LIVE_FRAMES): the far end of what receives
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from xskit.abi.bpf import Helper, MapType, XdpAction, XdpMd
from xskit.bench.settings import QUEUES
from xskit.bpf.asm import R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, U16, U32, U64, Assembler
from xskit.bpf.attach import XdpMode, attach
from xskit.bpf.errors import AttachError
from xskit.bpf.map import Map, MapSpec
from xskit.bpf.probe import BpfFeature, available
from xskit.bpf.program import Program, ProgramSpec
from xskit.closing import Closing
from xskit.netconf.interfaces import look
from xskit.xsk.attachment import attach_best
from xskit.xsk.opening import BindMode

__all__ = ["Counting", "SocketProgram", "admit_sending", "echo_program", "live_program", "sink_program"]

_SOCKETS, _TURN, _COUNTS = "sockets", "turn", "counts"


def _look_up(a: Assembler, name: str, otherwise: str) -> None:
    """R0 is where the first value of the map is; to the label `otherwise` if it has none. Uses the stack at -4."""
    a.store(R10, -4, 0, U32)
    a.load_map(R1, name).mov(R2, R10).alu(R2, "+=", -4)
    a.call(Helper.MAP_LOOKUP_ELEM).jump_if(R0, "==", 0, otherwise)


def sockets_program(sharers: int, *, frags: bool) -> ProgramSpec:
    """To the socket of the packet's queue; where `sharers` sockets have one queue, to each in turn."""
    a = Assembler().load(R7, R1, XdpMd.RX_QUEUE_INDEX, U32)
    if sharers > 1:
        _look_up(a, _TURN, "pass")
        a.load(R8, R0, 0, U64)
        a.mov(R2, R8).alu(R2, "+=", 1).store(R0, 0, R2, U64)
        a.alu(R8, "%=", sharers)
        a.alu(R7, "*=", sharers).alu(R7, "+=", R8)
    a.mov(R2, R7).load_map(R1, _SOCKETS).mov(R3, XdpAction.PASS)
    a.call(Helper.REDIRECT_MAP).exit()
    if sharers > 1:
        a.label("pass").returns(XdpAction.PASS)
    return ProgramSpec("xk_sockets", a.assemble(), frags=frags)


def _counting() -> Assembler:
    """Counts packets (R9 is how many) and bytes, per CPU, so that no atomics are needed. R7 is data and R8 data_end
    after it; without its map it goes to "out"."""
    a = Assembler().mov(R6, R1)
    a.load(R7, R6, XdpMd.DATA, U32).load(R8, R6, XdpMd.DATA_END, U32)
    _look_up(a, _COUNTS, "out")
    a.load(R9, R0, 0, U64).alu(R9, "+=", 1).store(R0, 0, R9, U64)
    a.mov(R1, R8).alu(R1, "-=", R7)
    return a.load(R2, R0, 8, U64).alu(R2, "+=", R1).store(R0, 8, R2, U64)


def sink_program(*, frags: bool) -> ProgramSpec:
    """Counts (of a multi-buffer packet, the bytes of the first buffer) and drops."""
    a = _counting().label("out").returns(XdpAction.DROP)
    return ProgramSpec("xk_sink", a.assemble(), frags=frags)


def echo_program(*, frags: bool) -> ProgramSpec:
    """Counts, swaps the MAC addresses, and sends back where it came from."""
    a = _counting().mov(R2, R7).alu(R2, "+=", 14).jump_if(R2, ">", R8, "out")
    for at in (0, 2, 4):
        a.load(R3, R7, at, U16).load(R4, R7, at + 6, U16)
        a.store(R7, at, R4, U16).store(R7, at + 6, R3, U16)
    a.returns(XdpAction.TX).label("out").returns(XdpAction.DROP)
    return ProgramSpec("xk_echo", a.assemble(), frags=frags)


def live_program(number_offset: int) -> ProgramSpec:
    """Counts and sends; with `number_offset` the packet gets its number there, 32 bits in network order, from 0 on."""
    a = _counting()
    if number_offset:
        a.mov(R2, R7).alu(R2, "+=", number_offset + 4).jump_if(R2, ">", R8, "out")
        a.alu(R9, "-=", 1).big_endian(R9, 32).store(R7, number_offset, R9, U32)
    return ProgramSpec("xk_live", a.label("out").returns(XdpAction.TX).assemble())


class _Held(Closing):
    """Closes what it is made of, newest first; twice is fine."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def close(self) -> None:
        """Detach and unload."""
        self._stack.close()


class SocketProgram(_Held):
    """The program that gives packets to sockets, attached to one interface of the calling thread's namespace.

    Attributes:
        mode: where it runs.
        why: why not natively.
    """

    def __init__(self, ifindex: int, mode: BindMode, sharers: int = 1) -> None:
        with ExitStack() as undo:
            self._sharers = sharers
            entries = QUEUES * sharers
            self._sockets = undo.enter_context(Map.create(MapSpec("xk_sockets", MapType.XSKMAP, 4, 4, entries)))
            turn = undo.enter_context(Map.create(MapSpec("xk_turn", MapType.PERCPU_ARRAY, 4, 8, 1)))
            spec = sockets_program(sharers, frags=available(BpfFeature.XDP_FRAGS))
            program = undo.enter_context(Program.load(spec, {_SOCKETS: self._sockets, _TURN: turn}))
            link, self.mode, self.why = attach_best(lambda where: attach(program, ifindex, where), mode)
            undo.callback(link.close)
            super().__init__(undo.pop_all())

    def register(self, queue: int, sharer: int, socket_fd: int) -> None:
        """From now on the queue's packets, or its share of them, go to this bound socket."""
        self._sockets.set(queue * self._sharers + sharer, socket_fd)

    def unregister(self, queue: int, sharer: int) -> None:
        """No longer."""
        if not self._sockets.closed:
            self._sockets.delete(queue * self._sharers + sharer)


def admit_sending(name: str, mode: BindMode) -> SocketProgram | None:
    """A program for an interface that only sends. With zero copy some drivers refuse to send without one (i40e and
    igb: EINVAL from sendto); packets that come pass it. None where it cannot be attached, or no driver asks for it."""
    if mode not in ("auto", "zero-copy") or look(name).kind:
        return None
    try:
        return SocketProgram(look(name).index, "native")
    except AttachError:
        return None


class Counting(_Held):
    """A program that counts what it sees; with `ifindex`, attached natively where that works."""

    def __init__(self, make: Callable[..., ProgramSpec], ifindex: int | None = None) -> None:
        with ExitStack() as undo:
            spec = MapSpec("xk_counts", MapType.PERCPU_ARRAY, 4, 16, 1)
            self._counts = undo.enter_context(Map.create(spec))
            self.program = undo.enter_context(
                Program.load(make(frags=available(BpfFeature.XDP_FRAGS)), {_COUNTS: self._counts})
            )
            if ifindex is not None:
                link, _, _ = attach_best(lambda where: attach(self.program, ifindex, where), "auto")
                undo.callback(link.close)
            self._last: tuple[int, int] | None = None
            super().__init__(undo.pop_all())

    @classmethod
    def live(cls, number_offset: int = 0) -> Self:
        """Ready for `program.run_live`.

        It is attached to loopback, which is down in a namespace of ours. Otherwise the kernel would put it in and out
        of the XDP dispatcher at every call, and wait 30 ms for RCU each time (kernel/bpf/dispatcher.c).
        """
        made = cls(lambda frags: live_program(number_offset))
        try:
            link = attach(made.program, look("lo").index, XdpMode.GENERIC)
        except BaseException:
            made.close()
            raise
        made._stack.callback(link.close)
        return made

    def counts(self) -> tuple[int, int]:
        """(packets, bytes) over all CPUs; after close, as they were then."""
        if self._last is not None:
            return self._last
        values = self._counts.get_per_cpu(0) or []
        packets = sum(int.from_bytes(raw[:8], sys.byteorder) for raw in values)
        return packets, sum(int.from_bytes(raw[8:], sys.byteorder) for raw in values)

    def close(self) -> None:
        """Detach and unload."""
        self._last = self.counts()
        super().close()
