"""The four rings of an AF_XDP socket, seen from user space.

    FILL        we produce frames            the kernel takes them to receive into
    RX          the kernel produces packets  we consume
    TX          we produce packets           the kernel consumes
    COMPLETION  the kernel produces frames   we consume: sent, ours again

A ring is a power-of-two array between two free-running 32-bit indices. The side that writes entries publishes the
producer index with release semantics and the other side reads it with acquire; the same holds the other way round
for the consumer index. Each side caches what it last saw of the other and looks again only when that is not enough
(include/uapi/linux/if_xdp.h, net/xdp/xsk_queue.h).

    consumer          producer
       v                 v
    ---[x][x][x][x][x][x][ ][ ][ ]---     x: entries that the consumer may read

Everything here is compiled code over raw addresses, and works as well on plain memory (tests do).
"""

from __future__ import annotations

from xskit.jit import inlined, load_acquire32, store_release32
from xskit.memory import I64, Record, record_at

INDEX_MASK = 0xFFFF_FFFF
LEAST_TAKEN = 16
"""Packets that a sendto in copy mode takes before it stops by itself (TX_BATCH_SIZE: 16 in 5.10, 32 later)."""

NEED_WAKEUP = 1
"""XDP_RING_NEED_WAKEUP, since Linux 5.4."""
PACKET_CONTINUES = 1
"""XDP_PKT_CONTD in a descriptor's options: the packet goes on in the next descriptor, since Linux 6.6."""
TX_METADATA = 2
"""XDP_TX_METADATA in a descriptor's options: a struct xsk_tx_metadata lies before the packet, since Linux 6.8."""


class Ring(Record):
    """One end of one ring: ours. `local` is our index, `remote` what we last saw of the other side's."""

    producer: I64  # address of the producer index
    consumer: I64  # address of the consumer index
    flags: I64  # address of the flags word
    entries: I64  # address of the first entry
    size: I64
    mask: I64
    local: I64
    remote: I64


class Descriptor(Record):
    """An entry of RX and TX, struct xdp_desc: u64 address, u32 length, u32 options."""

    address: I64
    tail: I64  # length in the low 32 bits, options in the high 32


class FrameAddress(Record):
    """An entry of FILL and COMPLETION."""

    address: I64


ring_at = record_at(Ring)
descriptor_at = record_at(Descriptor)
frame_address_at = record_at(FrameAddress)


@inlined
def room(ring: Ring, wanted: int) -> int:
    """Producer: how many entries may be written now, at most `wanted`."""
    free = ring.size - ((ring.local - ring.remote) & INDEX_MASK)
    if free < wanted:
        ring.remote = load_acquire32(ring.consumer)
        free = ring.size - ((ring.local - ring.remote) & INDEX_MASK)
    return min(free, wanted)


@inlined
def publish(ring: Ring, count: int) -> None:
    """Producer: hand over the `count` entries that were written from `local` on."""
    ring.local = (ring.local + count) & INDEX_MASK
    store_release32(ring.producer, ring.local)


@inlined
def available(ring: Ring, wanted: int) -> int:
    """Consumer: how many entries may be read now, at most `wanted`."""
    ready = (ring.remote - ring.local) & INDEX_MASK
    if ready < wanted:
        ring.remote = load_acquire32(ring.producer)
        ready = (ring.remote - ring.local) & INDEX_MASK
    return min(ready, wanted)


@inlined
def release(ring: Ring, count: int) -> None:
    """Consumer: give back the `count` entries that were read from `local` on."""
    ring.local = (ring.local + count) & INDEX_MASK
    store_release32(ring.consumer, ring.local)


@inlined
def unconsumed(ring: Ring) -> int:
    """Producer: entries that were published and not taken yet."""
    ring.remote = load_acquire32(ring.consumer)
    return (ring.local - ring.remote) & INDEX_MASK


@inlined
def needs_wakeup(ring: Ring) -> bool:
    """The kernel asks for a system call before it goes on with this ring."""
    return (load_acquire32(ring.flags) & NEED_WAKEUP) != 0


@inlined
def write_address(ring: Ring, index: int, address: int) -> None:
    """FILL: the entry `index` places after `local` names a frame by its UMEM address."""
    frame_address_at(ring.entries + (((ring.local + index) & ring.mask) << 3)).address = address


@inlined
def read_address(ring: Ring, index: int) -> int:
    """COMPLETION: the UMEM address in the entry `index` places after `local`."""
    return frame_address_at(ring.entries + (((ring.local + index) & ring.mask) << 3)).address


@inlined
def write_descriptor(ring: Ring, index: int, address: int, length: int, options: int) -> None:
    """TX: the descriptor `index` places after `local`."""
    descriptor = descriptor_at(ring.entries + (((ring.local + index) & ring.mask) << 4))
    descriptor.address = address
    descriptor.tail = length | (options << 32)


@inlined
def descriptor_address(ring: Ring, index: int) -> int:
    """RX: the UMEM address of the descriptor `index` places after `local`."""
    return descriptor_at(ring.entries + (((ring.local + index) & ring.mask) << 4)).address


@inlined
def descriptor_tail(ring: Ring, index: int) -> int:
    """RX: length in the low 32 bits, options in the high 32, of the same descriptor."""
    return descriptor_at(ring.entries + (((ring.local + index) & ring.mask) << 4)).tail
