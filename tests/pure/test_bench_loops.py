"""The benchmarks' loops on ordinary memory, round by round: content, numbers, slots, FILL, and what is counted."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.support_bench import FRAME_BYTES, Queue, Worker
from xskit.bench.loops.modes import run
from xskit.bench.loops.records import WINDOW
from xskit.bench.packet import PKTGEN_MAGIC, PacketSpec
from xskit.jit import store_word

PLAIN = PacketSpec()
NUMBERED = PacketSpec(100, stamped=True)
JUMBO = PacketSpec(5004)


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:

        def made(kind: type[Any], *arguments: Any, **options: Any) -> Any:
            one = kind(*arguments, **options)
            stack.callback(one.close)
            return one

        yield made


def fragments(data: bytes, size: int = 1792) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def swapped_macs(data: bytes) -> bytes:
    return data[6:12] + data[:6] + data[12:]


def numbered(number: int, spec: PacketSpec = NUMBERED) -> bytes:
    data = bytearray(spec.build())
    struct.pack_into("!I", data, spec.stamp_offset + 4, number & 0xFFFF_FFFF)
    return bytes(data)


def test_rxdrop_counts_and_gives_every_frame_back(make: Callable[..., Any]) -> None:
    queue = make(Queue)
    worker = make(Worker, queue)
    queue.receive([b"a" * 60])
    queue.receive([b"b" * 1792, b"b" * 1792, b"b" * 100])
    given_out = [0, 1, 2, 3]
    assert run(worker.address, 2) == 2
    came = queue.receiver
    assert (came.packets, came.frames, came.bytes) == (2, 4, 60 + 2 * 1792 + 100)
    assert [address // FRAME_BYTES for address in queue.refill()] == given_out


def test_rxdrop_takes_a_batch_a_round_and_stops_at_its_limit(make: Callable[..., Any]) -> None:
    queue = make(Queue)
    worker = make(Worker, queue)
    for _ in range(20):
        queue.receive([b"x" * 60])
    run(worker.address, 1)
    assert queue.receiver.packets == queue.view.batch == 8
    worker.view.limit = 16
    assert run(worker.address, 100) == 1
    assert queue.receiver.packets == 16


def test_a_stop_word_ends_the_loop(make: Callable[..., Any]) -> None:
    queue = make(Queue, source=NUMBERED, check=NUMBERED, echo=True)
    worker = make(Worker, queue, make(Queue, source=NUMBERED, check=NUMBERED, echo=True))
    store_word(worker.address, 1)
    assert run(worker.address, 5) == 0


def test_a_full_fill_ring_is_counted_and_nothing_is_lost(make: Callable[..., Any]) -> None:
    queue = make(Queue)
    worker = make(Worker, queue)
    queue.free = [number % 64 * FRAME_BYTES for number in range(70)]
    for burst in (40, 26):
        for _ in range(burst):
            queue.receive([b"x" * 60])
        run(worker.address, 10)
    assert queue.fill.filled == queue.receiver.packets == 64
    assert queue.receiver.fill_fails > 0
    queue.refill()
    run(worker.address, 1)
    assert queue.receiver.packets == 66


def test_txonly_sends_what_lies_ready_and_uses_a_slot_again_only_when_completed(make: Callable[..., Any]) -> None:
    queue = make(Queue, source=PLAIN)
    worker = make(Worker, queue)
    run(worker.address, 3)
    assert queue.tx.filled == 24
    sent = queue.transmitter
    assert sent.packets == sent.outstanding == sent.outstanding_packets == 24
    packets = queue.send(complete=False)
    assert packets == [PLAIN.build()] * 24
    run(worker.address, 3)
    assert queue.tx.filled == 8  # 32 slots in all
    queue.complete([number * FRAME_BYTES for number in range(40, 64)])
    run(worker.address, 1)
    assert sent.packets - sent.outstanding_packets == 24
    assert queue.ready.free + sent.outstanding == 32


def test_txonly_ends_when_its_packets_are_sent_and_home(make: Callable[..., Any]) -> None:
    queue = make(Queue, source=PLAIN)
    worker = make(Worker, queue)
    queue.source.left = 10
    assert run(worker.address, 20) == 20
    assert len(queue.send()) == 10
    assert run(worker.address, 20) == 1
    assert (queue.transmitter.packets, queue.transmitter.outstanding_packets) == (10, 0)
    assert queue.transmitter.outstanding == 0


def test_a_packet_of_several_frames_is_one_packet(make: Callable[..., Any]) -> None:
    queue = make(Queue, source=JUMBO)
    worker = make(Worker, queue)
    queue.source.left = 4
    run(worker.address, 2)
    assert (queue.transmitter.packets, queue.transmitter.outstanding) == (4, 12)
    assert queue.ready.free == 10 - 4
    assert queue.send() == [JUMBO.build()] * 4
    run(worker.address, 1)
    assert (queue.transmitter.outstanding_packets, queue.transmitter.outstanding) == (0, 0)
    assert queue.ready.free == 10


def test_numbers_and_times_are_written_in_network_order(make: Callable[..., Any]) -> None:
    queue = make(Queue, source=NUMBERED)
    worker = make(Worker, queue)
    queue.source.sequence = 0xFFFF_FFFE
    run(worker.address, 1)
    packets = queue.send()
    headers = [struct.unpack_from("!IIII", packet, NUMBERED.stamp_offset) for packet in packets]
    assert {header[0] for header in headers} == {PKTGEN_MAGIC}
    assert [header[1] for header in headers] == [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1, 2, 3, 4, 5]
    assert all(0 < seconds < 1 << 31 and micro < 1_000_000 for _, _, seconds, micro in headers)


def test_l2fwd_swaps_the_macs_of_the_first_fragment_only(make: Callable[..., Any]) -> None:
    queue = make(Queue)
    queue.view.partner = queue.address
    worker = make(Worker, queue)
    jumbo = JUMBO.build()
    queue.receive([PLAIN.build()])
    queue.receive(fragments(jumbo))
    run(worker.address, 1)
    assert queue.send() == [swapped_macs(PLAIN.build()), swapped_macs(jumbo)]
    run(worker.address, 1)
    assert queue.receiver.packets == queue.transmitter.packets == queue.pool.books.sent == 2
    assert queue.transmitter.outstanding == 0
    assert len(queue.refill()) == 4


def test_a_packet_cut_by_the_end_of_a_batch_is_put_together(make: Callable[..., Any]) -> None:
    queue = make(Queue)
    queue.view.partner = queue.address
    worker = make(Worker, queue)
    queue.view.batch = 2
    jumbo = JUMBO.build()
    queue.receive(fragments(jumbo))
    run(worker.address, 1)
    assert (queue.receiver.packets, queue.receiver.frames) == (0, 2)
    run(worker.address, 1)
    assert queue.receiver.packets == 1
    assert queue.send() == [swapped_macs(jumbo)]


def test_forward_sends_frames_home_to_where_they_came_from(make: Callable[..., Any]) -> None:
    first = make(Queue)
    second = make(Queue, memory=first.memory, table=first.table, first=32)
    first.view.partner, second.view.partner = second.address, first.address
    worker = make(Worker, first, second)
    first.receive([b"there" * 20])
    second.receive([b"back!" * 20])
    run(worker.address, 1)
    assert second.send() == [b"there" * 20]
    assert first.send() == [b"back!" * 20]
    run(worker.address, 1)
    assert [address // FRAME_BYTES for address in first.refill()] == [0]
    assert [address // FRAME_BYTES for address in second.refill()] == [32]


def test_latency_keeps_one_packet_on_its_way_and_knows_it_again(make: Callable[..., Any]) -> None:
    queue = make(Queue, source=NUMBERED, echo=True)
    worker = make(Worker, queue)
    queue.source.left = 2
    run(worker.address, 5)
    (packet,) = queue.send()
    queue.receive([b"\0" * 96])  # not ours
    queue.receive([numbered(7)])  # ours, but not the one
    queue.receive([packet])
    run(worker.address, 5)
    assert (queue.echo.count, queue.echo.strangers, queue.echo.lost) == (1, 2, 0)
    assert 0 < queue.echo.min_ns == queue.echo.max_ns == queue.echo.sum_ns
    (packet,) = queue.send()
    assert packet == numbered(1)[: NUMBERED.stamp_offset + 8] + packet[NUMBERED.stamp_offset + 8 :]
    queue.echo.patience_ns = 0
    run(worker.address, 5)
    assert (queue.echo.count, queue.echo.lost, queue.echo.waiting) == (1, 1, 0)


def test_a_changed_byte_anywhere_is_seen(make: Callable[..., Any]) -> None:
    for spec in (PLAIN, NUMBERED, JUMBO):
        queue = make(Queue, check=spec)
        worker = make(Worker, queue)
        good = spec.build()
        queue.receive(fragments(swapped_macs(good)))
        run(worker.address, 4)
        assert (queue.receiver.packets, queue.check.corrupted) == (1, 0)
        places = [12, 30, 41, spec.stamp_offset, len(good) - 1, len(good) // 2 + 10]
        for count, at in enumerate(places, start=1):
            bad = bytearray(good)
            bad[at] ^= 1
            queue.receive(fragments(bytes(bad)))
            run(worker.address, 4)
            queue.refill()
            assert queue.check.corrupted == count


def test_packets_too_long_and_too_short_are_seen(make: Callable[..., Any]) -> None:
    for spec in (PLAIN, NUMBERED):
        queue = make(Queue, check=spec)
        worker = make(Worker, queue)
        queue.receive([spec.build()[:-1]])
        queue.receive([spec.build() + b"\0"])
        queue.receive([spec.build()[:30]])
        run(worker.address, 2)
        assert queue.check.corrupted == 3


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 40), max_size=80),
    st.sampled_from([0, 1, 0xFFFF_FFF0, WINDOW - 7, (1 << 32) + 5]),
)
def test_lost_doubled_and_reordered_numbers_are_told_apart(numbers: list[int], start: int) -> None:
    queue = Queue(check=NUMBERED)
    worker = Worker(queue)
    try:
        queue.check.next = start
        for number in numbers:
            queue.receive([numbered(start + number)])
            run(worker.address, 1)
            queue.refill()
        seen: set[int] = set()
        highest, reordered, duplicates = -1, 0, 0
        for number in numbers:
            if number in seen:
                duplicates += 1
            elif number < highest:
                reordered += 1
            seen.add(number)
            highest = max(highest, number)
        check = queue.check
        assert (check.unique, check.duplicates, check.reordered) == (len(seen), duplicates, reordered)
        assert check.next == start + highest + 1
        assert check.corrupted == 0
    finally:
        worker.close()
        queue.close()


def test_a_number_from_before_the_window_counts_as_doubled(make: Callable[..., Any]) -> None:
    queue = make(Queue, check=NUMBERED)
    worker = make(Worker, queue)
    for number in (0, WINDOW + 10, 1, 11):
        queue.receive([numbered(number)])
    run(worker.address, 1)
    assert (queue.check.unique, queue.check.duplicates, queue.check.reordered) == (3, 1, 1)


def test_time_with_work_is_counted_and_the_first_round_is_not_metered(make: Callable[..., Any]) -> None:
    queue = make(Queue)
    worker = make(Worker, queue)
    worker.view.meter = 1
    for _ in range(20):
        queue.receive([b"x" * 60])
    run(worker.address, 5)
    view = worker.view
    assert (view.done, view.metered, view.idle) == (20, 12, 1)
    assert view.metered_ns > 0
    assert 0 < view.busy_ns <= view.stopped_ns - view.started_ns
