"""Which bind flags are tried, and why others are not: the ladder, without a kernel."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from xskit.abi.netdev import XdpFeature
from xskit.abi.xdp import BindFlag
from xskit.xsk import opening, port
from xskit.xsk.errors import PortError
from xskit.xsk.opening import Plan, _rungs
from xskit.xsk.umem import Umem

ZC, COPY, SG, WAKE = BindFlag.ZEROCOPY, BindFlag.COPY, BindFlag.USE_SG, BindFlag.USE_NEED_WAKEUP


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch):
    def rungs(
        mode: str = "auto",
        *,
        driver: str = "virtio_net",
        mtu: int = 1500,
        frame_size: int = 4096,
        segments: int | None = 1,
        zero_copy: bool = True,
        multi_buffer: bool = True,
        rx: int = 64,
    ) -> tuple[list[BindFlag], list[str]]:
        needed = XdpFeature.BASIC | XdpFeature.REDIRECT | XdpFeature.XSK_ZEROCOPY
        features = SimpleNamespace(zero_copy=zero_copy, zero_copy_segments=segments, xdp=needed)
        monkeypatch.setattr(opening, "device_features", lambda name: None if segments is None else features)
        interface = SimpleNamespace(name="eth1", mtu=mtu, driver=driver)
        umem = SimpleNamespace(frame_size=frame_size, capacity=frame_size - 256, frames=64)
        plan = Plan(interface, 0, umem, mode, rx, 64, 64, 64, multi_buffer, True)  # type: ignore[arg-type]
        found, why = _rungs(plan)
        assert all(flags & WAKE for flags in found)
        return [flags & ~WAKE for flags in found], why

    return rungs


COPIES = [COPY | SG, COPY]


def test_a_driver_of_one_frame_is_not_asked_for_several(ladder) -> None:
    assert ladder() == (
        [ZC, *COPIES],
        ["zero copy with multi-buffer: the driver of eth1 takes packets of one frame only"],
    )
    assert ladder(segments=8) == ([ZC | SG, ZC, *COPIES], [])
    assert ladder("zero-copy", segments=8) == ([ZC | SG, ZC], [])
    assert ladder(multi_buffer=False) == ([ZC, COPY], [])


def test_a_kernel_that_does_not_say_is_asked_for_everything(ladder) -> None:
    assert ladder(segments=None) == ([ZC | SG, ZC, *COPIES], [])
    assert ladder(segments=None, mtu=9000) == ([ZC | SG, *COPIES], [])


def test_a_driver_without_zero_copy_is_asked_only_where_it_is_insisted_upon(ladder) -> None:
    rungs, (why,) = ladder(zero_copy=False)
    assert rungs == COPIES
    assert why == "zero copy: the driver of eth1 has no zero copy on queue 0"
    assert ladder("zero-copy", zero_copy=False, driver="igb", frame_size=2048) == ([ZC], [])


def test_packets_that_do_not_fit_a_frame_are_for_copying(ladder) -> None:
    rungs, why = ladder(mtu=9000)
    assert rungs == COPIES
    assert why[-1].startswith("zero copy: packets of up to 9018 bytes do not fit in a frame of 4096")
    with pytest.raises(PortError, match="takes no others") as caught:
        ladder("zero-copy", mtu=9000)
    assert caught.value.remedy == "ip link set eth1 mtu 3822"
    assert ladder("zero-copy", mtu=9000, multi_buffer=False) == ([ZC], [])
    assert ladder("zero-copy", mtu=9000, segments=8) == ([ZC | SG], [])


def test_a_nic_that_would_cut_packets_short_is_not_bound_in_zero_copy(ladder) -> None:
    """igb delivers the first 1024 bytes of 1514 as a packet, in frames of 2048."""
    rungs, why = ladder(driver="igb", frame_size=2048)
    assert rungs == COPIES
    assert "fills only 1024 bytes of a frame of 2048" in why[-1]
    with pytest.raises(PortError, match="cut packets of up to 1518 bytes short") as caught:
        ladder("zero-copy", driver="igb", frame_size=2048)
    assert (caught.value.errno, caught.value.remedy) == (errno.EINVAL, "frame_size=4096")
    with pytest.raises(PortError) as caught:
        ladder("zero-copy", driver="igb", mtu=3500)
    assert caught.value.remedy == "ip link set eth1 mtu 3054"
    assert ladder("zero-copy", driver="igb")[0] == [ZC]
    assert ladder("zero-copy", driver="igb", frame_size=2048, mtu=1000)[0] == [ZC]
    assert ladder("zero-copy", driver="igb", frame_size=2048, rx=0)[0] == [ZC], "nothing is received"
    assert ladder("zero-copy", driver="virtio_net", frame_size=2048)[0] == [ZC]


def test_other_modes_never_try_zero_copy(ladder) -> None:
    assert ladder("native") == (COPIES, [])
    assert ladder("generic", multi_buffer=False) == ([COPY], [])


@pytest.mark.parametrize(("queues", "entries"), [(1, 64), (40, 80)])
def test_the_program_has_room_for_queues_that_come_with_it(monkeypatch: pytest.MonkeyPatch, queues, entries) -> None:
    """virtio_net, for one, has 8 instead of 4 with a program."""

    class Attached(Exception):  # noqa: N818
        pass

    def make(ifindex: int, entries: int, mode: str, *, drop_chatter: bool) -> None:
        raise Attached(entries)

    facts = SimpleNamespace(loopback=False, carrier=True, index=7, rx_queues=queues)
    monkeypatch.setattr(port, "look", lambda name: facts)
    monkeypatch.setattr(port.Attachment, "make", make)
    with Umem(frames=1) as umem, pytest.raises(Attached, match=f"^{entries}$"):
        port.Port.open("eth1", umem)
