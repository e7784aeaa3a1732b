"""RX into a batch and FILL kept full, on ordinary memory: whatever the kernel writes there, no frame is lost."""

from __future__ import annotations

import errno
import itertools

import numpy as np
import pytest

from tests.pure.support_kernel import FRAME_BYTES, HEADROOM_BYTES
from tests.pure.support_path import PlainPath, path
from xskit.xsk.path.lines import KEPT, NIL
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import OFFSET_SHIFT
from xskit.xsk.path.rings import PACKET_CONTINUES

CONTINUES = PACKET_CONTINUES << 32
PACKET = bytes(range(100))
LONG = bytes(n % 251 for n in range(5000))
STAMP_NS = 1_234_567_890_123


def raw(made: PlainPath, address: int, length: int = 60, continues: bool = False) -> None:
    """The kernel writes this descriptor, whatever it means."""
    made.queues[0].rx.put(address, length | (CONTINUES if continues else 0))


def received(made: PlainPath, most: int = 64) -> list[bytes]:
    """The bytes of what comes."""
    return [made.data(packet.handle) for packet in made.receive(most)]


# --- packets ----------------------------------------------------------------------------------------------------


def test_a_packet_is_an_entry_and_its_frame_is_held() -> None:
    with path() as made:
        made.queues[0].receive(PACKET, stamp_ns=STAMP_NS)
        (packet,) = made.receive()
        assert (packet.length, packet.time_ns) == (100, STAMP_NS)
        assert made.data(packet.handle) == PACKET
        assert made.owner(packet.handle) == Owner.HELD
        line = made.line(packet.handle)
        assert (line.length, line.span, line.frames, line.fragment) == (100, 100, 1, NIL)
        assert line.address == made.memory.address + packet.handle * FRAME_BYTES + HEADROOM_BYTES
        assert made.receive() == []
        assert made.receiver().filled == 15
        made.check()


