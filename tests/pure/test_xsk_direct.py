"""Rings in the hands of the user, on plain memory: what goes in comes out, and what must not go in changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from tests.pure.support_rings import CONTINUES, METADATA, PlainSocket
from xskit.errors import UsageError
from xskit.memory import array_at, layout, record_view, scratch
from xskit.xsk.direct import TxRing
from xskit.xsk.mapping import DESCRIPTOR
from xskit.xsk.path import direct as path
from xskit.xsk.path.books import TX_REFUSED
from xskit.xsk.path.entry import PacketRow, draft_batch
from xskit.xsk.path.owner import FrameError, Owner
from xskit.xsk.path.pool import PacketMemory, Pool
from xskit.xsk.path.rings import NEED_WAKEUP

FRAME = 2048


@pytest.fixture
def make() -> Iterator[Callable[..., PlainSocket]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(PlainSocket(**options))


@pytest.fixture
def sock(make) -> PlainSocket:
    return make()


def drops(sock: PlainSocket) -> int:
    return int(array_at(sock.pool.books.drops, 2 * TX_REFUSED + 1, np.int64)[2 * TX_REFUSED])


# --- the way round ----------------------------------------------------------------------------------------------


def test_frames_go_all_the_way_round(sock):
    mine = sock.take(4)
    assert mine == [0, FRAME, 2 * FRAME, 3 * FRAME]
    assert sock.put(sock.fill, [mine[0], mine[1] + 100, mine[2]]) is None
    assert sock.receiver.filled == 3
    assert sock.check()[Owner.FILL] == 3
    assert sock.table.lines["next"][:3].tolist() == [7, 7, 7]
    assert sock.kernel_fill.take(9) == [0, FRAME + 100, 2 * FRAME]

    came = [(256, 60, 0), (2 * FRAME + 256, 1500, CONTINUES), (FRAME + 300, 10, 0)]
    sock.arrive(came)
    assert sock.rx.available == 3
    seen = sock.rx.peek(64)
    assert seen.dtype == DESCRIPTOR
    assert seen.tolist() == came
    assert sock.rx.peek(2).tolist() == came[:2]
    assert sock.rx.release(2) == 2
    assert (sock.rx.available, sock.receiver.filled) == (1, 1)
    assert sock.rx.peek(64).tolist() == came[2:]
    assert sock.rx.release(1) == 1
    assert sock.held() == 4

    packets = [(256, 60, 0), (2 * FRAME + 256, 1500, CONTINUES), (FRAME + 300, 10, 0)]
    assert sock.put(sock.tx, packets) == 2
    books = sock.pool.books
    assert (books.in_flight, books.in_flight_bytes, books.in_flight_frames) == (2, 1570, 3)
    assert (sock.transmitter.outstanding, sock.transmitter.outstanding_packets) == (3, 2)
    assert sock.table.lines["next"][:3].tolist() == [8, 8, 8]
    assert sock.kernel_tx.take(9) == packets

    sock.complete([address for address, _, _ in packets])
    assert sock.completion.available == 3
    assert sock.completion.peek(64).tolist() == [address for address, _, _ in packets]
    assert sock.completion.release(3) == 3
    assert (books.sent, books.sent_bytes) == (2, 1570)
    assert (books.in_flight, books.in_flight_bytes, books.in_flight_frames) == (0, 0, 0)
    assert (sock.transmitter.outstanding, sock.transmitter.outstanding_packets) == (0, 0)
    assert sock.held() == 4
    sock.give(mine)
    assert sock.check()[Owner.FREE] == 16
    assert sock.receiver.strays == sock.transmitter.strays == 0


def test_arrays_are_the_ring_itself(sock):
    (mine,) = sock.take(1)
    array = sock.tx.reserve(1)
    array[0] = (mine, 60, 0)
    assert sock.kernel_tx.entries[5].item() == (mine, 60, 0)  # it begins 3 before the wrap of its index
    sock.arrive([(mine, 60, 0)])
    seen = sock.rx.peek(1)
    with pytest.raises(ValueError, match="read-only"):
        seen["length"] = 61
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.flags.writeable = True
    sock.kernel_rx.entries["length"] = 62
    assert seen["length"] == 62


def test_an_array_ends_with_the_memory_of_the_ring(sock):
    mine = sock.take(8)
    assert sock.fill.free == 8
    sock.fill.reserve(8)
    with pytest.raises(UsageError, match="^count must be between 0 and 3, not 4"):
        sock.fill.submit(4)
    sock.put(sock.fill, mine[:3])
    assert sock.fill.free == 5
    sock.put(sock.fill, mine[3:])
    assert sock.fill.free == len(sock.fill.reserve(8)) == 0
    assert sock.kernel_fill.take(8) == mine
    sock.arrive([(address, 60, 0) for address in mine])
    assert sock.rx.available == 8
    for count in (3, 5, 0):
        assert len(sock.rx.peek(8)) == count
        with pytest.raises(UsageError, match=f"^count must be between 0 and {count}, not {count + 1}"):
            sock.rx.release(count + 1)
        sock.rx.release(count)
    assert sock.held() == 8


def test_what_is_reserved_or_peeked_and_not_used_is_there_again(sock):
    mine = sock.take(3)
    assert sock.fill.reserve(3).ctypes.data == sock.fill.reserve(2).ctypes.data
    sock.fill.reserve(3)[:] = mine
    sock.fill.submit(1)
    sock.fill.submit(2)
    assert sock.kernel_fill.take(8) == mine
    sock.arrive([(address, 60, 0) for address in mine])
    sock.rx.peek(3)
    assert (sock.rx.release(2), sock.rx.release(1)) == (2, 1)


def test_a_ring_says_whether_the_kernel_sleeps(sock):
    for ring, end in ((sock.fill, sock.kernel_fill), (sock.tx, sock.kernel_tx)):
        assert not ring.needs_wakeup
        end.flags[0] = NEED_WAKEUP
        assert ring.needs_wakeup


@pytest.mark.parametrize("told_late", [0, 1])
def test_refused_packets_are_counted_as_such(sock, told_late):
    sock.transmitter.told_late = told_late
    mine = sock.take(3)
    sock.put(sock.tx, [(mine[0], 60, CONTINUES), (mine[1], 40, 0), (mine[2], 70, 0)])
    sock.kernel_tx.take(2)
    sock.refuse_last()
    sock.kernel_tx.take(1)
    sock.complete(mine)
    sock.completion.peek(8)
    sock.completion.release(3)
    assert (sock.pool.books.sent_bytes, drops(sock), sock.transmitter.refused) == (70, 1, 1)
    sock.put(sock.tx, [(mine[0], 60, 0)])  # the mark is gone
    sock.kernel_tx.take(1)
    sock.complete(mine[:1])
    sock.completion.peek(8)
    sock.completion.release(1)
    assert (sock.pool.books.sent_bytes, drops(sock)) == (130, 1)


# --- other levels on the same socket ----------------------------------------------------------------------------


def test_levels_take_turns(sock):
    sock.refill()
    filled = sock.kernel_fill.take(4)
    sock.arrive([(address + 256, 60, 0) for address in filled])
    assert [handle for _, handle, _ in sock.receive(1)] == [0]
    assert len(sock.rx.peek(8)) == 2
    sock.rx.release(1)
    assert sock.put(sock.tx, [(256, 60, 0), (FRAME + 256, 60, 0)]) == 2  # one of each
    sock.kernel_tx.take(2)
    sock.complete([256, FRAME + 256])
    sock.completion.peek(1)
    assert sock.completion.release(1) == 1
    assert sock.reap() == 1
    assert [handle for _, handle, _ in sock.receive(8)] == [2, 3]
    assert sock.check() == {**dict.fromkeys(Owner, 0), Owner.FREE: 13, Owner.HELD: 3}
    assert sock.pool.books.sent == 2
    sock.give([0, 2 * FRAME, 3 * FRAME])


def test_a_frame_that_comes_to_the_user_is_another_packet(sock):
    def numbers() -> int:
        return int(sock.table.lines["number"][0])

    seen = [numbers()]
    (mine,) = sock.take(1)
    seen.append(numbers())
    sock.put(sock.fill, [mine])
    sock.arrive([(mine, 60, 0)])
    sock.rx.peek(1)
    sock.rx.release(1)
    seen.append(numbers())
    sock.put(sock.tx, [(mine, 60, 0)])
    sock.complete([mine])
    sock.completion.peek(1)
    sock.completion.release(1)
    seen.append(numbers())
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("name", ["fill", "tx", "rx", "completion"])
def test_entries_that_another_call_has_used_are_refused(sock, name):
    mine = sock.take(6)
    sock.put(sock.tx, [(mine[0], 60, 0)])
    sock.complete([mine[0]])
    sock.put(sock.fill, [mine[1], mine[2]])
    sock.arrive([(mine[1], 60, 0), (mine[2], 60, 0)])
    ring = getattr(sock, name)
    if name in ("fill", "tx"):
        ring.reserve(1)[0] = mine[3] if name == "fill" else (mine[3], 60, 0)
    else:
        ring.peek(1)
    another = TxRing(sock.addresses[1], (), sock.kernel_tx.mapped, sock.umem, sock.turn, 1)
    other = {
        "fill": sock.refill,
        "tx": lambda: sock.put(another, [(mine[4], 60, 0)]),
        "rx": lambda: sock.receive(1),
        "completion": sock.reap,
    }
    other[name]()
    if name == "completion":
        sock.put(sock.tx, [(mine[5], 60, 0)])
        sock.complete([mine[5]])
    hand_on, again = (ring.submit, "reserve") if name in ("fill", "tx") else (ring.release, "peek")
    assert refusal(sock, UsageError, lambda: hand_on(1)) == (
        f"the entries are no longer the next ones of the {name.upper()} ring: another call has used it meanwhile\n"
        f"  try: {again}(count) again"
    )


def test_a_packet_is_received_by_one_level_or_by_none(sock):
    mine = sock.take(6)
    sock.put(sock.fill, mine[:3])
    sock.put(sock.fill, mine[3:])
    pieces = [(address, 60, CONTINUES if number % 3 < 2 else 0) for number, address in enumerate(mine)]
    sock.arrive(pieces[:2])
    assert sock.receive(2) == []  # two of three are there
    sock.arrive(pieces[2:5])
    assert sock.check()[Owner.FREE] == 10
    for address in mine[:2]:
        said = refusal(sock, FrameError, lambda address=address: sock.give(address))
        assert said == f"entry 0: the frame of address {address} belongs to a packet of several frames"
    sock.rx.peek(1)
    assert sock.rx.release(1) == 1
    assert (sock.receiver.strays, sock.check()[Owner.FREE]) == (1, 12)
    sock.rx.peek(2)
    assert sock.rx.release(2) == 2  # two of the next three
    sock.arrive(pieces[5:])
    assert sock.receive(8) == []
    assert (sock.receiver.strays, sock.receiver.filled) == (2, 0)
    assert sock.check() == {**dict.fromkeys(Owner, 0), Owner.FREE: 13, Owner.HELD: 3}


def test_frames_of_a_draft_stay_together(sock):
    sock.give(sock.take(16)[::-1])  # each was a packet by itself before
    rows = np.zeros(2, layout(PacketRow))
    rows["length"] = (5000, 60)
    assert draft_batch(sock.pool.address, 256, FRAME - 256, rows.ctypes.data, 2) == 2
    for frame in range(3):
        said = f"entry 0: the frame of address {frame * FRAME} belongs to a packet of several frames"
        assert refusal(sock, FrameError, lambda frame=frame: sock.give(frame * FRAME)) == said
    sock.give(3 * FRAME)


# --- refusals ---------------------------------------------------------------------------------------------------


def several(sock: PlainSocket) -> None:
    """A packet of three frames, 4 to 6, that the batch level has."""
    pieces = sock.take(7)
    sock.give(pieces[:4])
    sock.put(sock.fill, pieces[4:])
    sock.arrive([(address, 60, flags) for address, flags in zip(pieces[4:], (1, 1, 0), strict=True)])
    assert [handle for _, handle, _ in sock.receive(8)] == [4]
    assert sock.table.lines["frames"][4:7].tolist() == [3, 0, 0]


@pytest.fixture
def varied(sock) -> PlainSocket:
    """Frames 0 and 1 are the user's, 2 is in FILL, 3 in TX, 4 to 6 are a packet, 7 and up are free."""
    several(sock)
    mine = sock.take(4)
    assert sorted(mine) == [0, FRAME, 2 * FRAME, 3 * FRAME]
    sock.put(sock.fill, [2 * FRAME])
    sock.put(sock.tx, [(3 * FRAME, 60, 0)])
    return sock


