"""A kernel that does with the four rings what it likes: no frame is lost or doubled, and the books conserve packets."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.pure.support_kernel import HEADROOM_BYTES
from tests.pure.support_path import PlainPath
from xskit.xsk.path.books import TX_REFUSED
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import OFFSET_SHIFT
from xskit.xsk.path.rings import PACKET_CONTINUES

OUTSIDE = st.sampled_from([-1, -(1 << 40), 1 << 40, (1 << 47) - 1, (1 << 63) - 1])
CONTINUES = PACKET_CONTINUES << 32


class Kernel(RuleBasedStateMachine):
    """Receives, sends, refuses and completes in portions of any size; names frames that it does not have, loses some.

    The process receives, keeps, drops, sends and reaps in portions of any size, too. Two queues, one TX.
    """

    @initialize(
        frames=st.integers(4, 20),
        entries=st.sampled_from([2, 4, 16]),
        shape=st.sampled_from([(2048, False), (2048, True), (3000, True)]),
        told_late=st.booleans(),
    )
    def begin(self, frames, entries, shape, told_late):
        self.frame_bytes, self.unaligned = shape
        self.made = PlainPath(
            frames=2 * frames, entries=entries, queues=2, frame_bytes=self.frame_bytes, unaligned=self.unaligned
        )
        self.made.transmitter.told_late = int(told_late)
        self.coming: list[list[bytes]] = [[], []]
        self.held: list[tuple[int, bytes]] = []
        self.sending: list[bytes] = []
        self.number = self.lost_in_fill = self.lost_in_tx = self.refused = 0
        self.strays_received, self.strays_completed, self.violations = [0, 0], 0, 0

    # -- the kernel, on RX and FILL --------------------------------------------------------------------------------

    @rule(number=st.integers(0, 1), length=st.one_of(st.integers(14, 1500), st.integers(14, 6000)), data=st.data())
    def receive_a_packet(self, number, length, data):
        self.number += 1
        packet = random.Random(self.number).randbytes(length)
        spans = data.draw(st.lists(st.integers(1, 3), max_size=2))
        if self.made.queues[number].receive(packet, spans=[] if sum(spans) >= length else spans):
            self.coming[number].append(packet)

    @rule(number=st.integers(0, 1), pieces=st.integers(1, 4), data=st.data(), outside=OUTSIDE, beyond=st.booleans())
    def receive_a_packet_with_a_stray_piece(self, number, pieces, data, outside, beyond):
        queue = self.made.queues[number]
        needed = pieces if beyond else pieces - 1
        if queue.rx.room < pieces or queue.fill.filled < needed:
            return
        place = data.draw(st.integers(0, pieces - 1))
        for piece in range(pieces):
            more = CONTINUES if piece < pieces - 1 else 0
            if piece == place and not beyond:
                queue.rx.put(outside, 60 | more)
                continue
            headroom = HEADROOM_BYTES << OFFSET_SHIFT if self.unaligned else HEADROOM_BYTES
            length = self.frame_bytes if piece == place else 60
            queue.rx.put(queue.take_frame() + headroom, length | more)
        self.strays_received[number] += pieces - place

    @rule(number=st.integers(0, 1), data=st.data())
    def receive_into_a_frame_that_it_does_not_have(self, number, data):
        queue, owners = self.made.queues[number], self.made.table.owners().tolist()
        others = [frame for frame, owner in enumerate(owners) if owner != Owner.FILL]
        if others and queue.rx.room:
            queue.rx.put(data.draw(st.sampled_from(others)) * self.frame_bytes, 60)
            self.strays_received[number] += 1
            self.violations += 1
            self.come(number, 64)  # now: later it may have the frame

    @rule(number=st.integers(0, 1))
    def lose_a_frame(self, number):
        if self.made.queues[number].fill.filled:
            self.made.queues[number].take_frame()
            self.lost_in_fill += 1

    # -- the process -----------------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 1), most=st.integers(0, 8))
    def come(self, number, most):
        for packet in self.made.receive(most, number):
            data = self.made.data(packet.handle)
            assert data == self.coming[number].pop(0)
            assert packet.length == len(data)
            self.held.append((packet.handle, data))

    @rule(number=st.integers(0, 1), wanted=st.integers(0, 16))
    def refill(self, number, wanted):
        self.made.receiver(number).target = min(wanted, self.made.queues[number].fill.size)
        self.made.refill(number)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data):
        handle, packet = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        assert self.made.data(handle) == packet
        self.made.give(handle)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), most=st.integers(1, 5))
    def send(self, data, most):
        tx = self.made.queues[0].tx
        free = tx.size - len(tx.shown())
        handles = []
        for _ in range(min(most, len(self.held))):
            place = data.draw(st.integers(0, len(self.held) - 1))
            handle, packet = self.held[place]
            if len(self.made.frames_of(handle)) > free:
                break
            free -= len(self.made.frames_of(handle))
            handles.append(handle)
            self.sending.append(packet)
            del self.held[place]
        self.made.send(*handles)

    @rule(now_ns=st.one_of(st.none(), st.integers(1, 10)))
    def reap(self, now_ns):
        if now_ns is None:
            self.made.reap()
        else:
            self.made.collect(now_ns)

    # -- the kernel, on TX and COMPLETION --------------------------------------------------------------------------

    @rule(budget=st.integers(1, 8), refuse=st.booleans())
    def take_from_tx(self, budget, refuse):
        """A refused packet is the last that a call of sendto takes."""
        queue = self.made.queues[0]
        for _ in range(budget):
            packets = queue.send(1)
            for packet in packets:
                assert packet == self.sending.pop(0)
            if packets and refuse:
                self.made.mark_refused()
                self.refused += 1
                return

    @rule(most=st.integers(1, 8))
    def complete(self, most):
        self.made.queues[0].complete(most)

    @rule(outside=OUTSIDE)
    def complete_what_is_no_frame(self, outside):
        if self.made.queues[0].completion.room:
            self.made.queues[0].completion.put(outside)
            self.strays_completed += 1

    @rule(data=st.data())
    def complete_a_frame_that_it_does_not_have(self, data):
        """Only where it is reaped at once: later it may have the frame."""
        made, queue = self.made, self.made.queues[0]
        owners = made.table.owners().tolist()
        others = [frame for frame, owner in enumerate(owners) if owner != Owner.TX]
        before = len(queue.completion.shown())
        if others and queue.completion.room and made.transmitter.outstanding > before:
            queue.completion.put(data.draw(st.sampled_from(others)) * self.frame_bytes)
            self.strays_completed += 1
            self.violations += 1
            made.reap()

    @precondition(lambda self: self.made.queues[0].sending)
    @rule()
    def lose_a_completion(self):
        self.made.queues[0].sending.pop(0)
        self.lost_in_tx += 1

    # -- what must always hold -------------------------------------------------------------------------------------

    @invariant()
    def every_frame_is_in_one_place_and_packets_are_conserved(self):
        if hasattr(self, "made"):
            self.made.check(lost=self.lost_in_fill + self.lost_in_tx)
            self.made.check_books()

    def teardown(self):
        if not hasattr(self, "made"):
            return
        made, queue = self.made, self.made.queues[0]
        for number in (0, 1):
            self.come(number, 64)
            assert self.coming[number] == []
        while self.held:
            self.made.give(self.held.pop()[0])
        while made.transmitter.outstanding > self.lost_in_tx:
            self.take_from_tx(64, refuse=False)
            queue.complete()
            made.reap()
        while queue.completion.shown() and self.lost_in_tx:  # what is left is not awaited, unless a frame still is
            made.reap()
        self.every_frame_is_in_one_place_and_packets_are_conserved()
        assert self.sending == []
        assert [made.receiver(number).strays for number in (0, 1)] == self.strays_received
        assert made.transmitter.strays == self.strays_completed - len(queue.completion.shown())
        assert sum(pool.view.violations for pool in made.pools) == self.violations
        owners = made.table.owners().tolist()
        assert owners.count(Owner.HELD) == 0
        assert owners.count(Owner.TX) == self.lost_in_tx
        assert sum(pool.free for pool in made.pools) == owners.count(Owner.FREE)
        if not self.lost_in_tx:
            assert sum(made.drops(pool.books)[TX_REFUSED][0] for pool in made.pools) == self.refused
            assert made.transmitter.outstanding_packets == made.transmitter.refusals == 0
            assert all(pool.books.in_flight == pool.books.in_flight_frames == 0 for pool in made.pools)
        made.close()


TestKernel = Kernel.TestCase
TestKernel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
