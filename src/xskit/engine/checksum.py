"""Partial checksums: recognise them on arrival, and finish them in software.

A packet that a stack hands to a veth or tap may carry only the pseudo-header's sum in its TCP or UDP checksum field,
and zero in its SCTP one: the device was to finish it (CHECKSUM_PARTIAL). It must be finished before a stage may corrupt
the packet, and before another stack, which would drop it, can see it. `layers.py` finds the field.

A TCP or UDP field that equals the folded pseudo-header sum is taken for partial. One in 65536 correct checksums looks
the same, and is written again unchanged. One in 65536 wrong checksums looks the same, and is corrected.

RFC 1071 (the sum), RFC 9260 appendix A (CRC32c), RFC 768, RFC 9293 and RFC 8200 section 8.1 (the pseudo-headers).
"""

from __future__ import annotations

from xskit.engine.layers import NOTHING, UNFINISHED, find_partial
from xskit.engine.sums import crc32c_packet, sum_packet
from xskit.jit import as_u8, as_u16, i64, inlined
from xskit.xsk.path.lines import packet_line

COMPLETE, FINISHED, LEFT = 0, 1, 2
"""Results of `finish_checksum`. LEFT: a checksum looks partial and could not be finished."""


@inlined
def finish_checksum(table: int, handle: int) -> int:
    """Finish the partial checksum of a packet, whatever encloses it: COMPLETE, FINISHED or LEFT.

    The innermost is finished first: what encloses it may be partial as well, and covers it.
    """
    below = i64(packet_line(table, handle).span)
    answer = COMPLETE
    while True:
        found = find_partial(table, handle, below)
        if found == NOTHING:
            return answer
        if found == UNFINISHED:
            return LEFT
        below = found & 0xFFFF
        finish(table, handle, below, (found >> 16) & 0xFFFFF, found >> 36)
        answer = FINISHED


@inlined
def finish(table: int, handle: int, start: int, length: int, protocol: int) -> None:
    """Write the checksum of a segment of TCP, UDP or SCTP."""
    segment = packet_line(table, handle).address + start
    if protocol == 132:
        crc = crc32c_packet(table, handle, start, length)
        for number in range(4):
            as_u8(segment + 8)[number] = (crc >> (8 * number)) & 0xFF
        return
    result = sum_packet(table, handle, start, length) ^ 0xFFFF
    if protocol == 17:
        as_u16(segment + 6)[0] = 0xFFFF if result == 0 else result
    else:
        as_u16(segment + 16)[0] = result
