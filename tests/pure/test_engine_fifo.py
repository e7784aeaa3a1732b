"""The FIFO against a list."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.pure.support_engine import (
    FIFO_COUNT,
    FIFO_DROP,
    FIFO_LOOK,
    FIFO_PACKET,
    FIFO_PUSH,
    FIFO_TIME,
    fifo_call,
)
from xskit.engine.fifo import Fifo
from xskit.engine.packets import INFINITE_NS
from xskit.engine.sizes import ENTRY_BYTES, capacity_for
from xskit.memory import Region, record_view, size_of

PACKETS = 7
RECORD_BYTES = (size_of(Fifo) + 63) // 64 * 64


@pytest.mark.parametrize(("packets", "entries"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 8), (4096, 4096), (4097, 8192)])
def test_there_is_room_for_every_packet(packets: int, entries: int) -> None:
    assert capacity_for(packets) == entries


class AgainstAList(RuleBasedStateMachine):
    """Push, look and drop, with indices that have already run a long way round."""

    def __init__(self) -> None:
        super().__init__()
        entries = capacity_for(PACKETS)
        self.memory = Region(RECORD_BYTES + entries * ENTRY_BYTES)
        self.view = record_view(Fifo, self.memory.address)
        self.view.entries, self.view.mask = self.memory.address + RECORD_BYTES, entries - 1
        self.model: list[tuple[int, int, int]] = []
        self.time_ns = 0

    @initialize(turns=st.integers(0, 1 << 40))
    def begin(self, turns: int) -> None:
        self.view.head = self.view.tail = turns

    def call(self, what: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        return fifo_call(what, self.memory.address, a, b, c)

    @precondition(lambda self: len(self.model) < PACKETS)
    @rule(later_ns=st.integers(0, 1 << 50), handle=st.integers(0, 0xFFFF_FFFE), length=st.integers(0, 0x7FFF_FFFF))
    def push(self, later_ns: int, handle: int, length: int) -> None:
        self.time_ns += later_ns
        self.call(FIFO_PUSH, self.time_ns, handle, length)
        self.model.append((self.time_ns, handle, length))

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        time_ns, handle, length = self.model.pop(0)
        assert self.call(FIFO_TIME) == time_ns
        assert self.call(FIFO_PACKET) == handle | length << 32
        self.call(FIFO_DROP)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_inside(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model) - 1))
        _, handle, length = self.model[place]
        assert self.call(FIFO_LOOK, self.view.head + place) == handle | length << 32

    @invariant()
    def same_number(self) -> None:
        assert self.call(FIFO_COUNT) == len(self.model)

    @invariant()
    def same_time(self) -> None:
        assert self.call(FIFO_TIME) == (self.model[0][0] if self.model else INFINITE_NS)

    def teardown(self) -> None:
        self.memory.close()


TestAgainstAList = AgainstAList.TestCase