BAD_ADDRESSES = [
    (16 * FRAME, "address 32768 lies in no frame of the packet memory"),
    (2**64 - 1, "address 18446744073709551615 lies in no frame of the packet memory"),
    (1 << 63, "address 9223372036854775808 lies in no frame of the packet memory"),
    (1 << 48, "address 281474976710656 lies in no frame of the packet memory"),
    (7 * FRAME + 5, "the frame of address 14341 is not the caller's"),
    (2 * FRAME + 1, "the frame of address 4097 is not the caller's"),
    (3 * FRAME, "the frame of address 6144 is not the caller's"),
    (1, "the frame of address 1 is named twice"),
    (4 * FRAME, "the frame of address 8192 belongs to a packet of several frames"),
    (5 * FRAME, "the frame of address 10240 belongs to a packet of several frames"),
    (6 * FRAME, "the frame of address 12288 belongs to a packet of several frames"),
]


def refusal(sock: PlainSocket, kind: type[Exception], use) -> str:
    """What is said, and that nothing else happens."""
    before = sock.state()
    with pytest.raises(kind) as caught:
        use()
    assert sock.state() == before
    assert record_view(PacketMemory, sock.table.memory).lock == 0
    sock.check()
    return str(caught.value)


@pytest.mark.parametrize(("address", "said"), BAD_ADDRESSES)
@pytest.mark.parametrize("before", [[], [FRAME]])
def test_fill_takes_frames_of_the_user_only(varied, address, said, before):
    first = [0] if "twice" in said else []
    entries = [*before, *first, address]
    array = varied.fill.reserve(len(entries))
    array[:] = np.array(entries, np.uint64)
    said = f"entry {len(entries) - 1}: {said}"
    assert refusal(varied, FrameError, lambda: varied.fill.submit(len(entries))) == said
    array[-1] = 0 if not first else FRAME
    if len(set(array.tolist())) == len(array):
        varied.fill.submit(len(entries))


