"""Zero copy on real drivers: binding, traffic, statistics, mistakes, and a bridge whose frames are compared."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.real.detaching import detach
from tests.real.xsk_veth import completed, kick, put_descriptors
from tests.vm.inside.wire import (
    FAR,
    INNER,
    NEAR,
    OUTER,
    End,
    await_carrier,
    compare,
    cross,
    ends,
    number_of,
    packet,
    packets,
    padded,
)
from xskit.emulator.emulator import Emulator
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.settings import EngineSettings, LinkSettings
from xskit.memory import record_view
from xskit.netconf.interfaces import set_mtu, set_up
from xskit.xsk.path.rings import Ring
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

FRAMES = 2048


@contextmanager
def port(name: str = INNER, **options: Any) -> Iterator[tuple[Umem, Port]]:
    with Umem(FRAMES, debug=True) as umem, Port.open(name, umem, mode="zero-copy", **options) as opened:
        yield umem, opened


@contextmanager
def sock(name: str = INNER, **options: Any) -> Iterator[tuple[Umem, Socket]]:
    with Umem(FRAMES, debug=True) as umem, Socket(name, umem=umem, mode="zero-copy", **options) as opened:
        await_carrier(name)
        yield umem, opened


def collect(opened: Socket, count: int, patience_s: float = 10.0) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count and (batch := opened.receive(timeout=patience_s)):
        got += [content for content in map(bytes, batch) if number_of(content) >= 0]
    return got


def check_bind() -> dict[str, object]:
    """Bound in zero copy, natively, and no better mode had to be given up but multi-buffer."""
    with port() as (_, opened):
        assert opened.zero_copy
        assert opened.xdp_mode == "native"
        assert opened.max_frames == 1
        facts = {"why": opened.why, "multi_buffer": opened.multi_buffer, "queues": len(opened.queues)}
    with Umem(FRAMES) as umem, Port.open(INNER, umem) as opened:
        assert opened.zero_copy, f"auto gave {opened!r}: {opened.why}"
    return facts


def check_receive() -> None:
    """What the other end sends comes, whole and in order, and every frame is accounted for."""
    sent = packets(400)
    with sock() as (umem, opened), End(NEAR) as near:
        compare(cross(sent, near.send, lambda count: collect(opened, count)), padded(sent))
        umem.check()


def check_send() -> None:
    """What is sent arrives, whole and in order, and all frames come home."""
    sent = packets(400)
    with sock() as (umem, opened), End(NEAR) as near:

        def send(lot: list[bytes]) -> None:
            assert opened.send(lot) == len(lot)
            opened.flush(10.0)

        compare(cross(sent, send, near.receive), padded(sent))
        umem.check()
        assert opened.refused == 0


def check_poll() -> None:
    """poll() sleeps until a packet comes, and wakes then."""
    with sock() as (_, opened), End(NEAR) as near:
        opened.receive(timeout=0)
        poll = select.poll()
        poll.register(opened, select.POLLIN)
        assert poll.poll(100) == []
        near.send([packet(5)])
        assert poll.poll(10_000) == [(opened.fd, select.POLLIN)]
        assert [number_of(content) for content in collect(opened, 1)] == [5]


def check_teardown_four_times() -> None:
    """Opened, used and closed again and again: nothing is left that keeps the queue."""
    before = len(os.listdir("/proc/self/fd"))
    with End(NEAR) as near:
        for turn in range(4):
            with sock() as (umem, opened):
                near.send(packets(8, first=8 * turn))
                assert [number_of(content) for content in collect(opened, 8)] == list(range(8 * turn, 8 * turn + 8))
                umem.check()
    assert len(os.listdir("/proc/self/fd")) == before


def check_statistics() -> dict[str, object]:
    """A receiver that does not look lets RX fill up: the kernel counts what it could not deliver."""
    with sock(rx=16) as (_, opened), End(NEAR) as near:
        near.send(packets(200), pause_every=8)
        deadline = time.monotonic() + 10
        while opened.statistics().rx_ring_full + opened.statistics().rx_dropped == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        counted = opened.statistics()
        assert counted.rx_ring_full + counted.rx_dropped > 0
        assert len(collect(opened, 16, 1.0)) == 16
        return {"rx_ring_full": counted.rx_ring_full, "rx_dropped": counted.rx_dropped}


def check_invalid_descriptors() -> dict[str, object]:
    """Descriptors that point nowhere are thrown out and counted; their neighbours are sent."""
    with sock() as (umem, opened), End(NEAR) as near:
        first, second = 1024, 1025
        wanted = [packet(1), packet(2)]
        for frame, content in zip((first, second), wanted, strict=True):
            umem.view(frame * umem.frame_size, len(content))[:] = content
        descriptors = [
            (first * umem.frame_size, len(wanted[0]), 0),
            (umem.size + umem.frame_size, 100, 0),
            (second * umem.frame_size + umem.frame_size - 10, 100, 0),
            (second * umem.frame_size, len(wanted[1]), 0),
        ]
        tx = put_descriptors(opened, descriptors)
        back: list[int] = []
        deadline = time.monotonic() + 10
        while tx.pending() and time.monotonic() < deadline:
            kick(opened)  # drivers that send in batches end one at an invalid descriptor
            time.sleep(0.01)
        assert near.receive(2) == wanted
        while not {descriptors[0][0], descriptors[3][0]} <= set(back) and time.monotonic() < deadline:
            back += completed(opened)
        assert opened.statistics().tx_invalid_descriptors == 2
        assert {descriptors[0][0], descriptors[3][0]} <= set(back) <= {address for address, _, _ in descriptors}
        return {"invalid ones completed": len(back) - 2}


def link_spec(**settings: Any) -> LinkSpec:
    return LinkSpec("wan", (PortSpec(INNER), PortSpec(OUTER)), LinkSettings(**settings))


@contextmanager
def emulator(engine: dict[str, Any] | None = None, **settings: Any) -> Iterator[Emulator]:
    made = Emulator([link_spec(**settings)], EngineSettings(mode="zero-copy", **(engine or {})))
    with made as running:
        yield running


def check_bridge_frames() -> dict[str, object]:
    """Two zero-copy ports over one memory: the frames that leave one are those that came in by the other."""
    sent = packets(60)
    with ends(NEAR, FAR) as (near, far), emulator() as running:
        ports = {spec.name: opened for spec, opened in running.ports.items()}
        assert all(opened.zero_copy for opened in ports.values())
        assert ports[INNER].umem is ports[OUTER].umem
        compare(cross(sent, near.send, far.receive), padded(sent))
        receiver = ports[INNER].queues[0].receiver
        transmitter = ports[OUTER].queues[0].transmitter
        assert receiver is not None
        assert transmitter is not None
        came = _entries(receiver.rings.rx)
        left = _entries(transmitter.rings.tx)
    assert len(came) == len(left) == len(sent)
    assert came == left
    assert len({address for address, _ in came}) > 1
    return {"first": [hex(address) for address, _ in came[:4]]}


def _entries(ring: Any) -> list[tuple[int, int]]:
    """All (address, length) that went through a descriptor ring since it was made, oldest first."""
    count = ctypes.c_uint32.from_address(record_view(Ring, ring.record).producer).value
    assert count <= ring.size
    return [(address, length) for address, length, _ in ring.entries[:count].tolist()]


def _run_emulator(workers: int) -> dict[str, object]:
    there, back = packets(150), packets(150, first=1000)
    with ends(NEAR, FAR) as (near, far), emulator({"workers": workers}, owd="10ms") as running:
        began = time.monotonic()
        arrived = cross(there, near.send, far.receive)
        first_s = time.monotonic() - began
        returned = cross(back, far.send, near.receive)
        _settle(running)
        report = running.close()
    assert report is not None
    compare(arrived, padded(there))
    compare(returned, padded(back))
    assert first_s >= 0.010
    facts: dict[str, object] = {}
    for direction in report.links[0].directions:
        books = direction.packets
        facts[direction.name] = books
        assert books["received"] == books["sent"] + sum(books["dropped"].values()) + books["in_flight"], books
        assert books["in_flight"] == 0, books
        assert books["sent"] >= 150
        assert not any(direction.frames.values()), direction.frames
    assert all(opened.zero_copy for opened in report.ports)
    assert not _broken(report.invalid_because)
    return facts | {"invalid": report.invalid_because}


def _broken(reasons: list[str]) -> list[str]:
    """Of the reasons why a run does not count those that no slow machine explains."""
    return [reason for reason in reasons if "balance" in reason]


def _settle(running: Emulator) -> None:
    """A packet may be at the other end before its frame is completed."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(direction.packets["in_flight"] for direction in running.report().links[0].directions):
            return
        time.sleep(0.05)


