"""The rings on plain memory: the kernel's side is played by a model, and the indices start where they soon wrap."""

from __future__ import annotations

import os
from collections import deque

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from xskit.abi.xdp import PageOffset, RingFlag, RingOffsets
from xskit.jit import compiled
from xskit.memory import RecordBlock, record_view, size_of
from xskit.xsk.mapping import MappedRing
from xskit.xsk.path import rings
from xskit.xsk.path.rings import Ring, ring_at

OFFSETS = RingOffsets(producer=0, consumer=64, flags=128, descriptors=192)
WRAP = 1 << 32
ROOM, PUBLISH, AVAILABLE, RELEASE, UNCONSUMED, NEEDS_WAKEUP = range(6)
WRITE_ADDRESS, READ_ADDRESS, WRITE_DESCRIPTOR, DESCRIPTOR_ADDRESS, DESCRIPTOR_TAIL = range(6, 11)


@compiled("int64(int64, int64, int64, int64, int64, int64)")
def drive(address, operation, a, b, c, d):
    """One ring function by number: compiled once, or plain Python under NUMBA_DISABLE_JIT=1."""
    ring = ring_at(address)
    if operation == 0:
        return rings.room(ring, a)
    if operation == 1:
        rings.publish(ring, a)
    elif operation == 2:
        return rings.available(ring, a)
    elif operation == 3:
        rings.release(ring, a)
    elif operation == 4:
        return rings.unconsumed(ring)
    elif operation == 5:
        return 1 if rings.needs_wakeup(ring) else 0
    elif operation == 6:
        rings.write_address(ring, a, b)
    elif operation == 7:
        return rings.read_address(ring, a)
    elif operation == 8:
        rings.write_descriptor(ring, a, b, c, d)
    elif operation == 9:
        return rings.descriptor_address(ring, a)
    elif operation == 10:
        return rings.descriptor_tail(ring, a)
    return 0


def array_of(memory, count, kind, offset):
    return np.frombuffer(memory.view, kind, count, offset)


class RingMachine(RuleBasedStateMachine):
    """A ring in plain memory, and what lies in it according to the model."""

    page = PageOffset.FILL_RING

    def __init__(self):
        super().__init__()
        self.memory = RecordBlock(4096)
        self.record = RecordBlock(size_of(Ring))
        self.model: deque = deque()

    @initialize(size_log2=st.integers(0, 4), before_wrap=st.integers(0, 40))
    def start(self, size_log2, before_wrap):
        self.size = 1 << size_log2
        self.producer = array_of(self.memory, 1, "u4", OFFSETS.producer)
        self.consumer = array_of(self.memory, 1, "u4", OFFSETS.consumer)
        self.flags = array_of(self.memory, 1, "u4", OFFSETS.flags)
        words = 2 if self.page in (PageOffset.RX_RING, PageOffset.TX_RING) else 1
        self.entries = array_of(self.memory, self.size * words, "u8", OFFSETS.descriptors)
        self.producer[0] = self.consumer[0] = (WRAP - before_wrap) % WRAP
        self.ring = MappedRing(self.memory.view, self.page, OFFSETS, self.size, self.record.view)

    def user(self, operation, a=0, b=0, c=0, d=0):
        return drive(self.record.address, operation, a, b, c, d)

    def advance(self, index, count):
        index[0] = (int(index[0]) + count) % WRAP

    @invariant()
    def indices_agree_with_the_model(self):
        if hasattr(self, "ring"):
            assert (int(self.producer[0]) - int(self.consumer[0])) % WRAP == len(self.model)
            assert self.ring.pending() == len(self.model)

    def teardown(self):
        """Closed, it has no entries, whatever its indices say."""
        if not hasattr(self, "ring"):
            return
        self.ring.close()
        self.ring.close()
        assert self.ring.size == 0
        assert self.ring.pending() == 0
        self.producer[0] = self.consumer[0] = 0  # as in the zeros that are mapped in the place of a real ring
        self.flags[0] = 0
        assert [self.user(operation, 9) for operation in (ROOM, AVAILABLE, UNCONSUMED, NEEDS_WAKEUP)] == [0] * 4


