"""Frame pools: stacks of free frames, and every frame's way from one owner to another (xsk/path/owner.py).

The owner of a frame stands in its line of the packet table. A move that does not start where the frame is, is not made:
it is counted, and the frame stays where it is.

    PacketMemory --> packet table, a line for each frame
                 --> Pool 0, Pool 1, ...     the free frames of each owner, a stack each
                 --> lock                    where several threads share the memory
"""

from __future__ import annotations

from xskit.jit import exchange64, external, i64, inlined, store_release64, unlikely
from xskit.memory import I64, U32, Record, offset_of, record_at
from xskit.xsk.path.lines import NIL, PacketLine, packet_line
from xskit.xsk.path.owner import Owner

FREE, FILL, HELD, TX = int(Owner.FREE), int(Owner.FILL), int(Owner.HELD), int(Owner.TX)
"""What a line says; what lies in a ring counts as given to the kernel."""

POOL_SHIFT = 6
POOL_BYTES = 1 << POOL_SHIFT

OFFSET_SHIFT = 48
ADDRESS_MASK = (1 << OFFSET_SHIFT) - 1
"""Unaligned mode has the offset in the frame in the bits above (include/uapi/linux/if_xdp.h)."""


class PacketMemory(Record):
    """Packet memory as compiled code sees it."""

    base: I64  # address of UMEM offset 0; 0: frames have no bytes (virtual time)
    frames: I64
    frame_bytes: I64
    frame_shift: I64  # log2 of the frame size; -1 where it is no power of two, or addresses are unaligned
    unaligned: I64  # 1: addresses have the offset in the frame in their top bits
    table: I64  # address of the packet table
    pools: I64  # address of Pool records, POOL_BYTES each
    shared: I64  # 1: several threads use it, each batch under the lock
    lock: I64


class Pool(Record):
    """The free frames of one owner: a stack, so that the frame freed last, still in the cache, goes out first."""

    frames: I64  # address of the stack, u32 each
    count: I64
    capacity: I64
    memory: I64  # address of the PacketMemory
    books: I64  # address of the Books of whose frames they are
    violations: I64  # moves that did not start where the frame was
    violated: I64  # the first such frame
    first: I64  # number of the first frame that belongs here


class FreeFrame(Record):
    """One place of the stack."""

    frame: U32


memory_at = record_at(PacketMemory)
pool_at = record_at(Pool)
free_frame_at = record_at(FreeFrame)

LOCK = offset_of(PacketMemory, "lock")
_SPINS = 64

_sched_yield = external("sched_yield", "int32")


@inlined
def lock(memory: PacketMemory, address: int) -> None:
    """Wait until no other thread has the memory, where there are others."""
    if memory.shared:
        spins = i64(0)
        while exchange64(address + LOCK, 1) != 0:
            spins += 1
            if spins > _SPINS:
                _sched_yield()


@inlined
def unlock(memory: PacketMemory, address: int) -> None:
    """Let others have the memory."""
    if memory.shared:
        store_release64(address + LOCK, 0)


@inlined
def frame_of(memory: PacketMemory, address: int) -> int:
    """The frame that an address in a ring means; -1 where it means none of this memory."""
    if unlikely(memory.frame_shift < 0):
        frame = offset_of_address(memory, address) // memory.frame_bytes
    else:
        frame = address >> memory.frame_shift
    return frame if 0 <= frame < memory.frames else i64(-1)


@inlined
def offset_of_address(memory: PacketMemory, address: int) -> int:
    """The byte offset that an address in a ring means."""
    if memory.unaligned:
        return (address & ADDRESS_MASK) + ((address >> OFFSET_SHIFT) & 0xFFFF)
    return address


@inlined
def pool_of(memory: PacketMemory, line: PacketLine) -> Pool:
    """The pool that a frame belongs to."""
    return pool_at(memory.pools + (i64(line.home) << POOL_SHIFT))


@inlined
def move(pool: Pool, line: PacketLine, frame: int, origin: int, target: int) -> bool:
    """The frame goes from one owner to another. False where it was elsewhere: that is counted, and nothing moves."""
    if unlikely(i64(line.owner) != origin):
        if pool.violations == 0:
            pool.violated = frame
        pool.violations += 1
        return False
    line.owner = target
    return True


@inlined
def give_frame(pool: Pool, frame: int) -> None:
    """A frame comes home; its owner is FREE already."""
    free_frame_at(pool.frames + (pool.count << 2)).frame = frame
    pool.count += 1


@inlined
def take_frame(pool: Pool) -> int:
    """A free frame, to be moved on; the caller has seen that there is one."""
    pool.count -= 1
    return i64(free_frame_at(pool.frames + (pool.count << 2)).frame)


@inlined
def give_packet(memory: PacketMemory, handle: int) -> int:
    """All frames of a held packet come home; returns how many they were. It ends at a frame that is not held, which may
    be another packet's by now."""
    line = packet_line(memory.table, handle)
    pool = pool_of(memory, line)
    if not move(pool, line, handle, HELD, FREE):
        return 0
    give_frame(pool, handle)
    following = i64(line.fragment)
    return 1 if following == NIL else 1 + give_fragments(memory, following)


@inlined
def give_fragments(memory: PacketMemory, frame: int) -> int:
    """As `give_packet`, from a later frame of the packet on."""
    count = i64(0)
    while frame != NIL:
        line = packet_line(memory.table, frame)
        pool = pool_of(memory, line)
        if not move(pool, line, frame, HELD, FREE):
            break
        give_frame(pool, frame)
        frame = i64(line.fragment)
        count += 1
    return count