@pytest.mark.parametrize(("address", "said"), BAD_ADDRESSES)
def test_tx_takes_frames_of_the_user_only(varied, address, said):
    array = varied.tx.reserve(2)
    array[:] = np.array([(0, 60, 0), (address, 60, 0)], DESCRIPTOR)
    assert refusal(varied, FrameError, lambda: varied.tx.submit(2)) == f"entry 1: {said}"
    array[1] = (FRAME, 60, 0)
    assert varied.tx.submit(2) == 2


@pytest.mark.parametrize(("address", "said"), BAD_ADDRESSES)
def test_the_packet_memory_takes_frames_of_the_user_only(varied, address, said):
    addresses = np.array([FRAME, 0, address], np.uint64)
    assert refusal(varied, FrameError, lambda: varied.give(addresses)) == f"entry 2: {said}"
    assert addresses.tolist() == [FRAME, 0, address]
    varied.give(addresses[:2])


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        (1.0, "1.0"),
        ([0.0], "[0.0]"),
        ("0", "'0'"),
        (None, "None"),
        ([[0]], "[[0]]"),
        ([True], "[True]"),
        ([1 << 64], "[18446744073709551616]"),
        ([[0], [1, 2]], "[[0], [1, 2]]"),
    ],
)
def test_what_is_no_address_cannot_be_given(varied, addresses, said):
    assert refusal(varied, UsageError, lambda: varied.give(addresses)) == (
        f"addresses must be whole numbers, not {said}\n  try: umem.take(1)"
    )