ADDRESSES = st.integers(0, 2**63 - 1)
LENGTHS = st.integers(0, 2**32 - 1)
DESCRIPTORS = st.tuples(ADDRESSES, LENGTHS, st.integers(0, 3))


class Fill(RingMachine):
    """We produce addresses; the kernel takes them."""

    page = PageOffset.FILL_RING
    entry = ADDRESSES

    @rule(wanted=st.integers(0, 40))
    def room_is_what_the_kernel_left(self, wanted):
        assert self.user(ROOM, wanted) == min(wanted, self.size - len(self.model))

    @rule(data=st.data())
    def we_produce(self, data):
        count = self.user(ROOM, data.draw(st.integers(0, 20)))
        entries = data.draw(st.lists(self.entry, min_size=0, max_size=count))
        for number, entry in enumerate(entries):
            self.write(number, entry)
        self.user(PUBLISH, len(entries))
        self.model.extend(entries)

    def write(self, number, entry):
        self.user(WRITE_ADDRESS, number, entry)

    def entry_at(self, slot):
        return int(self.entries[slot])

    @rule(wanted=st.integers(0, 20))
    def the_kernel_consumes(self, wanted):
        for _ in range(min(wanted, len(self.model))):
            assert self.entry_at(int(self.consumer[0]) % self.size) == self.model.popleft()
            self.advance(self.consumer, 1)

    @rule()
    def unconsumed_is_what_the_kernel_left(self):
        assert self.user(UNCONSUMED) == len(self.model)

    @rule(flag=st.booleans())
    def the_kernel_says_whether_it_sleeps(self, flag):
        self.flags[0] = RingFlag.NEED_WAKEUP if flag else 0
        assert self.user(NEEDS_WAKEUP) == flag
        assert self.ring.needs_wakeup() is flag


class Tx(Fill):
    """We produce descriptors; the kernel takes them."""

    page = PageOffset.TX_RING
    entry = DESCRIPTORS

    def write(self, number, entry):
        self.user(WRITE_DESCRIPTOR, number, *entry)

    def entry_at(self, slot):
        tail = int(self.entries[2 * slot + 1])
        return int(self.entries[2 * slot]), tail & 0xFFFF_FFFF, tail >> 32


class Completion(RingMachine):
    """The kernel produces addresses; we take them."""

    page = PageOffset.COMPLETION_RING
    entry = ADDRESSES

    @rule(data=st.data())
    def the_kernel_produces(self, data):
        entries = data.draw(st.lists(self.entry, max_size=self.size - len(self.model)))
        for entry in entries:
            self.store(int(self.producer[0]) % self.size, entry)
            self.advance(self.producer, 1)
        self.model.extend(entries)

    def store(self, slot, entry):
        self.entries[slot] = entry

    def read(self, number):
        return self.user(READ_ADDRESS, number)

    @rule(wanted=st.integers(0, 40))
    def available_is_what_the_kernel_gave(self, wanted):
        assert self.user(AVAILABLE, wanted) == min(wanted, len(self.model))

    @rule(wanted=st.integers(0, 20), kept=st.integers(0, 3))
    def we_consume(self, wanted, kept):
        ready = self.user(AVAILABLE, wanted)
        assert [self.read(number) for number in range(ready)] == list(self.model)[:ready]
        taken = max(0, ready - kept)  # it may leave some for later
        self.user(RELEASE, taken)
        for _ in range(taken):
            self.model.popleft()


class Rx(Completion):
    """The kernel produces descriptors; we take them."""

    page = PageOffset.RX_RING
    entry = DESCRIPTORS

    def store(self, slot, entry):
        address, length, options = entry
        self.entries[2 * slot] = address
        self.entries[2 * slot + 1] = np.uint64(length | options << 32)

    def read(self, number):
        tail = self.user(DESCRIPTOR_TAIL, number)
        return self.user(DESCRIPTOR_ADDRESS, number), tail & 0xFFFF_FFFF, tail >> 32


SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFill, TestTx, TestCompletion, TestRx = (kind.TestCase for kind in (Fill, Tx, Completion, Rx))
for case in (TestFill, TestTx, TestCompletion, TestRx):
    case.settings = SETTINGS
del case  # or it is collected once more


@pytest.mark.parametrize("page", PageOffset)
def test_record_is_filled_in_from_the_memory(page):
    memory, record = RecordBlock(4096), RecordBlock(size_of(Ring))
    array_of(memory, 1, "u4", OFFSETS.producer)[0] = 7
    array_of(memory, 1, "u4", OFFSETS.consumer)[0] = 5
    mapped = MappedRing(memory.view, page, OFFSETS, 8, record.view)
    assert mapped.record == record.address
    assert record.address % 64 == 0
    ring = record_view(Ring, record.address, record)
    produces = page in (PageOffset.FILL_RING, PageOffset.TX_RING)
    assert (ring.local, ring.remote) == ((7, 5) if produces else (5, 7))
    assert (ring.size, ring.mask) == (8, 7)
    assert ring.entries == memory.address + OFFSETS.descriptors
    assert size_of(Ring) == 64


@pytest.mark.parametrize("page", PageOffset)
def test_entries_are_the_ring_itself(page):
    memory, record = RecordBlock(4096), RecordBlock(size_of(Ring))
    ring = MappedRing(memory.view, page, OFFSETS, 8, record.view)
    words = array_of(memory, 16, "u8", OFFSETS.descriptors)
    words[:] = range(1, 17)
    if page in (PageOffset.RX_RING, PageOffset.TX_RING):
        assert ring.entries.tolist() == [(at, at + 1, 0) for at in range(1, 17, 2)]
    else:
        assert ring.entries.tolist() == list(range(1, 9))
    if page in (PageOffset.FILL_RING, PageOffset.TX_RING):
        ring.entries[1] = ring.entries[0]
        assert ring.entries[1] == ring.entries[0]
    else:
        with pytest.raises(ValueError, match="read-only"):
            ring.entries[1] = ring.entries[0]
        with pytest.raises(ValueError, match="WRITEABLE"):
            ring.entries.flags.writeable = True


def test_a_ring_that_is_closed_in_the_middle_of_a_call_gives_nothing_to_write_to():
    memory, record = RecordBlock(4096), RecordBlock(size_of(Ring))
    ring = MappedRing(memory.view, PageOffset.FILL_RING, OFFSETS, 8, record.view)
    assert drive(ring.record, ROOM, 5, 0, 0, 0) == 5
    ring.close()
    drive(ring.record, WRITE_ADDRESS, 4, 4096, 0, 0)
    drive(ring.record, PUBLISH, 5, 0, 0, 0)
    assert drive(ring.record, ROOM, 5, 0, 0, 0) <= 0


def test_a_forked_child_finds_rings_without_entries_and_its_parent_keeps_them():
    memory, record = RecordBlock(4096), RecordBlock(size_of(Ring))
    ring = MappedRing(memory.view, PageOffset.RX_RING, OFFSETS, 8, record.view)
    array_of(memory, 1, "u4", OFFSETS.producer)[0] = 3
    if (child := os.fork()) == 0:
        array_of(memory, 1, "u4", OFFSETS.producer)[0] = 0  # zeros, in a real ring
        os._exit(ring.size + drive(ring.record, AVAILABLE, 8, 0, 0, 0))
    assert os.waitpid(child, 0)[1] == 0
    assert (ring.size, drive(ring.record, AVAILABLE, 8, 0, 0, 0)) == (8, 3)


@pytest.mark.parametrize("page", PageOffset)
def test_a_ring_never_shows_more_than_it_has_room_for(page):
    memory, record = RecordBlock(4096), RecordBlock(size_of(Ring))
    ring = MappedRing(memory.view, page, OFFSETS, 8, record.view)
    array_of(memory, 1, "u4", OFFSETS.consumer)[0] = 1
    assert ring.pending() == 8
