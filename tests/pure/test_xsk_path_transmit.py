"""Packets into TX and home through COMPLETION, on ordinary memory: each frame to its own pool, once."""

from __future__ import annotations

import errno

import pytest

from tests.pure.support_kernel import FRAME_BYTES
from tests.pure.support_path import PlainPath, path
from xskit.memory import record_view
from xskit.xsk.path.books import TX_REFUSED
from xskit.xsk.path.lines import LAST, NIL, SET
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import PacketMemory
from xskit.xsk.path.sizes import LINE_BYTES
from xskit.xsk.path.transmit import RETRY_NS

PACKET = bytes(range(100))
LONG = bytes(n % 251 for n in range(5000))
OUTSIDE = [-1, -(1 << 63), 16 * FRAME_BYTES, 1 << 40, (1 << 63) - 1]


def held(made: PlainPath, data: bytes = PACKET, number: int = 0) -> int:
    """A packet that came from a queue; its handle."""
    assert made.queues[number].receive(data)
    (packet,) = made.receive(number=number)
    return packet.handle


# --- the way out, and home --------------------------------------------------------------------------------------


def test_packets_go_out_whole_and_are_sent_once_completed() -> None:
    with path() as made:
        queue, books = made.queues[0], made.pools[0].books
        short, long = held(made), held(made, LONG)
        frames = made.frames_of(long)
        made.send(short, long)
        assert (made.transmitter.outstanding, made.transmitter.outstanding_packets) == (4, 2)
        assert {made.owner(frame) for frame in (short, *frames)} == {Owner.TX}
        assert {made.line(frame).next for frame in (short, *frames)} == {made.transmitter.number}
        assert made.reap() == 0
        assert queue.send() == [PACKET, LONG]
        queue.complete(3)
        assert made.reap() == 3
        assert (books.sent, books.sent_bytes, books.in_flight, books.in_flight_frames) == (1, 100, 1, 1)
        made.check()
        made.check_books()
        queue.complete()
        assert made.reap() == 1
        assert (books.sent, books.sent_bytes, books.in_flight, books.in_flight_bytes) == (2, 5100, 0, 0)
        assert (made.transmitter.outstanding, made.transmitter.outstanding_packets) == (0, 0)
        assert made.pools[0].free == 4
        made.check()
        made.check_books()


def test_descriptors_say_which_frames_belong_together() -> None:
    with path() as made:
        first = held(made, LONG)
        made.send(first, held(made))
        entries = [made.queues[0].tx.take() for _ in range(4)]
        addresses = [made.line(frame).address - made.memory.address for frame in (*made.frames_of(first), 3)]
        assert [address for address, _ in entries] == addresses
        assert [tail & 0xFFFF_FFFF for _, tail in entries] == [1792, 1792, 5000 - 2 * 1792, 100]
        assert [tail >> 32 for _, tail in entries] == [1, 1, 0, 0]


def test_what_was_written_is_shown_only_when_it_is_submitted() -> None:
    with path() as made:
        descriptors = made.write(held(made, LONG), made.write(held(made)))
        assert (descriptors, made.queues[0].tx.filled) == (4, 0)
        made.submit(descriptors, 2)
        assert made.queues[0].send() == [PACKET, LONG]


def test_a_first_frame_may_be_full_again_before_the_last_one_is_completed() -> None:
    """Drivers complete frame by frame: what the packet was must not be forgotten with its first frame."""
    with path(frames=4, entries=4) as made:
        queue = made.queues[0]
        long = held(made, LONG)
        made.send(long)
        queue.send()
        queue.complete(2)
        assert made.reap() == 2
        made.refill()
        for _ in range(3):
            held(made)
        assert {made.line(frame).length for frame in (0, 1)} == {100}
        queue.complete()
        made.reap()
        assert made.pools[0].books.sent_bytes == 5000
        made.check()


def test_each_frame_comes_home_to_its_own_pool_whichever_socket_sent_it() -> None:
    with path(queues=3, frames=24, entries=8) as made:
        handles = [held(made, data, number) for data in (PACKET, LONG) for number in range(3)]
        made.send(*handles[:4])
        queue = made.queues[0]
        assert queue.send() == [PACKET] * 3 + [LONG]
        queue.complete()
        assert made.reap() == 6
        assert [pool.free for pool in made.pools] == [4, 1, 1]
        assert [pool.books.sent for pool in made.pools] == [2, 1, 1]
        assert [pool.books.sent_bytes for pool in made.pools] == [5100, 100, 100]
        made.check()
        made.check_books()
        made.send(*handles[4:])
        queue.send()
        queue.complete()
        made.reap()
        assert [pool.free for pool in made.pools] == [4, 4, 4]
        assert [pool.check()[Owner.FILL] for pool in made.pools] == [4, 4, 4]