def test_frames_are_given_in_any_form(sock):
    mine = sock.take(7)
    sock.give(mine[0])
    sock.give(np.uint64(mine[1]))
    sock.give(mine[2:4])
    sock.give(np.array(mine[4:6], np.int64)[::-1])
    sock.give([])
    assert (
        refusal(sock, FrameError, lambda: sock.give([-1]))
        == "entry 0: address -1 lies in no frame of the packet memory"
    )
    sock.give((mine[6] + FRAME - 1,))
    assert sock.check()[Owner.FREE] == 16


def test_no_more_frames_are_taken_than_there_are(sock):
    assert len(sock.take(10)) == 10
    assert len(sock.take(10)) == 6
    assert sock.take(10) == []
    assert sock.held() == 16


TOO_LONG = [(frame * FRAME, 9, CONTINUES) for frame in range(4)] + [(4 * FRAME, 9, 0)]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([(0, 0, 0)], "entry 0: no bytes cannot be sent"),
        ([(0, 60, 0), (FRAME + 1, FRAME, 0)], "entry 1: 2048 bytes at address 2049 do not all lie in one frame"),
        ([(0, 2**32 - 1, 0)], "entry 0: 4294967295 bytes at address 0 do not all lie in one frame"),
        ([(0, 60, METADATA)], "entry 0: this socket can do nothing with the options 0x2"),
        ([(0, 60, 1 << 31)], "entry 0: this socket can do nothing with the options 0x80000000"),
        ([(0, 9, 0), (FRAME, 9, 1)], "entry 1: the packet goes on (XDP_PKT_CONTD) in an entry that is not submitted"),
        (TOO_LONG, "entry 4: the packet needs more than 4 descriptors, the most that this socket sends"),
    ],
)
def test_descriptors_that_can_never_be_sent_are_refused(make, entries, said):
    sock = make(before_wrap=8)
    sock.take(6)
    sock.tx.reserve(len(entries))[:] = np.array(entries, DESCRIPTOR)
    assert refusal(sock, UsageError, lambda: sock.tx.submit(len(entries))) == said
    assert sock.put(sock.tx, TOO_LONG[1:]) == 1


