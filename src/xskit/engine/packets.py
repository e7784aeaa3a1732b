"""Packets inside the engine: the packet table and the frame pool.

Every frame of the packet memory has one line in the packet table; the packet that begins in a frame is named by
that frame's number, its *handle*. A pipeline sees handles, lengths and times, and a packet's bytes by address; it
never sees UMEM offsets or rings. One line is one cache line, so that touching a packet costs one miss at most.
"""

from __future__ import annotations

from enum import IntEnum

from xskit.engine.sizes import LINE_SHIFT
from xskit.jit import as_i64, as_u8, i64, inlined
from xskit.memory import I64, U32, Record, record_at
from xskit.xsk.pool import Owner

NIL = 0xFFFF_FFFF
"""No packet, no frame: the end of a chain."""

INFINITE_NS = 1 << 62
"""Never: later than any time."""


class PacketLine(Record):
    """One line of the packet table. Fields of the packet as a whole are valid in the line of its first frame."""

    address: I64  # first byte of what lies in this frame
    arrived_ns: I64  # when it came in, kernel's stamp or the batch's time
    time_ns: I64  # logical departure; used by the timing wheel
    length: U32  # bytes of the whole packet; on TX in the line of its last frame, too
    span: U32  # bytes in this frame
    next: U32  # handle of the next packet in a store's list
    fragment: U32  # next frame of the same packet, or NIL
    frames: U32  # frames of the whole packet
    state: U32  # bits: LAST, REFUSED
    egress: U32  # number of the exit it leaves by; a stage may choose another one than 0


LAST = 1
"""State: this frame is the last of its packet."""
REFUSED = 2
"""State: the kernel refused to send this packet."""

packet_at = record_at(PacketLine)


@inlined
def packet_line(table: int, handle: int) -> PacketLine:
    """The packet table's line of a handle."""
    return packet_at(table + (handle << LINE_SHIFT))


FREE, FILL, HELD, TX = int(Owner.FREE), int(Owner.FILL), int(Owner.HELD), int(Owner.TX)
"""Where a frame is. Kept for each frame in debug mode, where every move is checked; what lies in a ring counts as given
to the kernel."""


class DirectionPool(Record):
    """The free frames of one direction: a stack, so that the frame freed last, still in the cache, goes out first."""

    frames: I64  # address of the stack, u32 each
    count: I64
    capacity: I64
    owners: I64  # address of one byte a frame in debug mode, else 0
    violations: I64  # moves that did not start where the frame was
    violated: I64  # the first such frame
    base: I64  # number of the first frame that belongs here
    frame_shift: I64  # log2 of the frame size; 0 in virtual time, where frames have no memory


pool_at = record_at(DirectionPool)


class FreeFrame(Record):
    """One place of the stack."""

    frame: U32


free_frame_at = record_at(FreeFrame)


@inlined
def move(pool: DirectionPool, frame: int, origin: int, target: int) -> None:
    """Debug mode: the frame goes from one owner to another; a frame that was elsewhere is a violation."""
    if pool.owners != 0:
        owners = as_u8(pool.owners)
        if owners[frame] != origin:
            if pool.violations == 0:
                pool.violated = frame
            pool.violations += 1
        owners[frame] = target


@inlined
def give_frame(pool: DirectionPool, frame: int) -> None:
    """A frame comes home."""
    free_frame_at(pool.frames + (pool.count << 2)).frame = frame
    pool.count += 1


@inlined
def take_frame(pool: DirectionPool) -> int:
    """A free frame; the caller has seen that there is one."""
    pool.count -= 1
    return i64(free_frame_at(pool.frames + (pool.count << 2)).frame)


@inlined
def give_packet(pool: DirectionPool, table: int, handle: int) -> int:
    """All frames of a held packet come home; returns how many they were."""
    count = 0
    while handle != NIL:
        following = i64(packet_line(table, handle).fragment)
        move(pool, handle, HELD, FREE)
        give_frame(pool, handle)
        handle = following
        count += 1
    return count


class DropCause(IntEnum):
    """Why a packet did not come out."""

    LOSS = 1
    """The loss stage decided so."""
    QUEUE_FULL = 2
    """The bottleneck's queue was at its limit."""
    MEMORY_FULL = 3
    """The planned packet memory was used up; the report says which number to set."""
    TX_REFUSED = 4
    """The kernel refused to send it (no carrier, too long, a full qdisc): EBUSY from sendto."""
    PORT_DOWN = 5
    """The egress port was down or gone when the packet was due."""
    SUPER_PACKET = 6
    """Longer than the ingress port's own MTU: a sender's segmentation offload, or receive offload, is on."""
    TOO_MANY_FRAGMENTS = 7
    """More frames than a packet may have on TX."""
    EGRESS_MTU = 8
    """Longer than the egress port may send, though the ingress port's MTU allows it."""


CAUSES = 16
"""Room for drop causes."""


class Counters(Record):
    """What happened to the packets of one direction; written by its worker only."""

    received: I64
    received_bytes: I64
    duplicated: I64
    duplicated_bytes: I64
    injected: I64
    injected_bytes: I64
    sent: I64
    sent_bytes: I64
    in_flight: I64
    in_flight_bytes: I64
    in_flight_frames: I64
    peak_frames: I64
    clamped: I64  # arrivals stamped before the watermark
    clamped_ns: I64  # by how much at most
    unstamped: I64  # arrivals without a kernel stamp
    marked: I64  # given ECN's CE
    checksums: I64  # packets whose partial checksum was finished in software
    unfinished: I64  # packets that went on with a checksum that looks partial
    updates: I64
    clock_ns: I64  # the time of the last batch
    drops: I64  # address of CAUSES pairs (packets, bytes)


counters_at = record_at(Counters)


@inlined
def count_drop(counters: Counters, cause: int, length: int) -> None:
    """One packet less in flight, one more dropped by this cause."""
    drops = as_i64(counters.drops)
    drops[2 * cause] += 1
    drops[2 * cause + 1] += length
    counters.in_flight -= 1
    counters.in_flight_bytes -= length
