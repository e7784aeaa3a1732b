"""The packet table: one line of 64 bytes for each frame of the packet memory.

A packet is named by its *handle*, the number of a line. A frame is a piece of packet memory, and the line of the same
number is the frame's: a packet received into a frame has that line's number as its handle. Where the bytes lie is what
the line's `address` says, and nothing else: do not compute it from the handle.

One line is one cache line, so that touching a packet costs one miss at most.
"""

from __future__ import annotations

from xskit.jit import i64, inlined
from xskit.memory import I64, U8, U16, U32, Record, record_at
from xskit.xsk.path.sizes import LINE_SHIFT

NIL = 0xFFFF_FFFF
"""No packet, no frame: the end of a chain."""


class PacketLine(Record):
    """One line of the packet table. Fields of the packet as a whole are valid in the line of its first frame.

    `home` and `owner` belong to the frame and outlive the packet; everything else is the packet's.
    """

    address: I64  # first byte of what lies in this frame
    arrived_ns: I64  # when it came in, kernel's stamp or the batch's time
    time_ns: I64  # logical departure; used by the timing wheel, and by an AQM as its time stamp
    length: U32  # bytes of the whole packet; on TX in the line of its last frame, too
    span: U32  # bytes in this frame
    next: U32  # handle of the next packet in a store's list; in FILL and TX the number of the socket that has the frame
    fragment: U32  # next frame of the same packet, or NIL
    number: U32  # counted each time that the frame gets other bytes: tells a packet from those before it
    flow: U32  # hash of addresses, protocol and ports
    kind: U32  # the class that it belongs to
    frames: U16  # frames of the whole packet; 0 where the frame is not its first
    home: U16  # number of the pool that the frame belongs to
    transport: U16  # where its transport header begins, in bytes; 0: not known
    network: U8  # where its IP header begins, in bytes; 0: not known
    protocol: U8  # IP protocol
    copy: U8  # 0: as it came; else the number of the duplicate
    egress: U8  # number of the exit it leaves by; a stage may choose another one than 0
    state: U8  # bits: LAST, REFUSED, SET, KEPT
    owner: U8  # who has the frame (owner.Owner)


LAST = 1
"""State: this frame is the last of its packet."""
REFUSED = 2
"""State: the kernel refused to send this packet."""
SET = 4
"""State: the frames of this packet stay together; the pool gets its first frame back when the last one is completed,
whose `next` says which that is."""
KEPT = 8
"""State: the packet outlives the batch that it came with."""

packet_at = record_at(PacketLine)


@inlined
def packet_line(table: int, handle: int) -> PacketLine:
    """The packet table's line of a handle."""
    return packet_at(table + (handle << LINE_SHIFT))


@inlined
def forget_packet(line: PacketLine) -> None:
    """A frame's line begins to describe another packet, of which nothing is known."""
    line.fragment = NIL
    line.number = i64(line.number) + 1
    line.transport = 0
    line.network = 0
    line.protocol = 0
    line.copy = 0
    line.egress = 0
    line.state = 0