def test_without_multi_buffer_no_packet_goes_on(make):
    sock = make(most_frames=1)
    sock.take(2)
    sock.tx.reserve(2)[:] = [(0, 60, CONTINUES), (FRAME, 60, 0)]
    assert refusal(sock, UsageError, lambda: sock.tx.submit(2)) == (
        "entry 0: the packet needs more than 1 descriptors, the most that this socket sends"
    )


def test_metadata_has_room_before_the_packet(make):
    sock = make(tx_metadata_bytes=24)
    sock.take(2)
    for options in (0, METADATA):
        sock.tx.reserve(2)[:] = [(24, FRAME - 24, METADATA), (FRAME + 23, 60, options)]
        assert refusal(sock, UsageError, lambda: sock.tx.submit(2)) == (
            "entry 1: before address 2071 its frame has no room for 24 bytes of metadata"
        )
    sock.put(sock.tx, [(24, FRAME - 24, METADATA), (FRAME + 24, 60, 0)])


def test_unaligned_memory(make):
    size = 3000
    sock = make(unaligned=True, frame_size=size)
    assert sock.take(4) == [0, size, 2 * size, 3 * size]
    sock.put(sock.fill, [size | 256 << 48])  # as RX had it: the kernel looks at the low bits alone
    for address, said in (
        (256, "address 256 is not the first of its frame, as FILL needs it in unaligned memory"),
        (3 * size - 256 | 256 << 48, f"address {3 * size - 256 | 256 << 48} is not the first of its frame"),
        (3 * size | 3000 << 48, "is not the caller's"),
        (15 * size | 3000 << 48, "lies in no frame"),
    ):
        sock.fill.reserve(2)[:] = np.array([2 * size, address], np.uint64)
        assert said in refusal(sock, FrameError, lambda: sock.fill.submit(2))
    sock.tx.reserve(1)[0] = (2 * size | 2000 << 48, 1001, 0)
    assert "do not all lie in one frame" in refusal(sock, UsageError, lambda: sock.tx.submit(1))
    sock.put(sock.tx, [(2 * size | 2000 << 48, 1000, 0)])
    sock.arrive([(size | 300 << 48, 60, 0)])
    sock.complete([2 * size | 2000 << 48])
    sock.rx.peek(1)
    sock.completion.peek(1)
    assert (sock.rx.release(1), sock.completion.release(1)) == (1, 1)
    assert sock.table.lines["address"][1] == sock.umem.address + size + 300
    assert sock.held() == 4
    sock.give([0, size | 300 << 48, 2 * size + 2999, 3 * size])