def test_frames_of_several_pools_in_one_packet_come_home_each_to_its_own() -> None:
    """The packet is counted where its last frame is at home."""
    with path(queues=2, frames=16, entries=8) as made:
        first, second = held(made, PACKET, 0), held(made, PACKET, 1)
        line = made.line(first)
        line.fragment, line.length, line.frames = second, 200, 2
        made.send(first)
        assert made.queues[0].send() == [PACKET + PACKET]
        made.queues[0].complete()
        assert made.reap() == 2
        assert [pool.free for pool in made.pools] == [1, 1]
        assert [pool.books.sent_bytes for pool in made.pools] == [0, 200]
        made.check()


# --- sets -------------------------------------------------------------------------------------------------------


def set_of(made: PlainPath, spans: list[int]) -> int:
    """A set of frames out of the pool: a packet that is sent again and again."""
    frames = [made.take() for _ in spans]
    for number, (frame, span) in enumerate(zip(frames, spans, strict=True)):
        assert made.move(frame, Owner.FREE, Owner.HELD)
        line = made.line(frame)
        line.address = made.memory.address + frame * FRAME_BYTES
        line.span, line.state = span, SET
        line.fragment = frames[number + 1] if number + 1 < len(frames) else NIL
        line.length, line.frames = sum(spans), len(spans)
    made.line(frames[-1]).next = frames[0]
    return frames[0]


@pytest.mark.parametrize("spans", [[100], [2048, 100], [10, 20, 30, 40]])
def test_the_frames_of_a_set_stay_together_and_its_first_one_comes_home(spans) -> None:
    with path(frames=32) as made:
        pool, queue = made.pools[0], made.queues[0]
        first, other = set_of(made, spans), set_of(made, spans)
        free = pool.free
        for round_ in range(1, 4):
            made.send(first, other)
            assert [len(data) for data in queue.send()] == [sum(spans)] * 2
            queue.complete(2 * len(spans) - 1)
            made.reap()
            assert pool.free == free + 1, "only the first set is whole"
            queue.complete()
            made.reap()
            assert made.pools[0].stack()[-2:].tolist() == [first, other]
            assert (pool.books.sent, pool.books.sent_bytes) == (2 * round_, 2 * round_ * sum(spans))
            assert made.frames_of(first) == list(range(first, first + len(spans)))
            for handle in (other, first):
                assert made.take() == handle
                for frame in made.frames_of(handle):
                    assert made.move(frame, Owner.FREE, Owner.HELD)
                    assert made.line(frame).state & ~LAST == SET
        assert pool.view.violations == 0


@pytest.mark.parametrize("spans", [[100], [2048, 100], [10, 20, 30, 40]])
def test_packets_that_lie_ready_are_sent_out_of_their_pool_and_come_home_to_it(spans) -> None:
    with path(frames=32) as made:
        pool, queue = made.pools[0], made.queues[0]
        handle = set_of(made, spans)
        for frame in made.frames_of(handle):
            assert made.move(frame, Owner.HELD, Owner.FREE)
        for _ in range(3):
            made.send(handle, origin=Owner.FREE)
            assert {made.owner(frame) for frame in made.frames_of(handle)} == {Owner.TX}
            assert [len(data) for data in queue.send()] == [sum(spans)]
            queue.complete()
            made.reap()
            assert made.take() == handle
        assert (made.transmitter.packets, pool.books.sent, pool.view.violations) == (3, 3, 0)


def test_a_packet_that_lies_ready_is_sent_whole_or_not_at_all() -> None:
    """One of its frames is elsewhere: the others are where they were, and nothing is written."""
    with path(frames=32) as made:
        handle = set_of(made, [10, 20, 30])
        first, second, third = made.frames_of(handle)
        for frame in (first, second):
            assert made.move(frame, Owner.HELD, Owner.FREE)
        assert made.write(handle, 0, Owner.FREE) == 0
        assert [made.owner(frame) for frame in (first, second, third)] == [Owner.FREE, Owner.FREE, Owner.HELD]


