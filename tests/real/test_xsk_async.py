"""`async for batch in sock.batches()`, under asyncio and under trio: no thread, no packet lost, and an end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.real.xsk_veth import Chain, numbered, veth
from xskit.errors import UsageError
from xskit.xsk.path.owner import Owner
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root


class UnderAsyncio:
    """What the tests need of it."""

    @staticmethod
    def run(main: Callable[[], Awaitable[Any]]) -> Any:
        return asyncio.run(main())

    sleep = staticmethod(asyncio.sleep)

    @staticmethod
    async def together(*tasks: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task())

    @staticmethod
    async def at_most(seconds: float, task: Callable[[], Awaitable[Any]]) -> bool:
        try:
            await asyncio.wait_for(task(), seconds)
        except TimeoutError:
            return False
        return True


class UnderTrio:
    """The same."""

    run = staticmethod(trio.run)
    sleep = staticmethod(trio.sleep)

    @staticmethod
    async def together(*tasks: Callable[[], Awaitable[Any]]) -> None:
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)

    @staticmethod
    async def at_most(seconds: float, task: Callable[[], Awaitable[Any]]) -> bool:
        with trio.move_on_after(seconds) as scope:
            await task()
        return not scope.cancelled_caught


@pytest.fixture(params=[UnderAsyncio, UnderTrio])
def loop(request):
    return request.param


@pytest.fixture(params=["socket", "port of two queues"])
def ends(request):
    """A source, and something to receive from."""
    if request.param == "socket":
        with Chain() as chain:
            yield chain.source, chain.near
        return
    with (
        veth(rx_queues=2, tx_queues=2),
        Umem(frames=512) as outer,
        Umem(frames=512, debug=True) as umem,
        Port.open("va", outer) as source,
        Port.open("vb", umem) as port,
    ):
        assert source.receive(timeout=0) == port.receive(timeout=0) == []
        yield source, port


async def take(end: Socket | Port, count: int) -> list[bytes]:
    got: list[bytes] = []
    async for batch in end.batches():
        got += map(bytes, batch)
        if len(got) >= count:
            break
    return got


def test_batches_come_beside_other_work(loop, ends):
    source, end = ends
    threads = threading.active_count()
    got, ticks = [], []

    async def send():
        for number in range(20):
            await loop.sleep(0.002)
            assert source.send(numbered(5, first=5 * number)) == 5

    async def receive():
        got.extend(await take(end, 100))
        assert threading.active_count() == threads

    async def tick():
        while len(got) < 100:
            ticks.append(len(got))
            await loop.sleep(0.001)

    loop.run(lambda: loop.together(receive, send, tick))
    assert sorted(got) == sorted(numbered(100))
    assert len(ticks) > 10


def test_a_packet_that_waits_already_comes_at_once(loop, ends):
    source, end = ends
    source.send(numbered(3))
    assert loop.run(lambda: take(end, 3)) == numbered(3)


def test_a_batch_goes_on_from_a_coroutine(loop):
    with Chain() as chain:

        async def forward():
            async for batch in chain.near.batches():
                chain.near.forward(batch, chain.far)

        async def end():
            got = []
            while len(got) < 50:
                assert chain.source.send(numbered(5, first=len(got))) == 5
                got += await take(chain.sink, 5)
            assert got == numbered(50)
            chain.near.close()

        loop.run(lambda: loop.together(forward, end))
        chain.far.flush()
        assert chain.umem.check()[Owner.HELD] == 0


@pytest.mark.parametrize("closes", ["another task", "another thread"])
def test_the_loop_ends_when_it_is_closed(loop, ends, closes):
    source, end = ends
    before = set(os.listdir("/proc/self/fd"))
    got = []

    async def receive():
        async for batch in end.batches():
            got.extend(map(bytes, batch))

    async def close():
        source.send(numbered(2))
        while len(got) < 2:
            await loop.sleep(0.001)
        await loop.sleep(0.02)
        if closes == "another task":
            end.close()
        else:
            closing = threading.Thread(target=end.close)
            closing.start()
            closing.join()
        await loop.sleep(0)

    loop.run(lambda: loop.together(receive, close))
    assert got == numbered(2)
    assert end.closed
    counts = end.umem.check()
    assert counts[Owner.HELD] == counts[Owner.TX] == 0
    assert set(os.listdir("/proc/self/fd")) < before
    assert loop.run(lambda: take(end, 1)) == []


def test_a_cancelled_wait_leaves_nothing_behind(loop, ends):
    source, end = ends

    async def main():
        for _ in range(3):
            assert not await loop.at_most(0.02, lambda: take(end, 1))
        source.send(numbered(2))
        assert await take(end, 2) == numbered(2)

    loop.run(main)
    source.send(numbered(1, first=5))
    assert list(map(bytes, end.receive(timeout=5.0))) == numbered(1, first=5), "without a loop, too"


def test_a_second_task_is_refused(loop, ends):
    source, end = ends
    said = []

    async def first():
        assert await take(end, 1) == numbered(1)

    async def second():
        await loop.sleep(0.02)
        with pytest.raises(UsageError) as caught:
            await take(end, 1)
        said.append(str(caught.value))
        source.send(numbered(1))

    loop.run(lambda: loop.together(first, second))
    name = "queue 0 of vb" if isinstance(end, Socket) else "vb"
    assert said == [
        f"another call is receiving on {name}, and only one can at a time\n  try: threading.Lock() around the calls"
    ]


def test_one_that_is_closed_while_a_task_waits_can_be_opened_again_at_once(loop):
    with veth(), Umem(frames=64) as umem:

        async def main():
            for _ in range(3):
                sock = Socket("vb", umem=umem)

                async def close(sock=sock):
                    await loop.sleep(0.01)
                    sock.close()

                async def receive(sock=sock):
                    assert [batch async for batch in sock.batches()] == []

                await loop.together(receive, close)

        loop.run(main)


def test_outside_of_a_loop_it_says_what_it_needs(ends):
    _, end = ends
    with pytest.raises(UsageError) as caught:
        end.batches().__anext__().send(None)
    assert str(caught.value) == "asynchronous receiving needs asyncio or trio\n  try: asyncio.run(main())"


def test_what_receive_refuses_is_refused(loop, ends):
    _, end = ends

    async def main():
        with pytest.raises(UsageError, match="^limit must be between 1 and "):
            await anext(end.batches(0))
        end.close()
        with pytest.raises(StopAsyncIteration):
            await anext(end.batches())

    loop.run(main)