@pytest.mark.parametrize("ring", ["rx", "tx", "fill", "completion"])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (-1, "{name} must be between 0 and {most}, not -1\n  try: {name}=0"),
        (1 << 64, "{name} must be between 0 and {most}, not 18446744073709551616\n  try: {name}={most}"),
        (1.0, "{name} must be a whole number, not 1.0\n  try: {name}=0"),
        (None, "{name} must be a whole number, not None\n  try: {name}=0"),
        ("1", "{name} must be a whole number, not '1'\n  try: {name}=0"),
        (True, "{name} must be a whole number, not True\n  try: {name}=0"),
    ],
)
def test_numbers_that_are_none_are_refused(sock, ring, number, said):
    end = getattr(sock, ring)
    look, hand_on = (end.peek, end.release) if ring in ("rx", "completion") else (end.reserve, end.submit)
    assert refusal(sock, UsageError, lambda: look(number)) == said.format(name="limit", most=2**32 - 1)
    assert refusal(sock, UsageError, lambda: hand_on(number)) == said.format(name="count", most=0)


def test_no_more_can_be_handed_on_than_was_seen(make):
    sock = make(before_wrap=8)
    mine = sock.take(2)
    sock.put(sock.fill, mine)
    sock.arrive([(address, 60, 0) for address in mine])
    assert "count must be between 0 and 0, not 1" in refusal(sock, UsageError, lambda: sock.rx.release(1))
    sock.rx.peek(1)
    assert "count must be between 0 and 1, not 2" in refusal(sock, UsageError, lambda: sock.rx.release(2))
    assert sock.rx.release(np.int64(1)) == 1
    assert "count must be between 0 and 0, not 1" in refusal(sock, UsageError, lambda: sock.rx.release(1))
    sock.fill.reserve(np.uint8(2))[:] = mine[0]
    assert "count must be between 0 and 2, not 3" in refusal(sock, UsageError, lambda: sock.fill.submit(3))
    sock.fill.submit(0)
    sock.fill.submit(1)
    assert sock.put(sock.tx, []) == 0


def test_a_second_call_is_refused(sock):
    sock.take(1)
    sock.fill.reserve(1)[0] = 0
    sock.arrive([(0, 60, 0)])
    with sock.inside() as _inside:
        for use in (
            lambda: sock.fill.submit(1),
            lambda: sock.rx.release(0),
            lambda: sock.tx.submit(0),
            lambda: sock.completion.release(0),
        ):
            with pytest.raises(UsageError, match="^another call is at work on a plain socket"):
                use()
    sock.fill.submit(1)