@pytest.mark.parametrize("spans", [[30], [10, 20]])
def test_a_set_that_was_refused_is_not_refused_for_ever(spans) -> None:
    with path(frames=32) as made:
        queue, first = made.queues[0], set_of(made, spans)
        for refuse in (True, False, False):
            made.send(first)
            queue.send()
            if refuse:
                made.mark_refused()
            queue.complete()
            made.reap()
            assert made.take() == first
            assert all(made.move(frame, Owner.FREE, Owner.HELD) for frame in made.frames_of(first))
        assert (made.refused(), made.pools[0].books.sent) == (1, 2)


# --- what the kernel refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "frames"), [(60, 1), (5000, 3)])
def test_the_packet_consumed_last_is_the_one_refused(length, frames) -> None:
    with path(frames=32) as made:
        queue = made.queues[0]
        made.send(*[held(made, bytes([number]) * (length + number)) for number in range(4)])
        assert len(queue.send(2 * frames)) == 2
        made.mark_refused()
        queue.send()
        queue.complete()
        made.reap()
        assert made.transmitter.refused == 1
        assert made.refused() == 1
        assert made.drops(made.pools[0].books)[TX_REFUSED].tolist() == [1, length + 1]
        assert (made.pools[0].books.sent, made.pools[0].free) == (3, 16 + 4 * frames)
        made.check_books()


def test_where_nobody_says_which_was_refused_the_next_one_completed_counts_as_it() -> None:
    with path() as made:
        queue = made.queues[0]
        made.transmitter.told_late = 1
        made.send(*[held(made) for _ in range(5)])
        queue.send(3)
        made.mark_refused()
        made.mark_refused()
        assert made.transmitter.refusals == 2
        queue.complete(1)
        made.reap()
        assert (made.refused(), made.transmitter.refusals) == (1, 1)
        queue.send()
        queue.complete()
        made.reap()
        assert (made.refused(), made.transmitter.refusals, made.pools[0].books.sent) == (2, 0, 3)
        made.check_books()


def test_a_packet_is_not_refused_because_its_frame_held_one_that_was() -> None:
    with path(frames=1, entries=1) as made:
        queue = made.queues[0]
        for refuse in (True, False):
            made.send(held(made))
            queue.send()
            if refuse:
                made.mark_refused()
            queue.complete()
            made.reap()
            made.refill()
        assert (made.refused(), made.pools[0].books.sent) == (1, 1)


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_refusal_of_what_is_no_frame_marks_none(address) -> None:
    """TX is memory that others might write to."""
    with path() as made:
        made.send(held(made))
        made.queues[0].tx._entries[made.queues[0].tx.position & 15][0] = address
        made.queues[0].tx.take()
        made.queues[0].tx.publish_taken()
        before = made.table.view.tobytes()
        record_view(PacketMemory, made.table.memory).table += LINE_BYTES  # so that there is a line before the first
        made.mark_refused()
        assert made.transmitter.refused == 1
        assert made.table.view.tobytes() == before


# --- what the kernel never had ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_completion_of_no_frame_is_a_stray_and_what_follows_it_comes_home(address) -> None:
    with path() as made:
        queue = made.queues[0]
        made.send(held(made), held(made))
        queue.send()
        queue.completion.put(address)
        queue.complete()
        assert sum(made.reap() for _ in range(3)) == 2
        assert (made.transmitter.strays, made.transmitter.outstanding, made.pools[0].books.sent) == (1, 0, 2)
        assert made.pools[0].view.violations == 0
        made.check()
        made.check_books()


def test_a_frame_that_is_not_in_tx_cannot_be_completed() -> None:
    with path(frames=20) as made:
        queue = made.queues[0]
        packets = [held(made) for _ in range(3)]
        made.send(*packets[:2])
        queue.send()
        kept = packets[2] * FRAME_BYTES
        for frame in (kept, 19 * FRAME_BYTES, 15 * FRAME_BYTES):  # HELD, FREE, FILL
            queue.completion.put(frame)
        queue.complete(1)
        queue.completion.put(queue.completion.shown()[-1])  # completed twice
        queue.complete()
        assert sum(made.reap() for _ in range(5)) == 2
        assert (made.transmitter.strays, made.pools[0].view.violations) == (4, 4)
        assert made.pools[0].view.violated == packets[2]
        assert (made.owner(packets[2]), made.owner(19), made.owner(15)) == (Owner.HELD, Owner.FREE, Owner.FILL)
        assert (made.transmitter.outstanding, made.transmitter.outstanding_packets) == (0, 0)
        made.check()
        made.check_books()


