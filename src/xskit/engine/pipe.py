"""A pipeline's block: its head (where the packet table is, where an update waits) and the offsets of its stages."""

from __future__ import annotations

from dataclasses import dataclass

from xskit.memory import I64, Record, offset_of, record_at, size_of


class Pipe(Record):
    """Every field but the last four is set before the pipeline runs."""

    table: I64  # address of the packet table
    pool: I64  # address of the Pool
    memory: I64  # address of the PacketMemory
    exits: I64  # address of Exit records, one for each port that packets may leave by
    exit_count: I64
    counters: I64
    capacity_frames: I64  # frames that may be inside
    parameters_bytes: I64
    watermark_ns: I64  # everything up to here is final
    effective_ns: I64  # when the parameters to come take force; then, when they did: not before what is final
    pending: I64  # 1 while there are parameters to come


pipe_at = record_at(Pipe)

PENDING_OFFSET = offset_of(Pipe, "pending")
PARAMETERS_OFFSET = (size_of(Pipe) + 63) // 64 * 64


@dataclass(frozen=True)
class StageOffsets:
    """Where a stage's records lie in the block."""

    parameters: int
    state: int
    random: int
