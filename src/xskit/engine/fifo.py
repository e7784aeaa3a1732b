"""The store of a stage that keeps order: a ring of (time, handle, length), 16 bytes a packet.

It never runs full: it has room for every packet that the memory can hold. Times must not fall.
"""

from __future__ import annotations

from xskit.engine.packets import INFINITE_NS
from xskit.engine.sizes import ENTRY_SHIFT
from xskit.jit import inlined
from xskit.memory import I64, Record, record_at


class Entry(Record):
    """A packet in the ring."""

    time_ns: I64
    packet: I64  # handle | length << 32


entry_at = record_at(Entry)


class Fifo(Record):
    """A ring of entries between two free-running indices."""

    entries: I64  # address of the first entry
    mask: I64  # entries - 1, a power of two less one
    head: I64
    tail: I64


fifo_at = record_at(Fifo)


@inlined
def entry_of(fifo: Fifo, position: int) -> Entry:
    """The entry at a free-running index."""
    return entry_at(fifo.entries + ((position & fifo.mask) << ENTRY_SHIFT))


@inlined
def push(fifo: Fifo, time_ns: int, handle: int, length: int) -> None:
    """Append a packet."""
    entry = entry_of(fifo, fifo.tail)
    entry.time_ns = time_ns
    entry.packet = handle | (length << 32)
    fifo.tail += 1


@inlined
def count(fifo: Fifo) -> int:
    """Packets inside."""
    return fifo.tail - fifo.head


@inlined
def head_time(fifo: Fifo) -> int:
    """The time of the first packet, INFINITE_NS when there is none."""
    if fifo.head == fifo.tail:
        return INFINITE_NS
    return entry_of(fifo, fifo.head).time_ns


@inlined
def first_time(fifo: Fifo) -> int:
    """The time of the first packet; there must be one."""
    return entry_of(fifo, fifo.head).time_ns


@inlined
def head_packet(fifo: Fifo) -> int:
    """handle | length << 32 of the first packet; there must be one."""
    return entry_of(fifo, fifo.head).packet


@inlined
def drop_head(fifo: Fifo) -> None:
    """Forget the first packet."""
    fifo.head += 1


@inlined
def packet_at_position(fifo: Fifo, position: int) -> int:
    """handle | length << 32 of the packet at an index between head and tail."""
    return entry_of(fifo, position).packet
