"""An exception from a signal, or a close in its handler, at every point of every call that moves packets.

Each time the sockets still work afterwards, and every frame of both packet memories is accounted for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.real.interrupts import interrupted_everywhere
from tests.real.xsk_veth import numbered, veth
from xskit import Batch, Packet, Port, Socket, Umem
from xskit.xsk.path.owner import Owner

pytestmark = [pytest.mark.root, pytest.mark.compiled]

FRAMES = 64
THREE = numbered(3)
PROBE = numbered(1, first=1000)[0]
JUMBO = THREE[0][:14] + bytes(9000)


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    with veth(mtu=9500):
        yield


class Rig:
    """Two sockets or ports that face each other, and what a test holds of their packets."""

    def __init__(self, opened: Callable[[str, Umem], Socket | Port]) -> None:
        self._stack = ExitStack()
        self.near, self.far = (
            self._stack.enter_context(opened(name, self._stack.enter_context(Umem(frames=FRAMES))))
            for name in ("va", "vb")
        )
        self.held: list[Packet | Batch] = []
        for end in (self.near, self.far):
            end.receive(timeout=0)  # FILL of a port gets its frames

    def three_wait(self) -> Rig:
        """Three packets lie in RX of the far end."""
        self.near.send(THREE)
        wait_for(self.far, 3)
        return self

    def three_held(self) -> Rig:
        """Three packets that the far end has received."""
        self.three_wait()
        self.held = list(self.far.receive(timeout=1.0))
        assert len(self.held) == 3
        return self

    def batch_held(self) -> Rig:
        """The same as a batch."""
        self.three_wait()
        self.held = [self.far.receive_batch(timeout=1.0)]
        assert len(self.held[0]) == 3
        return self

    def works(self) -> None:
        """A packet gets through, and then each frame is free or in FILL."""
        for one in self.held:
            one.release()
        self.held = []
        for end in (self.near, self.far):
            end.flush(timeout=5.0)
            while len(end.receive_batch(timeout=0)):
                pass
        self.near.send(PROBE)
        self.near.flush(timeout=5.0)
        assert any(PROBE in map(bytes, packets) for packets in iter(lambda: self.far.receive(timeout=5.0), []))
        gc.collect(0)
        for end in (self.near, self.far):
            end.receive_batch(timeout=0)  # ends the batch before
            counts = end.umem.check()
            assert counts[Owner.FREE] + counts[Owner.FILL] == FRAMES, counts

    def is_closed(self) -> None:
        """The far end and its packet memory are closed, and all frames came home but those that are kept."""
        self.far.close()
        kept = sum(packet.kept for one in self.held for packet in ([one] if isinstance(one, Packet) else one))
        counts = self.far.umem.check()
        assert counts[Owner.FREE] == FRAMES - kept, counts
        assert self.far.closed
        self.close()

    def close(self) -> None:
        self.held = []
        self._stack.close()


def wait_for(end: Socket | Port, count: int) -> None:
    """Until so many packets lie in RX."""
    (sock,) = [end] if isinstance(end, Socket) else end.queues
    ring = sock.receiver.rings.rx
    give_up = time.monotonic() + 5.0
    while ring.pending() < count and time.monotonic() < give_up:
        time.sleep(1e-5)
    assert ring.pending() == count


def socket(name: str, umem: Umem) -> Socket:
    return Socket(name, umem=umem, fill=32)


def port(name: str, umem: Umem) -> Port:
    return Port.open(name, umem, ring_size=64, fill_size=32)


def nothing(rig: Rig) -> Rig:
    return rig


def keep_one(rig: Rig) -> Rig:
    """Of the last batch one packet is kept, one has a view, and one neither."""
    rig.three_held()
    rig.held[0].keep()
    assert len(rig.held[1].view) == 64
    return rig


def keep_and_release(rig: Rig) -> None:
    for packet in rig.held:
        packet.keep()
        packet.release()


def make_and_send(rig: Rig) -> None:
    rig.near.send_batch(rig.near.new_batch([100, 9000, 60]))


def make_and_forget(rig: Rig) -> None:
    batch = rig.near.new_batch(100, 3)
    batch[0].view[:] = bytes(100)


TRAFFIC = {
    "receive": (Rig.three_wait, lambda rig: rig.far.receive()),
    "receive nothing": (nothing, lambda rig: rig.far.receive(timeout=1e-4)),
    "receive more at once": (Rig.three_wait, lambda rig: rig.far.receive(limit=100)),
    "receive after a kept one": (keep_one, lambda rig: rig.far.receive(timeout=0)),
    "receive_batch": (Rig.three_wait, lambda rig: rig.far.receive_batch()),
    "iterate": (Rig.three_wait, lambda rig: next(iter(rig.far))),
    "send bytes": (nothing, lambda rig: rig.near.send(THREE)),
    "send more than there is room": (nothing, lambda rig: rig.near.send(THREE * 25)),
    "send a jumbo": (nothing, lambda rig: rig.near.send([JUMBO, THREE[0]])),
    "send in place": (Rig.three_held, lambda rig: rig.far.send(rig.held)),
    "send_batch": (Rig.batch_held, lambda rig: rig.far.send_batch(rig.held[0])),
    "forward": (Rig.batch_held, lambda rig: rig.far.forward(rig.held[0], rig.far)),
    "column": (Rig.batch_held, lambda rig: rig.held[0].column(12, ">u2")),
    "keep and release": (Rig.three_held, keep_and_release),
    "keep and release a batch": (Rig.batch_held, lambda rig: rig.held[0].keep().release()),
    "new_batch and send": (nothing, make_and_send),
    "new_batch and forget": (nothing, make_and_forget),
    "flush": (lambda rig: (rig.near.send(THREE), rig)[1], lambda rig: rig.near.flush(timeout=5.0)),
}


@pytest.mark.parametrize("opened", [socket, port])
@pytest.mark.parametrize("name", TRAFFIC)
def test_an_exception_anywhere_loses_no_frame(name, opened):
    prepare, operation = TRAFFIC[name]
    rig = Rig(opened)
    try:
        points = interrupted_everywhere(lambda: prepare(rig), operation, Rig.works)
        assert points > 10
    finally:
        rig.close()


AT_THE_FAR_END = {
    "receive": (Rig.three_wait, lambda rig: rig.far.receive()),
    "receive nothing": (nothing, lambda rig: rig.far.receive(timeout=1e-4)),
    "wait for ever": (nothing, lambda rig: rig.far.receive()),
    "iterate": (nothing, lambda rig: list(rig.far)),
    "receive after a kept one": (keep_one, lambda rig: rig.far.receive(timeout=0)),
    "send bytes": (nothing, lambda rig: rig.far.send(THREE)),
    "send in place": (Rig.three_held, lambda rig: rig.far.send(rig.held)),
    "send_batch": (Rig.batch_held, lambda rig: rig.far.send_batch(rig.held[0])),
    "column": (Rig.batch_held, lambda rig: rig.held[0].column(12, ">u2")),
    "keep and release": (Rig.three_held, keep_and_release),
    "flush": (lambda rig: (rig.far.send(THREE), rig)[1], lambda rig: rig.far.flush(timeout=5.0)),
}