def test_a_completion_that_never_comes_is_awaited_for_ever() -> None:
    """A stray in its place is none."""
    with path() as made:
        queue = made.queues[0]
        made.send(held(made))
        queue.send()
        queue.sending[0] = 1 << 40
        queue.complete()
        assert (made.reap(), made.reap()) == (0, 0)
        assert (made.transmitter.strays, made.transmitter.outstanding, made.transmitter.outstanding_packets) == (
            1, 1, 1,
        )  # fmt: skip
        assert made.owner(0) == Owner.TX
        made.check(lost=1)
        made.check_books()


@pytest.mark.parametrize(("data", "place"), [(PACKET, 0), (LONG, 0), (LONG, 1), (LONG, 2)])
@pytest.mark.parametrize("owner", [Owner.FREE, Owner.FILL, Owner.TX])
def test_a_packet_of_which_a_frame_is_not_held_is_not_sent(data, place, owner) -> None:
    with path() as made:
        packet = held(made, data)
        frame = made.frames_of(packet)[place]
        made.line(frame).owner = owner
        others = [other for other in made.frames_of(packet) if other != frame]
        before = held(made)
        descriptors = made.write(before)
        assert made.write(packet, descriptors) == descriptors == 1
        made.submit(descriptors, 1)
        assert made.queues[0].send() == [PACKET]
        assert made.owner(frame) == owner
        assert all(made.owner(other) == Owner.HELD for other in others)
        assert (made.pools[0].view.violations, made.pools[0].view.violated) == (1, frame)


@pytest.mark.parametrize("data", [PACKET, LONG])
def test_a_packet_goes_out_only_once(data) -> None:
    with path() as made:
        packet = held(made, data)
        descriptors = made.write(packet)
        assert made.write(packet, descriptors) == descriptors
        made.submit(descriptors, 1)
        assert made.queues[0].send() == [data]
        made.queues[0].complete()
        made.reap()
        assert made.pools[0].books.sent == 1


# --- waiting ----------------------------------------------------------------------------------------------------


def test_since_when_the_kernel_owes_frames_is_known_while_it_does() -> None:
    with path() as made:
        transmitter, queue = made.transmitter, made.queues[0]
        assert (made.collect(5), transmitter.progress_ns) == (0, 0)
        made.send(held(made), held(made))
        assert (made.collect(100), transmitter.progress_ns) == (0, 100)
        made.collect(200)
        assert transmitter.progress_ns == 100
        queue.send()
        queue.complete(1)
        assert (made.collect(300), transmitter.progress_ns) == (1, 300)
        made.collect(400)
        assert transmitter.progress_ns == 300
        queue.complete()
        made.collect(500)
        made.collect(600)
        assert transmitter.progress_ns == 0


def test_what_lies_in_tx_is_kicked_again_after_a_while() -> None:
    """The file is no socket, so each call fails."""
    with path() as made:
        transmitter, queue = made.transmitter, made.queues[0]
        made.send(held(made))
        queue.tx.need_wakeup(True)
        now_ns = 1_000_000_000
        made.collect(now_ns)
        assert (transmitter.kicks, transmitter.retry_ns) == (1, now_ns + RETRY_NS)
        assert (transmitter.failure, transmitter.down) == (errno.ENOTSOCK, 0)
        made.collect(now_ns + RETRY_NS - 1)
        assert transmitter.kicks == 1
        made.collect(now_ns + RETRY_NS)
        assert transmitter.kicks == 2


@pytest.mark.parametrize(("needed", "always", "kicks"), [(False, 0, 0), (True, 0, 1), (False, 1, 1)])
def test_the_kernel_is_called_where_it_asks_for_that_or_never_says(needed, always, kicks) -> None:
    with path() as made:
        made.transmitter.always = always
        made.queues[0].tx.need_wakeup(needed)
        made.kick()
        assert made.transmitter.kicks == 0, "there is nothing to send"
        made.send(held(made))
        made.kick()
        assert made.transmitter.kicks == kicks
