"""Rings and batches on one socket in any order, with right and wrong entries, against a model of where frames are."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.pure.support_rings import CONTINUES, PlainSocket
from xskit.errors import XskitError
from xskit.xsk.mapping import DESCRIPTOR
from xskit.xsk.path.owner import Owner

FRAMES, SIZE, MOST_FRAMES = 24, 2048, 4
COUNTS = st.integers(0, 9)
OFFSETS = st.integers(0, SIZE - 1)

MINE, PACKET = "mine", "packet"  # of one frame, or of several
FREE, FILL, TX = Owner.FREE, Owner.FILL, Owner.TX


@st.composite
def addresses(draw, machine):
    """Of some frames: mostly of the user's, each once."""
    if draw(st.integers(0, 3)):
        mine = [frame for frame, place in enumerate(machine.places) if place == MINE]
        frames = draw(st.permutations(mine))[: draw(COUNTS)]
    else:
        frames = draw(st.lists(st.integers(-1, FRAMES), max_size=6))
    return [(frame * SIZE + draw(OFFSETS)) % (1 << 64) for frame in frames]


class Levels(RuleBasedStateMachine):
    @initialize(size_log2=st.integers(0, 4), before_wrap=st.integers(0, 20))
    def start(self, size_log2, before_wrap):
        self.sock = PlainSocket(FRAMES, 1 << size_log2, before_wrap=before_wrap, most_frames=MOST_FRAMES)
        self.places = [FREE] * FRAMES
        self.fill, self.receiving = deque(), []  # in the ring; the kernel's
        self.rx, self.head, self.broken = deque(), [], 0
        self.tx, self.sending, self.completion = deque(), [], deque()
        self.packets = []
        self.packet_of = {}  # the frame that ends a packet in TX: its length
        self.sent = Counter()

    def go(self, frames, place):
        for frame in frames:
            self.places[frame] = place

    def mine(self, entries):
        """Whether the user may hand on these addresses."""
        frames = [address // SIZE for address in entries]
        return len(set(frames)) == len(frames) and all(
            frame < FRAMES and self.places[frame] == MINE for frame in frames
        )

    # --- frames -------------------------------------------------------------------------------------------------

    @rule(count=st.integers(0, 12))
    def take(self, count):
        taken = self.sock.take(count)
        assert len(taken) == min(count, self.places.count(FREE))
        assert all(self.places[address // SIZE] == FREE for address in taken)
        self.go([address // SIZE for address in taken], MINE)

    @rule(data=st.data())
    def give(self, data):
        entries = data.draw(addresses(self))
        self.hand_on(self.mine(entries), lambda: self.sock.give(np.array(entries, np.uint64)))
        if self.mine(entries):
            self.go([address // SIZE for address in entries], FREE)

    def hand_on(self, right, use):
        """What is right is done; what is wrong is refused and changes nothing."""
        if right:
            return use()
        before = self.sock.state()
        with pytest.raises(XskitError):
            use()
        assert self.sock.state() == before
        return None

    # --- FILL and RX --------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def fill_by_hand(self, data):
        entries = data.draw(addresses(self))
        array = self.sock.fill.reserve(len(entries))
        entries = entries[: len(array)]
        array[:] = np.array(entries, np.uint64)
        right = self.mine(entries)
        self.hand_on(right, lambda: self.sock.fill.submit(len(entries)))
        if right:
            self.fill.extend(entries)
            self.go([address // SIZE for address in entries], FILL)

    @rule()
    def fill_by_itself(self):
        before = self.sock.receiver.filled
        self.sock.refill()
        entries = self.sock.kernel_fill.addresses()[len(self.fill) :]
        assert len(entries) == max(0, min(4 - before, self.sock.fill.free + len(entries), self.places.count(FREE)))
        self.fill.extend(entries)
        self.go([address // SIZE for address in entries], FILL)

    @rule(count=COUNTS)
    def the_kernel_takes_from_fill(self, count):
        taken = self.sock.kernel_fill.take(count)
        assert taken == [self.fill.popleft() for _ in range(len(taken))]
        self.receiving += [address // SIZE * SIZE + 256 for address in taken]

    @rule(count=COUNTS, data=st.data())
    def packets_come(self, count, data):
        count = min(count, len(self.receiving), self.sock.kernel_rx.size - len(self.rx))
        kinds = st.tuples(st.integers(1, SIZE - 256), st.integers(0, 3).map(lambda kind: CONTINUES * (kind == 0)))
        entries = [(self.receiving.pop(), *data.draw(kinds)) for _ in range(count)]
        self.sock.kernel_rx.put(entries)
        self.rx.extend(entries)

    @rule(limit=COUNTS, left=st.integers(0, 2))
    def receive_by_hand(self, limit, left):
        seen = self.sock.rx.peek(limit).tolist()
        assert seen == list(self.rx)[: len(seen)]
        assert seen or not (limit and self.rx)
        count = max(0, len(seen) - left)
        assert self.sock.rx.release(count) == count
        if count:
            self.go(self.head, FREE)
            self.head = []
        for _ in range(count):
            address, _, self.broken = self.rx.popleft()
            self.go([address // SIZE], MINE)

    @rule(limit=COUNTS)
    def receive_a_batch(self, limit):
        expected = []
        for _ in range(min(limit, len(self.rx))):
            address, _, continues = self.rx.popleft()
            frame = address // SIZE
            if self.broken:
                self.go([frame], FREE)
                self.broken = continues
                continue
            self.head.append(frame)
            self.go([frame], PACKET)
            if not continues:
                expected.append(self.head)
                self.go(self.head, MINE if len(self.head) == 1 else PACKET)
                self.head = []
        assert [handle for _, handle, _ in self.sock.receive(limit)] == [frames[0] for frames in expected]
        self.packets += [frames for frames in expected if len(frames) > 1]

    @rule(which=st.integers(0, 9))
    def release_a_packet(self, which):
        if self.packets:
            frames = self.packets.pop(which % len(self.packets))
            assert self.sock.release_packet(frames[0]) == len(frames)
            self.go(frames, FREE)

    # --- TX and COMPLETION --------------------------------------------------------------------------------------

    @rule(data=st.data())
    def send_by_hand(self, data):
        kinds = st.tuples(
            st.integers(0, 15).map(lambda length: length * 19), st.integers(0, 2).map(lambda kind: kind == 0)
        )
        entries = [(address, *data.draw(kinds)) for address in data.draw(addresses(self))]
        array = self.sock.tx.reserve(len(entries))
        entries = entries[: len(array)]
        if entries and data.draw(st.booleans()):
            entries[-1] = (*entries[-1][:2], 0)
        array[:] = np.array(entries, DESCRIPTOR)
        packets, right = [[]], self.mine([address for address, _, _ in entries])
        for address, length, continues in entries:
            packets[-1].append((address, length))
            if not continues:
                packets.append([])
            right &= 0 < length <= SIZE - address % SIZE
        right &= not packets.pop() and all(len(packet) <= MOST_FRAMES for packet in packets)
        done = self.hand_on(right, lambda: self.sock.tx.submit(len(entries)))
        if right:
            assert done == len(packets)
            self.tx.extend(address for address, _, _ in entries)
            self.go([address // SIZE for address, _, _ in entries], TX)
            for packet in packets:
                self.packet_of[packet[-1][0] // SIZE] = sum(length for _, length in packet)

    @rule(count=COUNTS)
    def the_kernel_takes_from_tx(self, count):
        taken = [address for address, _, _ in self.sock.kernel_tx.take(count)]
        assert taken == [self.tx.popleft() for _ in range(len(taken))]
        self.sending += taken

    @rule(count=COUNTS, data=st.data())
    def the_kernel_completes(self, count, data):
        count = min(count, self.sock.kernel_completion.size - len(self.completion))
        done = data.draw(st.permutations(self.sending))[:count]
        self.sending = [address for address in self.sending if address not in done]
        self.sock.kernel_completion.put(done)
        self.completion.extend(done)

    @rule(limit=COUNTS, left=st.integers(0, 2))
    def complete_by_hand(self, limit, left):
        seen = self.sock.completion.peek(limit).tolist()
        assert seen == list(self.completion)[: len(seen)]
        assert seen or not (limit and self.completion)
        count = max(0, len(seen) - left)
        assert self.sock.completion.release(count) == count
        self.completed(count, MINE)

    @rule()
    def complete_by_itself(self):
        assert self.sock.reap() == len(self.completion)
        self.completed(len(self.completion), FREE)

    def completed(self, count, place):
        for _ in range(count):
            frame = self.completion.popleft() // SIZE
            self.go([frame], place)
            if frame in self.packet_of:
                self.sent["packets"] += 1
                self.sent["bytes"] += self.packet_of.pop(frame)

    def teardown(self):
        if hasattr(self, "sock"):
            self.sock.close()

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def every_frame_is_where_the_model_says(self):
        if not hasattr(self, "sock"):
            return
        said = [Owner.HELD if place in (MINE, PACKET) else place for place in self.places]
        assert self.sock.owners() == said
        self.sock.check()
        assert self.sock.receiver.filled == said.count(FILL)
        assert (self.sock.rx.available, self.sock.completion.available) == (len(self.rx), len(self.completion))
        size = self.sock.kernel_fill.size
        assert (self.sock.fill.free, self.sock.tx.free) == (size - len(self.fill), size - len(self.tx))
        sender, books = self.sock.transmitter, self.sock.pool.books
        assert sender.outstanding == books.in_flight_frames == said.count(TX)
        assert sender.outstanding_packets == books.in_flight == len(self.packet_of)
        assert books.in_flight_bytes == sum(self.packet_of.values())
        assert (books.sent, books.sent_bytes) == (self.sent["packets"], self.sent["bytes"])


TestLevels = Levels.TestCase
TestLevels.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
