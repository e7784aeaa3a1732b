"""What becomes of packets: counted for whoever owns their frames, from where they are taken to where they end."""

from __future__ import annotations

from xskit.jit import as_i64, inlined
from xskit.memory import I64, Record, record_at

TX_REFUSED = 4
"""The cause under which a packet counts that the kernel refused to send. Other causes are the engine's."""

CAUSES = 16
"""Room for drop causes."""

DROPS_BYTES = 16 * CAUSES
"""A pair (packets, bytes) for each cause."""


class Books(Record):
    """Packets and bytes of one owner of frames; written under one worker, or under the memory's lock."""

    received: I64
    received_bytes: I64
    sent: I64
    sent_bytes: I64
    in_flight: I64
    in_flight_bytes: I64
    in_flight_frames: I64
    drops: I64  # address of CAUSES pairs (packets, bytes)


books_at = record_at(Books)


@inlined
def count_drop(books: Books, cause: int, length: int) -> None:
    """One packet less in flight, one more dropped by this cause."""
    drops = as_i64(books.drops)
    drops[2 * cause] += 1
    drops[2 * cause + 1] += length
    books.in_flight -= 1
    books.in_flight_bytes -= length
