"""The lock of packet memory that threads share: with it no frame is lost or doubled, and without it some are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from xskit.jit import DISABLED, compiled, exchange64, external, load_acquire64
from xskit.memory import Region, record_view
from xskit.xsk.path.lines import packet_line
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import (
    FREE,
    HELD,
    PacketMemory,
    give_frame,
    lock,
    memory_at,
    move,
    pool_at,
    take_frame,
    unlock,
)
from xskit.xsk.path.table import FramePool, PacketTable

FRAMES = 4096
THREADS = 2

_sched_yield = external("sched_yield", "int32")


@compiled("int64(int64, int64, int64)")
def take_and_give(address: int, rounds: int, started: int) -> int:
    """Take a frame of the Pool at an address and give it back, again and again; returns the moves that went wrong.

    It begins when all threads have begun: `started` is the address of a word for each.
    """
    pool = pool_at(address)
    memory = memory_at(pool.memory)
    mine = exchange64(started + 8 * THREADS, 1)  # the first thread finds 0, the second 1
    exchange64(started + 8 * mine, 1)
    for other in range(THREADS):
        while load_acquire64(started + 8 * other) == 0:
            _sched_yield()
    wrong = 0
    for _ in range(rounds):
        lock(memory, pool.memory)
        frame = take_frame(pool)
        line = packet_line(memory.table, frame)
        wrong += not move(pool, line, frame, FREE, HELD)
        unlock(memory, pool.memory)
        lock(memory, pool.memory)
        wrong += not move(pool, line, frame, HELD, FREE)
        give_frame(pool, frame)
        unlock(memory, pool.memory)
    return wrong


def hammered(shared: bool, rounds: int) -> bool:
    """Two threads on one pool; whether each frame is in one place afterwards, and every move was right.

    Half of the frames are out, so that a pool whose count goes wrong stays in its memory: by one a move at most.
    """
    assert 2 * THREADS * rounds < FRAMES or shared
    with (
        PacketTable(FRAMES, shared=shared) as table,
        FramePool(table, 0, FRAMES) as pool,
        Region(4096) as words,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        started = words.array(THREADS + 1, np.int64)
        pool.view.count = FRAMES // 2
        table.lines["owner"][: FRAMES // 2] = Owner.TX
        running = [threads.submit(take_and_give, pool.address, rounds, words.address) for _ in range(THREADS)]
        wrong = sum(one.result() for one in running)
        assert started.tolist() == [1] * (THREADS + 1)
        memory = record_view(PacketMemory, table.memory)
        assert memory.lock == 0
        stack = pool.stack().tolist()
        whole = sorted(stack) == list(range(FRAMES // 2, FRAMES)) and wrong == 0 == pool.view.violations
        if whole:
            assert pool.check()[Owner.FREE] == FRAMES // 2
        return whole


def test_threads_that_take_and_give_under_the_lock_lose_nothing() -> None:
    assert hammered(shared=True, rounds=500 if DISABLED else 500_000)


@pytest.mark.compiled
def test_without_the_lock_they_do() -> None:
    """Plain Python changes threads too seldom; and two threads need not meet in every short run."""
    assert not all(hammered(shared=False, rounds=1000) for _ in range(5000))


def test_memory_of_one_thread_is_not_locked() -> None:
    """It is not even looked whether somebody has it."""
    with PacketTable(4) as table, FramePool(table, 0, 4) as pool, Region(4096) as words:
        record_view(PacketMemory, table.memory).lock = 1
        words.array(THREADS, np.int64)[:] = 1
        assert take_and_give(pool.address, 10, words.address) == 0
        assert record_view(PacketMemory, table.memory).lock == 1