def check_emulator() -> dict[str, object]:
    """10 ms one way, zero copy at both ends: order, content, books."""
    return _run_emulator(1)


def check_two_workers() -> dict[str, object]:
    """Each direction with a worker of its own."""
    return _run_emulator(2)


def check_need_wakeup() -> dict[str, object]:
    """The driver says when it wants a system call; it gets one then, and only then."""
    with ends(NEAR, FAR) as (near, far), emulator() as running:
        direction = running.links["wan"].forward.live
        sent = packets(120)
        compare(cross(sent, near.send, far.receive), padded(sent))
        _settle(running)
        kicks = direction.egress().kicks
        time.sleep(0.3)
        idle = direction.egress().kicks - kicks
    assert kicks > 0, "a driver that sleeps was never woken"
    assert idle == 0, f"{idle} system calls with nothing to send"
    return {"kicks": kicks}


class Flood:
    """Traffic that goes on while something happens to the NICs."""

    def __init__(self, end: End) -> None:
        self._end, self._going, self.sent = end, True, 0
        import threading

        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while self._going:
            with suppress(OSError):
                self._end.send(packets(16, first=self.sent, lengths=(100,)))
                self.sent += 16
            time.sleep(0.005)

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going = False
        self._thread.join()


def _crosses(near: End, far: End, patience_s: float = 15.0) -> bool:
    """Whether a packet gets through, sooner or later."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        near.send([packet(999_999)])
        if any(number_of(content) == 999_999 for content in far.receive(1, patience_s=0.2)):
            return True
    return False


def _books(running: Emulator) -> list[str]:
    report = running.close()
    assert report is not None
    for direction in report.links[0].directions:
        books = direction.packets
        assert books["received"] == books["sent"] + sum(books["dropped"].values()) + books["in_flight"], books
        assert not any(direction.frames.values()), direction.frames
    assert not _broken(report.invalid_because)
    return report.invalid_because


def check_down_and_up() -> dict[str, object]:
    """An interface goes down under traffic and comes up again: packets are lost meanwhile, and told, no frame is."""
    with ends(NEAR, FAR) as (near, far), emulator() as running:
        with Flood(near):
            time.sleep(0.3)
            set_up(OUTER, False)
            time.sleep(0.5)
            set_up(OUTER, True)
            time.sleep(0.3)
        far.drain()
        alive = _crosses(near, far) and _crosses(far, near)
        invalid = _books(running)
    assert alive, invalid
    assert any("while the port was down" in reason for reason in invalid)
    return {"invalid": invalid}


def check_mtu_changed() -> dict[str, object]:
    """A changed MTU under traffic is told; drivers may restart their queues for it."""
    try:
        with ends(NEAR, FAR) as (near, far), emulator() as running:
            with Flood(near):
                time.sleep(0.3)
                refused = None
                try:
                    set_mtu(OUTER, 1400)
                except Exception as error:  # some drivers refuse it in zero copy
                    refused = str(error)
                time.sleep(0.5)
            far.drain()
            alive = _crosses(near, far)
            warnings = running.report().warnings
            invalid = _books(running)
    finally:
        set_mtu(OUTER, 1500)
    assert alive, (refused, invalid)
    assert refused or any(f"port {OUTER}: its MTU changed to 1400" in warning for warning in warnings), warnings
    return {"refused": refused, "invalid": invalid}


def check_program_detached() -> dict[str, object]:
    """Somebody takes the program off under traffic: the run goes on to its end, and all is accounted for."""
    with ends(NEAR, FAR) as (near, far), emulator() as running:
        with Flood(near):
            time.sleep(0.3)
            detach(running.ports[PortSpec(INNER)]._attachment.link)
            time.sleep(0.5)
        crossing = _crosses(near, far, 1.0)
        warnings = running.report().warnings
        invalid = _books(running)
    assert not crossing
    assert any(f"port {INNER}: its XDP program was detached" in warning for warning in warnings), warnings
    return {"invalid": invalid}


def check_unplugged() -> dict[str, object]:
    """The NIC is pulled out under traffic: the run ends with a clear message, at once, and nothing is leaked."""
    with ends(NEAR, FAR) as (near, _), emulator() as running:
        with Flood(near):
            time.sleep(0.3)
            puller = subprocess.Popen(["xskit-vm", "nic", "unplug", "2"], stderr=subprocess.PIPE, text=True)
            reason = running.wait(20.0)
            invalid = _books(running)
        words = puller.communicate(timeout=60)[1]
    assert puller.returncode == 0, words
    assert reason is not None
    assert f"port {OUTER}" in reason
    return {"reason": reason, "invalid": invalid}


CHECKS = (
    check_bind,
    check_receive,
    check_send,
    check_poll,
    check_teardown_four_times,
    check_statistics,
    check_invalid_descriptors,
    check_bridge_frames,
    check_emulator,
    check_two_workers,
    check_need_wakeup,
    check_down_and_up,
    check_mtu_changed,
    check_program_detached,
    check_unplugged,
)
"""In this order: the last ones leave the guest without a NIC."""
