"""What Python calls of the data path, on ordinary memory: batches of rows in and out, and where every frame is."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from tests.pure.support_kernel import FRAME_BYTES, HEADROOM_BYTES
from tests.pure.support_path import PlainPath
from xskit.memory import Region, layout, record_view, size_of
from xskit.xsk.path.ending import end_receiving, end_sending, hand_over_filled, hand_over_sent, take_back
from xskit.xsk.path.entry import (
    CLOSED,
    GONE,
    ROW_BYTES,
    Inbox,
    Outbox,
    PacketRow,
    draft_batch,
    draft_rows,
    drive,
    end_rows,
    gather,
    kick_once,
    prepare,
    submit_rows,
    take_batch,
    wake_receiver,
)
from xskit.xsk.path.lines import NIL
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.receive import ARRIVAL_BYTES
from xskit.xsk.path.survey import Survey

PACKET = bytes(range(100))
LONG = bytes(n % 251 for n in range(5000))
STAMP_NS = 1_234_567_890_123
ROOM = 8
OFFSET, CAPACITY = 256, 1700


class Sides:
    """The receiving and the sending side of a socket on a PlainPath."""

    def __init__(self, made: PlainPath) -> None:
        self.made = made
        self.region = Region(4096 + ROOM * (ROW_BYTES + ARRIVAL_BYTES + 8))
        self.inbox, self.outbox = self.region.address, self.region.address + 512
        self.received, self._mine = self.region.address + 1024, self.region.address + 2048
        inbox, outbox = record_view(Inbox, self.inbox), record_view(Outbox, self.outbox)
        inbox.receiver, inbox.rows, inbox.arrivals = made._records.address, self.received, self.region.address + 3072
        outbox.transmitter, outbox.pool, outbox.drafts = made._sender, made.pools[0].address, self.region.address + 4096
        outbox.offset, outbox.capacity = OFFSET, CAPACITY
        inbox.room = outbox.room = ROOM
        inbox.open = outbox.open = 1

    def take(self, limit: int = ROOM) -> np.ndarray:
        """A batch; its rows are copies."""
        count = take_batch(self.inbox, limit, 0)
        return self.region.array(ROOM, layout(PacketRow), 1024)[: max(count, 0)].copy()

    def rows(self, rows: Sequence | np.ndarray) -> int:
        """Rows where compiled code finds them."""
        place = self.region.array(ROOM, layout(PacketRow), 2048)
        for number, row in enumerate(rows):
            place[number] = row
        return self._mine

    def drafts(self, lengths: Sequence[int]) -> np.ndarray:
        """Rows of packets to be written, filled in as far as there are frames; and how far that is."""
        rows = np.zeros(len(lengths), layout(PacketRow))
        rows["length"], rows["handle"] = lengths, NIL
        made = draft_rows(self.outbox, self.rows(rows), len(rows))
        return self.region.array(ROOM, layout(PacketRow), 2048)[:made].copy()

    def submit(self, rows: np.ndarray, most_frames: int = 18) -> int:
        return submit_rows(self.outbox, self.rows(rows), len(rows), most_frames)

    def write(self, row: np.void, data: bytes) -> None:
        """The bytes of a packet, into its frames."""
        for frame in self.made.frames_of(int(row["handle"])):
            line = self.made.line(frame)
            self.made.memory.array(line.span, np.uint8, line.address - self.made.memory.address)[:] = list(
                data[: line.span]
            )
            data = data[line.span :]


@contextmanager
def sides(*, checked: bool = True, **options) -> Iterator[Sides]:
    made = PlainPath(**options)
    both = Sides(made)
    try:
        yield both
        if checked:
            made.check()
    finally:
        both.region.close()
        made.close()


# --- receiving --------------------------------------------------------------------------------------------------


def test_a_batch_says_of_each_packet_where_it_lies_and_when_it_came() -> None:
    with sides() as both:
        made = both.made
        assert len(both.take(0)) == 0
        assert made.receiver().filled == 16, "the first call fills FILL"
        made.queues[0].receive(PACKET, stamp_ns=STAMP_NS)
        made.queues[0].receive(LONG)
        short, long = both.take()
        assert (short["address"], short["length"], short["frames"], short["arrived_ns"]) == (
            HEADROOM_BYTES, 100, 1, STAMP_NS,
        )  # fmt: skip
        assert (long["length"], long["frames"], long["arrived_ns"]) == (5000, 3, 0)
        assert [made.data(int(row["handle"])) for row in (short, long)] == [PACKET, LONG]
        assert [made.line(int(row["handle"])).number for row in (short, long)] == [short["number"], long["number"]]


def test_a_batch_is_of_packets_however_many_descriptors_they_have() -> None:
    with sides(frames=32, entries=32) as both:
        both.take(0)
        for _ in range(5):
            both.made.queues[0].receive(LONG)
        assert [row["length"] for row in both.take(4)] == [5000] * 4
        assert [row["length"] for row in both.take(4)] == [5000]


def test_a_batch_ends_with_the_next_one_but_for_what_is_kept() -> None:
    with sides() as both:
        made = both.made
        both.take(0)
        for _ in range(3):
            made.queues[0].receive(PACKET)
        first = both.take()
        assert end_rows(made.table.memory, both.rows(first[1:2]), 1, 1) == 0
        assert end_rows(made.table.memory, both.rows(first[2:]), 1, 0) == 0
        assert [made.owner(frame) for frame in range(3)] == [Owner.HELD, Owner.HELD, Owner.FREE]
        both.take(0)
        assert [made.owner(frame) for frame in range(3)] == [Owner.FILL, Owner.HELD, Owner.FILL]
        assert end_rows(made.table.memory, both.rows(first), 3, 0) == 2, "two had gone"
        assert made.owner(1) == Owner.FREE


@pytest.mark.parametrize("keep", [0, 1])
def test_a_row_of_a_packet_that_has_gone_does_nothing_whatever_it_says(keep) -> None:
    with sides() as both:
        both.take(0)
        both.made.queues[0].receive(PACKET)
        rows = both.take()
        wrong = np.repeat(rows, 4)
        wrong["number"][0] += 1
        wrong["handle"][1:] = 16, NIL, 1 << 31
        assert end_rows(both.made.table.memory, both.rows(wrong), 4, keep) == 4
        assert both.made.owner(0) == Owner.HELD
        assert both.made.line(0).state == 0


def test_a_batch_is_waited_for_until_a_packet_or_something_else_comes() -> None:
    with sides(frames=20) as both, select.epoll() as epoll:
        inbox, made = record_view(Inbox, both.inbox), both.made
        inbox.epoll, inbox.event = epoll.fileno(), both.region.address + 900
        both.take(0)
        assert take_batch(both.inbox, ROOM, 1) == 0, "nothing came"
        epoll.register(made.no_socket, select.EPOLLIN)

        def arrive() -> None:
            made.queues[0].receive(PACKET)
            os.eventfd_write(made.no_socket, 1)

        sender = threading.Timer(0.01, arrive)
        sender.start()
        count = take_batch(both.inbox, ROOM, 60_000)
        sender.join()
        assert count == 1
        assert take_batch(both.inbox, ROOM, 60_000) == 0, "there is something else to do"


def test_where_not_a_single_frame_is_free_no_batch_is_waited_for() -> None:
    with sides() as both:
        both.take(0)
        inbox = record_view(Inbox, both.inbox)
        inbox.epoll = -1
        assert both.made.pools[0].free == 0
        assert take_batch(both.inbox, ROOM, 1 << 30) == 0


def test_the_kernel_is_called_where_it_asks() -> None:
    with sides() as both:
        assert wake_receiver(both.inbox, 0) == 0
        assert wake_receiver(both.inbox, 1) == errno.ENOTSOCK
        both.made.queues[0].fill.need_wakeup(True)
        both.take(0)
        assert both.made.receiver().kicks == 2


# --- sending ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "frames"), [(1, 1), (CAPACITY, 1), (CAPACITY + 1, 2), (4000, 3)])
def test_packets_are_drafted_written_and_sent(length, frames) -> None:
    with sides(frames=8) as both:
        made, data = both.made, LONG[:length]
        (row,) = rows = both.drafts([length])
        assert (row["frames"], row["address"] % FRAME_BYTES) == (frames, OFFSET)
        both.write(row, data)
        assert both.submit(rows) == 1
        assert made.queues[0].send() == [data]
        made.queues[0].complete()
        assert drive(both.outbox) == 0
        assert made.pools[0].free == 8


def test_what_is_kept_or_received_is_sent_like_what_is_drafted() -> None:
    with sides() as both:
        both.take(0)
        both.made.queues[0].receive(LONG)
        rows = both.take()
        assert both.submit(rows) == 1
        assert both.made.queues[0].send() == [LONG]
        assert len(both.take(0)) == 0, "the batch ends, and does not end what is being sent"


def test_drafts_that_were_not_sent_go_home() -> None:
    with sides(frames=8) as both:
        assert [len(both.drafts([100, 100, 2000])) for _ in range(4)] == [3] * 4
        assert both.made.pools[0].free == 4
        assert prepare(both.outbox) == 16
        assert both.made.pools[0].free == 8


@pytest.mark.parametrize(("lengths", "enough"), [([3000] * 4, 4), ([3000] * 5, 4), ([100, 8 * CAPACITY], 1)])
def test_drafts_are_as_many_as_there_are_frames_for(lengths, enough) -> None:
    with sides(frames=8) as both:
        assert len(both.drafts(lengths)) == enough
        assert both.made.pools[0].free == 8 - sum(-(-length // CAPACITY) for length in lengths[:enough])


def test_drafts_of_a_pool_stay_until_somebody_ends_them() -> None:
    with sides(frames=8) as both:
        made = both.made
        rows = np.zeros(2, layout(PacketRow))
        rows["length"] = 100, 4000
        place = both.rows(rows)
        assert draft_batch(made.pools[0].address, OFFSET, CAPACITY, place, 2) == 2
        prepare(both.outbox)
        assert made.pools[0].free == 4
        assert end_rows(made.table.memory, place, 2, 0) == 0
        assert made.pools[0].free == 8


def test_packets_go_into_tx_as_far_as_there_is_room() -> None:
    with sides(frames=16, entries=4) as both:
        rows = both.drafts([100, 100, 4000, 100])
        assert both.submit(rows) == 2
        assert both.submit(rows[2:]) == 0
        both.made.queues[0].send()
        both.made.queues[0].complete()
        assert both.submit(rows[2:]) == 2
        assert [len(data) for data in both.made.queues[0].send()] == [4000, 100]


@pytest.mark.parametrize(("wrong", "value"), [("number", 99), ("handle", 16), ("handle", NIL), ("handle", 7)])
def test_where_a_packet_has_gone_those_before_it_are_sent(wrong, value) -> None:
    with sides() as both:
        rows = both.drafts([100, 100, 100])
        rows[1][wrong] = value
        assert both.submit(rows) == GONE - 1
        assert [len(data) for data in both.made.queues[0].send()] == [100]


def test_a_packet_that_stands_in_a_batch_twice_is_sent_once() -> None:
    with sides() as both:
        (row,) = both.drafts([100])
        assert both.submit(np.array([row, row])) == GONE - 1
        assert len(both.made.queues[0].send()) == 1


def test_a_packet_of_too_many_frames_is_not_sent() -> None:
    with sides() as both:
        assert both.submit(both.drafts([4000]), most_frames=2) == GONE
        assert both.made.queues[0].tx.filled == 0


def test_while_the_port_cannot_send_nothing_more_is_taken() -> None:
    """The file is no socket, so each call fails."""
    with sides() as both:
        rows = both.drafts([100, 100])
        both.made.queues[0].tx.need_wakeup(True)
        assert both.submit(rows[:1]) == 1
        assert both.made.transmitter.failure == errno.ENOTSOCK
        assert both.submit(rows[1:]) == 0
        kicks = both.made.transmitter.kicks
        assert kick_once(both.outbox) == 0
        assert both.made.transmitter.kicks == kicks + 1


# --- bytes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "size"), [(0, 4), (98, 4), (1790, 8), (3583, 3), (4990, 20), (6000, 8), (5, 0)])
def test_bytes_are_gathered_across_frames_with_zeros_behind_the_end(offset, size) -> None:
    with sides() as both, Region(4096) as target:
        both.take(0)
        for data in (PACKET, LONG):
            both.made.queues[0].receive(data)
        place = both.rows(both.take())
        target.array(4096, np.uint8)[:] = 0xEE
        assert gather(both.made.table.memory, place, 2, offset, size, target.address) == 0
        expected = b"".join(data[offset : offset + size].ljust(size, b"\0") for data in (PACKET, LONG))
        assert target.array(2 * size + 1, np.uint8).tobytes() == expected + b"\xee"


@pytest.mark.parametrize(("wrong", "value"), [("number", 99), ("handle", 16), ("handle", NIL)])
def test_no_bytes_are_gathered_of_a_packet_that_has_gone(wrong, value) -> None:
    with sides() as both, Region(4096) as target:
        both.take(0)
        for _ in range(2):
            both.made.queues[0].receive(PACKET)
        rows = both.take()
        rows[1][wrong] = value
        assert gather(both.made.table.memory, both.rows(rows), 2, 0, 4, target.address) == GONE - 1


# --- the end ----------------------------------------------------------------------------------------------------


def test_a_closed_side_says_so() -> None:
    with sides() as both:
        record_view(Inbox, both.inbox).open = record_view(Outbox, both.outbox).open = 0
        place = both.rows(np.zeros(1, layout(PacketRow)))
        assert take_batch(both.inbox, 1, 0) == wake_receiver(both.inbox, 1) == CLOSED
        assert draft_rows(both.outbox, place, 1) == submit_rows(both.outbox, place, 1, 1) == CLOSED
        assert prepare(both.outbox) == drive(both.outbox) == kick_once(both.outbox) == CLOSED


@pytest.mark.parametrize("field", [None, "zero_copy", "told_late"])
def test_a_side_that_ends_takes_home_what_it_can_and_the_rest_when_the_kernel_has_let_go(field: str | None) -> None:
    with sides(queues=2, frames=32, entries=8, checked=False) as both:
        made = both.made
        both.take(0)
        made.refill(1)
        made.queues[0].receive(PACKET)
        made.queues[0].receive(PACKET)
        rows = both.take()
        assert both.submit(rows[:1]) == 1
        made.queues[1].receive(PACKET)
        (other,) = made.receive(number=1)
        made.line(other.handle).owner, made.line(other.handle).next = Owner.TX, 77
        made.queues[0].receive(LONG)
        made.receive(most=1)  # the first of its three frames
        if field:
            setattr(made.transmitter, field, 1)  # TX does not say what the kernel has taken
        left = int(field is not None)
        assert made.receiver().filled == 5
        assert [end_receiving(both.inbox), made.receiver().filled] == [2, 3]
        assert [end_sending(both.outbox), made.transmitter.outstanding] == [left, left]
        assert take_batch(both.inbox, 1, 0) == prepare(both.outbox) == CLOSED
        assert made.pools[0].free == 16 - 3 - left
        assert [end_receiving(both.inbox), end_sending(both.outbox)] == [0, left]
        numbers = made.receiver().number, made.transmitter.number
        assert [take_back(made.table.memory, number) for number in numbers] == [3, left]
        assert [pool.free for pool in made.pools] == [16, 8]
        assert [take_back(made.table.memory, number) for number in numbers] == [0, 0]
        assert made.owner(other.handle) == Owner.TX


def test_what_the_kernel_has_counts_for_another_side() -> None:
    with sides(checked=False) as both, sides(checked=False) as other:
        for number, one in enumerate((both, other), 1):
            one.made.receiver().filled = 10 * number
            one.made.transmitter.outstanding, one.made.transmitter.outstanding_packets = 5 * number, 3 * number
        for _ in range(2):
            hand_over_filled(both.inbox, other.inbox)
            hand_over_sent(both.outbox, other.outbox)
            assert [one.made.receiver().filled for one in (both, other)] == [0, 30]
            assert [one.made.transmitter.outstanding for one in (both, other)] == [0, 15]
            assert [one.made.transmitter.outstanding_packets for one in (both, other)] == [0, 9]


# --- where everything is ----------------------------------------------------------------------------------------


def test_a_survey_shows_the_rings_the_owners_and_what_is_free() -> None:
    with sides(frames=20) as both:
        made, queue = both.made, both.made.queues[0]
        both.take(0)
        for _ in range(3):
            queue.receive(PACKET)
        both.submit(both.take(1))
        queue.send()
        queue.complete()
        rings = [(ring.record, words, 16) for ring, words in ((queue.rx, 2), (queue.completion, 1), (queue.fill, 1),
                                                              (queue.tx, 2))]  # fmt: skip
        seen = Survey(made.pools[0].address, 20, rings)
        assert [entries.tolist() for entries in seen.entries] == [
            [FRAME_BYTES + HEADROOM_BYTES, 2 * FRAME_BYTES + HEADROOM_BYTES],
            [HEADROOM_BYTES],
            [frame * FRAME_BYTES for frame in range(3, 16)],
            [],
        ]
        assert seen.owners.tolist() == made.table.owners().tolist()
        assert seen.free.tolist() == made.pools[0].stack().tolist() == [19, 18, 17, 16]
        assert size_of(PacketRow) == 32