@pytest.mark.parametrize("spans", [(), (14,), (100, 1, 1, 1)])
def test_a_packet_of_several_frames_is_one_entry(spans) -> None:
    with path() as made:
        made.queues[0].receive(LONG, stamp_ns=STAMP_NS, spans=spans)
        made.queues[0].receive(PACKET)
        long, short = made.receive()
        assert (long.length, long.time_ns) == (5000, STAMP_NS)
        assert made.data(long.handle) == LONG
        frames = made.frames_of(long.handle)
        assert made.line(long.handle).frames == len(frames) == len(spans) + -(-(5000 - sum(spans)) // 1792)
        assert {made.owner(frame) for frame in frames} == {Owner.HELD}
        assert made.data(short.handle) == PACKET
        made.check()


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_packet_whose_frames_come_in_several_batches_is_one(most) -> None:
    """A batch ends in the middle of it, wherever that is."""
    with path() as made:
        queue = made.queues[0]
        for number in range(3):
            assert queue.receive(bytes([number]) * 4000, spans=(10, 10), stamp_ns=STAMP_NS + number)
        found = list(itertools.chain.from_iterable(made.receive(most) for _ in range(-(-15 // most))))
        assert [(made.data(packet.handle), packet.time_ns) for packet in found] == [
            (bytes([number]) * 4000, STAMP_NS + number) for number in range(3)
        ]
        assert made.receiver().head == NIL
        made.check()


def test_a_packet_that_rx_shows_only_in_part_is_waited_for() -> None:
    with path() as made:
        rx = made.queues[0].rx
        made.queues[0].receive(LONG)
        end = rx.position
        for shown in (1, 2, 2):  # of three frames; one look brings none
            rx.position = end - 3 + shown
            rx.publish_produced()
            assert made.receive() == []
        made.check(lost=1)  # the third frame, for the moment
        rx.position = end
        rx.publish_produced()
        assert received(made) == [LONG]


@pytest.mark.parametrize(("most", "count", "come"), [(64, 0, 5), (2, 0, 2), (0, 0, 0), (8, 6, 2), (6, 6, 0), (3, 6, 0)])
def test_a_batch_ends_at_most(most, count, come) -> None:
    with path() as made:
        for _ in range(5):
            made.queues[0].receive(PACKET)
        assert len(made.receive(most, count=count)) == come
        made.check()
        assert len(made.receive()) == 5 - come


def test_what_was_known_of_the_packet_before_is_forgotten() -> None:
    with path(frames=1, entries=1) as made:
        made.queues[0].receive(PACKET)
        (first,) = made.receive()
        line = made.line(first.handle)
        number = line.number
        line.transport, line.network, line.copy, line.egress, line.state, line.fragment = 34, 14, 1, 2, KEPT, 7
        line.fragment = NIL
        made.give(first.handle)
        made.refill()
        made.queues[0].receive(PACKET)
        (second,) = made.receive()
        assert second.handle == first.handle
        assert (line.transport, line.network, line.copy, line.egress, line.state) == (0, 0, 0, 0, 0)
        assert line.number == number + 1


@pytest.mark.parametrize("most", [1, 3, 64])
def test_what_came_is_counted_in_packets_frames_and_bytes(most) -> None:
    with path() as made:
        receiver = made.receiver()
        raw(made, -1, 7)
        for data in (PACKET, LONG, PACKET):
            made.queues[0].receive(data)
        for _ in range(6):
            made.receive(most)
        assert (receiver.packets, receiver.frames, receiver.bytes, receiver.strays) == (3, 5, 5200, 1)


# --- dropped unseen ---------------------------------------------------------------------------------------------


def test_what_is_recycled_goes_round_and_stays_fills() -> None:
    """Often enough for both rings to wrap, at different places."""
    with path(frames=8, entries=16) as made:
        queue, receiver = made.queues[0], made.receiver()
        for number in range(1, 30):
            assert queue.receive(PACKET)
            assert queue.receive(LONG)
            assert made.recycle() == 4
            assert (receiver.packets, receiver.frames, receiver.bytes) == (2 * number, 4 * number, 5100 * number)
            made.check()
        assert (receiver.strays, receiver.fill_fails) == (0, 0)
        assert made.recycle() == 0


def test_no_more_than_a_batch_is_recycled_and_a_packet_cut_by_its_end_is_one() -> None:
    with path() as made:
        made.queues[0].receive(LONG)
        assert [made.recycle(2), made.receiver().packets] == [2, 0]
        assert [made.recycle(2), made.receiver().packets] == [1, 1]
        made.check()


@pytest.mark.parametrize(("frame_bytes", "unaligned"), [(2048, False), (2048, True), (3000, True)])
def test_an_address_outside_of_the_memory_is_not_recycled(frame_bytes, unaligned) -> None:
    with path(entries=32, frame_bytes=frame_bytes, unaligned=unaligned) as made:
        queue, size = made.queues[0], 16 * frame_bytes
        strays = [size, (1 << 48) - 1] if unaligned else [-1, -(1 << 63), size, 1 << 40, (1 << 63) - 1]
        for stray in strays:
            queue.receive(PACKET)
            raw(made, stray)
            queue.receive(PACKET)
        assert made.recycle() == 3 * len(strays)
        receiver = made.receiver()
        assert (receiver.packets, receiver.bytes, receiver.strays) == (2 * len(strays), 200 * len(strays), len(strays))
        if unaligned:  # else the kernel itself cuts off the place in the frame
            assert sorted(queue.fill.shown()) == [frame * frame_bytes for frame in range(16)]
        made.check()


def test_what_fill_has_no_room_for_waits_in_rx() -> None:
    """The kernel has taken frames, but has not said so: its index stands still."""
    with path() as made:
        queue, receiver = made.queues[0], made.receiver()
        for frame in [queue.fill.take()[0] for _ in range(6)]:
            raw(made, frame + HEADROOM_BYTES)
        assert (made.recycle(), receiver.packets, receiver.fill_fails) == (0, 0, 1)
        queue.fill.publish_taken()
        assert (made.recycle(), receiver.packets, receiver.fill_fails) == (6, 6, 1)
        made.check()


# --- stamps -----------------------------------------------------------------------------------------------------


def test_a_stamp_is_used_up_so_that_a_later_packet_cannot_find_it() -> None:
    with path() as made:
        made.queues[0].receive(PACKET, stamp_ns=STAMP_NS)
        (packet,) = made.receive()
        assert made.memory.array(1, np.int64, packet.handle * FRAME_BYTES + HEADROOM_BYTES - 8)[0] == 0
        assert made.line(packet.handle).arrived_ns == STAMP_NS


def test_without_a_program_that_stamps_the_bytes_before_a_packet_are_left_alone() -> None:
    with path() as made:
        made.receiver().stamped = 0
        made.queues[0].receive(PACKET, stamp_ns=STAMP_NS)
        (packet,) = made.receive()
        assert packet.time_ns == 0
        assert made.memory.array(1, np.int64, packet.handle * FRAME_BYTES + HEADROOM_BYTES - 8)[0] == STAMP_NS


@pytest.mark.parametrize(("place", "stamped"), [(0, False), (7, False), (8, True)])
def test_a_stamp_lies_in_the_frame_of_its_packet(place, stamped) -> None:
    """The bytes before a frame are another frame's."""
    with path() as made:
        made.memory.array(made.memory.size, np.uint8)[:] = 0x11
        made.queues[0].take_frame()
        frame = made.queues[0].take_frame()
        raw(made, frame + place)
        before = made.memory.array(made.memory.size, np.uint8).tobytes()
        (packet,) = made.receive()
        assert packet.time_ns == (0x1111_1111_1111_1111 if stamped else 0)
        assert (made.memory.array(made.memory.size, np.uint8).tobytes() == before) is not stamped
        assert made.memory.array(FRAME_BYTES, np.uint8).tobytes() == b"\x11" * FRAME_BYTES


# --- addresses --------------------------------------------------------------------------------------------------

OUTSIDE = [-1, -FRAME_BYTES, -(1 << 63), 16 * FRAME_BYTES, 1 << 40, (1 << 48) + 256, (1 << 63) - 1]


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_outside_of_the_memory_is_a_stray(address, continues) -> None:
    with path() as made:
        raw(made, address, continues=continues)
        if continues:
            raw(made, address)
        made.queues[0].receive(PACKET)
        assert received(made) == [PACKET]
        assert made.receiver().strays == (2 if continues else 1)
        assert made.pools[0].view.violations == 0
        made.check()


@pytest.mark.parametrize(("place", "length", "whole"), [(256, 1792, True), (256, 1793, False), (2047, 1, True),
                                                        (2047, 2, False), (0, 0xFFFF_FFFF, False)])  # fmt: skip
def test_a_packet_ends_in_its_frame(place, length, whole) -> None:
    with path() as made:
        made.receiver().stamped = 0
        raw(made, made.queues[0].take_frame() + place, length)
        assert [packet.length for packet in made.receive()] == ([length] if whole else [])
        assert made.receiver().strays == (0 if whole else 1)
        assert made.pools[0].free == (0 if whole else 1), "its frame came home"
        made.check()


@pytest.mark.parametrize("frame_bytes", [2048, 3000, 3008, 4096])
def test_in_unaligned_mode_the_offset_is_in_the_top_bits(frame_bytes) -> None:
    with path(frame_bytes=frame_bytes, unaligned=True) as made:
        made.queues[0].receive(PACKET, stamp_ns=STAMP_NS)
        made.queues[0].receive(LONG)
        assert made.queues[0].rx.shown()[1] >> OFFSET_SHIFT == HEADROOM_BYTES
        short, long = made.receive()
        assert (short.time_ns, made.data(short.handle), made.data(long.handle)) == (STAMP_NS, PACKET, LONG)
        assert made.line(short.handle).address == made.memory.address + short.handle * frame_bytes + HEADROOM_BYTES
        made.check()


@pytest.mark.parametrize("offset", [3000, 0x7FFF, 0x8000, 0xFFFF])
def test_an_offset_in_the_top_bits_may_lead_into_another_frame_and_is_the_address_all_the_same(offset) -> None:
    """Above 0x7FFF, the address is negative."""
    with path(frame_bytes=3000, unaligned=True, frames=16) as made:
        made.receiver().stamped = 0
        address = offset << OFFSET_SHIFT
        raw(made, address - (1 << 64) if address >> 63 else address, 10)
        found = made.receive()
        if offset < 16 * 3000:
            (packet,) = found
            assert packet.handle == offset // 3000
            assert made.line(packet.handle).address == made.memory.address + offset
        else:
            assert (found, made.receiver().strays) == ([], 1)


@pytest.mark.parametrize("address", [16 * 3000, -1, (0xFFFF << 48) - (1 << 64), (1 << 48) - 1])
def test_an_address_outside_of_unaligned_memory_is_a_stray(address) -> None:
    with path(frame_bytes=3000, unaligned=True) as made:
        raw(made, address)
        made.queues[0].receive(PACKET)
        assert received(made) == [PACKET]
        assert made.receiver().strays == 1
        made.check()


@pytest.mark.parametrize("frame_bytes", [3000, 1 << 11])
def test_frames_are_found_whatever_their_size(frame_bytes) -> None:
    with path(frame_bytes=frame_bytes) as made:
        for number in range(16):
            made.queues[0].receive(bytes([number]) * 60)
        assert received(made) == [bytes([number]) * 60 for number in range(16)]
        assert [made.table.frame_of(n * frame_bytes + end) for n in range(16) for end in (0, frame_bytes - 1)] == [
            number for number in range(16) for _ in range(2)
        ]
        assert made.table.frame_of(16 * frame_bytes) == made.table.frame_of(-1) == -1


# --- frames that the kernel does not have -----------------------------------------------------------------------


@pytest.mark.parametrize("apart", [False, True])
def test_a_frame_that_comes_twice_is_taken_once(apart) -> None:
    with path() as made:
        made.queues[0].receive(PACKET)
        if apart:
            assert received(made) == [PACKET]
        raw(made, HEADROOM_BYTES)
        made.queues[0].receive(PACKET)
        assert received(made) == [PACKET] * (1 if apart else 2)
        assert (made.receiver().strays, made.pools[0].view.violations, made.pools[0].view.violated) == (1, 1, 0)
        made.check()


def test_a_frame_that_the_kernel_was_not_given_stays_where_it_is() -> None:
    with path(frames=32) as made:
        made.queues[0].receive(PACKET)
        (packet,) = made.receive()
        made.send(packet.handle)
        raw(made, packet.handle * FRAME_BYTES)  # TX
        raw(made, 31 * FRAME_BYTES)  # FREE
        assert made.receive() == []
        assert (made.receiver().strays, made.pools[0].view.violations, made.pools[0].view.violated) == (2, 2, 0)
        assert (made.owner(packet.handle), made.owner(31)) == (Owner.TX, Owner.FREE)
        made.check()


@pytest.mark.parametrize("most", [1, 64])
def test_the_rest_of_a_packet_that_begins_with_a_frame_of_others_is_lost_with_it(most) -> None:
    with path(frames=32) as made:
        raw(made, 31 * FRAME_BYTES, continues=True)  # FREE
        raw(made, made.queues[0].take_frame() + HEADROOM_BYTES, continues=True)
        raw(made, made.queues[0].take_frame() + HEADROOM_BYTES)
        made.queues[0].receive(PACKET)
        assert [made.data(packet.handle) for _ in range(4) for packet in made.receive(most)] == [PACKET]
        assert (made.receiver().strays, made.pools[0].view.violations, made.pools[0].free) == (3, 1, 18)
        made.check()


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("most", [1, 64])
def test_a_packet_of_which_a_piece_is_a_stray_is_lost_as_a_whole(place, beyond, most) -> None:
    """Joined without the piece, or with the next packet, it would be one that nobody sent."""
    with path() as made:
        queue = made.queues[0]
        queue.receive(PACKET)
        for number in range(4):
            if number == place and not beyond:
                raw(made, -1, 100, continues=number < 3)
            else:
                length = 1793 if number == place else 100
                raw(made, queue.take_frame() + HEADROOM_BYTES, length, continues=number < 3)
        queue.receive(LONG)
        queue.receive(PACKET)
        found = [made.data(packet.handle) for _ in range(12) for packet in made.receive(most)]
        assert found == [PACKET, LONG, PACKET]
        assert made.receiver().strays == 4 - place
        assert made.pools[0].free == (4 if beyond else 3), "the others' frames came home"
        assert made.pools[0].view.violations == 0
        made.check()


# --- FILL -------------------------------------------------------------------------------------------------------


def test_fill_is_filled_up_to_its_target_and_no_further() -> None:
    with path(frames=40) as made:
        receiver = made.receiver()
        assert (receiver.filled, made.queues[0].fill.filled, made.pools[0].free) == (16, 16, 24)
        assert made.queues[0].fill.shown() == [frame * FRAME_BYTES for frame in range(16)]
        made.refill()
        assert made.queues[0].fill.filled == 16
        receiver.target = 12
        for _ in range(6):
            made.queues[0].receive(PACKET)
        assert len(made.receive()) == 6
        made.refill()
        assert (receiver.filled, made.queues[0].fill.filled, made.pools[0].free) == (12, 12, 22)
        assert receiver.fill_fails == 0
        made.check()


def test_each_frame_in_fill_says_whose_it_is() -> None:
    with path(queues=2, frames=16, entries=8) as made:
        assert made.table.lines["next"].tolist() == [10] * 8 + [11] * 8
        assert made.table.lines["home"].tolist() == [0] * 8 + [1] * 8


def test_a_pool_that_is_empty_fills_as_far_as_it_can() -> None:
    with path(frames=5) as made:
        receiver = made.receiver()
        assert (receiver.filled, made.pools[0].free) == (5, 0)
        made.refill()
        assert (receiver.filled, receiver.fill_fails) == (5, 0)
        made.queues[0].receive(PACKET)
        (packet,) = made.receive()
        made.give(packet.handle)
        made.refill()
        assert (receiver.filled, made.pools[0].free) == (5, 0)
        made.check()


def test_where_fill_has_no_room_frames_wait_at_home_and_that_is_counted() -> None:
    """The kernel has taken frames, but has not said so: its index stands still."""
    with path(frames=40) as made:
        queue = made.queues[0]
        taken = [queue.fill.take()[0] for _ in range(6)]
        for frame in taken:
            raw(made, frame + HEADROOM_BYTES)
        assert len(made.receive()) == 6
        made.refill()
        assert (made.receiver().filled, made.pools[0].free, made.receiver().fill_fails) == (10, 24, 1)
        queue.fill.publish_taken()
        made.refill()
        assert (made.receiver().filled, made.pools[0].free, queue.fill.filled) == (16, 18, 16)
        made.check()


def test_a_frame_that_is_on_the_stack_by_mistake_does_not_go_to_the_kernel() -> None:
    with path(frames=20) as made:
        made.queues[0].receive(PACKET)
        (packet,) = made.receive()
        wrong = int(made.pools[0].stack()[-1])
        made.line(wrong).owner = Owner.HELD
        made.refill()
        assert made.queues[0].fill.filled == made.receiver().filled == 15
        assert made.pools[0].free == 3
        assert wrong * FRAME_BYTES not in made.queues[0].fill.shown()
        assert (made.pools[0].view.violations, made.pools[0].view.violated) == (1, wrong)
        made.refill()
        assert made.queues[0].fill.filled == made.receiver().filled == 16
        assert made.owner(packet.handle) == made.owner(wrong) == Owner.HELD


def test_the_kernel_is_called_where_it_asks_for_that() -> None:
    with path() as made:
        receiver = made.receiver()
        assert (made.wake(), receiver.kicks) == (0, 0)
        assert (made.wake(always=1), receiver.kicks) == (errno.ENOTSOCK, 1)
        made.queues[0].fill.need_wakeup(True)
        assert (made.wake(), receiver.kicks) == (errno.ENOTSOCK, 2)
        made.queues[0].fill.need_wakeup(False)
        receiver.busy_poll = 1
        assert (made.wake(), receiver.kicks) == (errno.ENOTSOCK, 3)