@pytest.mark.parametrize("before_wrap", [0, 3])
def test_closed_rings_are_empty(make, before_wrap):
    sock = make(before_wrap=before_wrap)
    sock.take(3)
    held = sock.fill.reserve(2), sock.tx.reserve(2)
    sock.arrive([(0, 60, 0)])
    sock.complete([0])
    sock.rx.peek(1)
    for end in (sock.kernel_rx, sock.kernel_tx, sock.kernel_fill, sock.kernel_completion):
        end.mapped.close()
        end.producer[0] = end.consumer[0] = end.flags[0] = 0
        end.entries[:] = 0
    assert (sock.rx.available, sock.completion.available, sock.fill.free, sock.tx.free) == (0, 0, 0, 0)
    assert not sock.fill.needs_wakeup
    for use in (
        lambda: sock.rx.peek(9),
        lambda: sock.rx.release(1),
        lambda: sock.fill.reserve(9),
        lambda: sock.fill.submit(2),
        lambda: sock.tx.submit(1),
        lambda: sock.completion.release(1),
    ):
        with pytest.raises(UsageError, match="^the socket of a plain socket is closed$"):
            use()
    held[0][:] = 5
    assert held[1].tolist() == [(0, 0, 0)] * 2
    sock.check()


@pytest.mark.parametrize("why", ["closed", "forked"])
def test_compiled_calls_that_come_too_late_are_refused(sock, why):
    """Closed, or in a forked child, after the last look at that."""
    receiver, transmitter = sock.addresses
    if why == "forked":
        sock.receiver.memory = sock.transmitter.memory = 0
        sock.receiver.rx = sock.receiver.fill = sock.transmitter.tx = sock.transmitter.completion = 0
    for end in (sock.kernel_rx, sock.kernel_tx, sock.kernel_fill, sock.kernel_completion):
        assert path.peek(end.mapped.record, 0) & ((1 << path.COUNT_BITS) - 1) == 0
        end.mapped.close()
        end.producer[0] = end.consumer[0] = 0
        assert path.peek(end.mapped.record, 9) == path.reserve(end.mapped.record, 9) == 0
    with scratch(Pool) as (room, _):
        answers = [
            path.release_rx(receiver, 0, 1),
            path.submit_fill(receiver, 0, 1, room),
            path.submit_tx(transmitter, 0, 1, room, 1, 0),
            path.release_completed(transmitter, 0, 1),
        ]
    assert answers == [-path.MOVED] * 4


# --- what the kernel must not say -------------------------------------------------------------------------------


def test_strays_are_skipped_and_counted(sock):
    mine = sock.take(3)
    sock.put(sock.fill, [mine[0]])
    sock.put(sock.tx, [(mine[1], 60, 0)])
    strays = [16 * FRAME, 2**64 - 1, mine[2], 9 * FRAME]
    sock.arrive([(address, 60, 0) for address in strays[:2]] + [(mine[0], 60, 0)])
    sock.complete([*strays[:2], mine[1]])
    sock.rx.peek(3)
    sock.completion.peek(3)
    assert (sock.rx.release(3), sock.completion.release(3)) == (1, 1)
    assert (sock.receiver.strays, sock.transmitter.strays) == (2, 2)
    assert (sock.receiver.filled, sock.transmitter.outstanding, sock.held()) == (0, 0, 3)
    sock.arrive([(address, 60, 0) for address in strays[2:]])
    sock.complete(strays[2:])
    sock.rx.peek(3)
    sock.completion.peek(3)
    assert (sock.rx.release(2), sock.completion.release(2)) == (0, 0)
    assert (sock.receiver.strays, sock.transmitter.strays) == (4, 4)
    assert sock.owners() == [Owner.HELD] * 3 + [Owner.FREE] * 13
    with pytest.raises(FrameError, match="^4 moves did not start where the frame was; the first was frame 2$"):
        sock.check()
