"""A packet memory of many frames: registered by two ports, filled with delayed packets, drained, every one counted.

far 0 --live frames--> near 0 [emulator, all held by its bottleneck] near 1 --> far 1, counted by a program

The bottleneck is so slow that nothing leaves until all frames are taken, however long that lasts; then its rate is
raised, which holds for what is queued as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from xskit.bench.bed import Bed, Place
from xskit.bench.far import FarCounts, FarProgram
from xskit.bench.packet import PacketSpec
from xskit.bench.programs import Counting
from xskit.bench.settings import Case
from xskit.emulator.emulator import Emulator
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.settings import EngineSettings, link_settings, read
from xskit.errors import XskitError
from xskit.netconf.interfaces import look

__all__ = ["Filling", "fill_and_drain"]

HELD, LET_GO = "1bit", "100Gbit"
"""Rates of the bottleneck, while it is filled and while it drains."""
RING = 2048
CHUNK, BATCH = 65_536, 64
"""Packets of one call; what finds RX full is lost before the emulator."""
QUIET_S = 0.005
PATIENCE_S = 10.0
"""Without any progress."""


@dataclass(frozen=True)
class Filling:
    """What became of it. `in_flight`: the most packets inside at one moment; `arrived` of those sent into it."""

    frames: int
    in_flight: int = 0
    sent: int = 0
    arrived: int = 0
    kernel_bytes: int = 0
    refused: str = ""

    @property
    def lost(self) -> int:
        """Packets that went in and did not come out."""
        return self.sent - self.arrived


def fill_and_drain(frames: int, frame_bytes: int, say: Callable[[str], None]) -> Filling:
    """Do it with a memory of so many frames, between veth pairs."""
    say(f"filling {frames * frame_bytes / 2**30:.2g} GiB of packet memory")
    with Bed() as bed:
        place = bed.place(Case("forward", frame_size=2048))
        try:
            return _fill(place, frames, frame_bytes, say)
        except XskitError as error:
            return Filling(frames, refused=error.cause)


def _fill(place: Place, frames: int, frame_bytes: int, say: Callable[[str], None]) -> Filling:
    # nothing goes back, and the engine divides memory by need: so the reverse direction gets the least that there is
    held = {"rate": HELD, "queue": f"{frames}packets"}
    settings = link_settings({"forward": held, "reverse": {"rate": "1kbit", "queue": "0packets"}}, "bridge")
    ports = tuple(PortSpec(name, place.namespace, owned=True) for name in place.near)
    engine = read(EngineSettings, {"memory": f"{frames * frame_bytes}B", "frame_size": frame_bytes, "ring_size": RING})
    with ExitStack() as stack:
        emulator = stack.enter_context(Emulator([LinkSpec("bridge", (ports[0], ports[1]), settings)], engine))
        forward = emulator.links["bridge"].forward
        live = forward.live
        counters, room = live.pipeline.counters, live.frames.capacity
        with place.inside():
            sink = FarProgram(place.far[1])
            stack.callback(sink.close)
            _send(place, room, lambda: int(counters.received))
        in_flight = int(counters.in_flight)
        say(f"{in_flight} packets are inside; draining")
        forward.update(rate=LET_GO)
        seen, since = -1, time.monotonic()
        while (now := int(counters.in_flight)) > 0 and time.monotonic() - since < PATIENCE_S:
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.01)
        counts = FarCounts()
        sink.count(counts)
        plan = emulator.plan
        assert plan is not None
        return Filling(frames, in_flight, int(counters.received), counts["received"], plan.kernel_bytes)


def _send(place: Place, count: int, received: Callable[[], int]) -> None:
    """Live frames until so many have been received, and not one more."""
    packet = PacketSpec().build()
    ifindex = look(place.far[0]).index
    with Counting.live() as source:
        while (missing := count - received()) > 0:
            chunk = min(missing, CHUNK)
            wanted = received() + chunk
            source.program.run_live(packet, ifindex=ifindex, repeat=chunk, batch=min(chunk, BATCH))
            _wait(received, wanted)


def _wait(received: Callable[[], int], wanted: int) -> None:
    """Until so many are in, or no more come."""
    seen, since = -1, time.monotonic()
    while (now := received()) < wanted and time.monotonic() - since < QUIET_S:
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.0001)
