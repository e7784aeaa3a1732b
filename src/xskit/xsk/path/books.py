"""What becomes of packets: counted for whoever owns their frames, from where they are taken to where they end."""

from __future__ import annotations

from xskit.jit import inlined
from xskit.memory import I64, Record, record_at, size_of

TX_REFUSED = 4
"""The cause under which a packet counts that the kernel refused to send. Other causes are the engine's."""

CAUSES = 16
"""Room for drop causes."""


class Books(Record):
    """Packets and bytes of one owner of frames; written under one worker, or under the memory's lock."""

    received: I64
    received_bytes: I64
    sent: I64
    sent_bytes: I64
    in_flight: I64
    in_flight_bytes: I64
    in_flight_frames: I64
    drops: I64  # address of CAUSES Drop records


class Drop(Record):
    """What was dropped by one cause."""

    packets: I64
    bytes: I64


books_at = record_at(Books)
drop_at = record_at(Drop)

DROP_BYTES = size_of(Drop)
DROPS_BYTES = DROP_BYTES * CAUSES


@inlined
def count_in(books: Books, packets: int, frames: int, length: int) -> None:
    """So many packets, of so many frames and bytes together, are in flight from now on."""
    books.in_flight += packets
    books.in_flight_frames += frames
    books.in_flight_bytes += length


@inlined
def count_drop(books: Books, cause: int, length: int) -> None:
    """One packet less in flight, one more dropped by this cause."""
    drop = drop_at(books.drops + cause * DROP_BYTES)
    drop.packets += 1
    drop.bytes += length
    books.in_flight -= 1
    books.in_flight_bytes -= length
