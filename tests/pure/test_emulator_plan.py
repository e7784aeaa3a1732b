"""The plan of links: the arithmetic of the frames, what the machine must allow, and the words of the command."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xskit
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.packet_mix import PacketMix
from xskit.emulator.plan import allocated_bytes, plan
from xskit.emulator.plan_text import size_text, text
from xskit.emulator.settings import EngineSettings, link_settings
from xskit.emulator.sizing import PortFacts, fill_entries, plan_links
from xskit.errors import UsageError

WAN = link_settings({"rate": "10Gbit", "owd": "100ms", "queue": "50ms"})
MIXES = st.dictionaries(st.integers(60, 1518), st.integers(1, 1000), min_size=1, max_size=12).map(PacketMix)


@given(MIXES, st.sampled_from([2048, 4096]))
def test_the_memory_holds_what_was_said_to_come(mix, frame_size):
    engine = EngineSettings(frame_size=frame_size)
    found = plan(link_settings({"rate": "1Gbit", "owd": "20ms"}), engine, mix=mix)
    # 1 Gbit/s for 20 ms on the way and 50 ms in the queue
    packets = 1e9 * 0.07 / 8 / mix.mean_bytes
    for share in found.memory.directions:
        assert packets * 1.25 <= share.packets <= packets * 1.25 + 1027
    assert all(row.covered for row in found.sizes[-1:])


def test_in_flight_held_in_frames_and_packed():
    rows = {row.packet_bytes: row for row in plan(WAN).sizes}
    assert list(rows) == [64, 512, 1518]
    bytes_in_flight = 2 * 10_000_000_000 * 150 // 8000  # both directions, 100 ms + 50 ms
    assert rows[64].packets == 2 * math.ceil(bytes_in_flight / 2 / 64)
    assert rows[64].held_bytes == rows[64].packets * 2048
    assert {row.packed_bytes for row in rows.values()} == {bytes_in_flight}
    assert [row.covered for row in rows.values()] == [False, False, True]


def test_a_queue_counted_in_packets_holds_bytes_by_their_size():
    rows = plan(link_settings({"rate": "1Mbit", "queue": "1000packets"})).sizes
    assert [row.packets for row in rows] == [2000] * 3
    assert [row.packed_bytes for row in rows] == [2 * 64_000, 2 * 512_000, 2 * 1_518_000]


def test_jumbo_packets_take_several_frames():
    rows = plan(WAN, mtu=9000).sizes
    assert [(row.packet_bytes, row.frames_per_packet) for row in rows] == [(64, 1), (512, 1), (1518, 1), (9018, 3)]
    assert plan(WAN, EngineSettings(frame_size=2048), mtu=9000).sizes[-1].frames_per_packet == math.ceil(9018 / 1792)


def test_a_mix_shows_its_sizes_and_its_mean():
    mix = PacketMix({64: 7, 576: 4, 1518: 1})
    mean = (7 * 64 + 4 * 576 + 1518) / 12
    assert mix.mean_bytes == pytest.approx(mean)
    assert [row.packet_bytes for row in plan(WAN, mix=mix).sizes] == pytest.approx([64, 576, 1518, mean])
    many = PacketMix(dict.fromkeys(range(60, 1500, 10), 1))
    assert [row.packet_bytes for row in plan(WAN, mix=many).sizes] == [many.mean_bytes]


def test_it_is_the_engines_own_sizing():
    engine = EngineSettings(ring_size=1024)
    port = PortFacts(mtu=9000, rx_queues=3, hardware_ring=256)
    found = plan(WAN, engine, mtu=9000, ports=4, queues=3, hardware_ring=256)
    assert found.memory == plan_links([(WAN, port, port), (WAN, port, port)], engine)
    assert found.memory.directions[0].fill_reserve == 3 * 2048


@given(st.integers(64, 1 << 16), st.integers(0, 1 << 14))
def test_fill_holds_the_hardware_ring_and_rx(ring, hardware):
    entries = fill_entries(ring, hardware)
    assert entries >= ring + hardware
    assert entries & (entries - 1) == 0
    assert entries < 2 * (ring + hardware)


def test_the_kernel_and_the_machine():
    found = plan(WAN, ports=4, queues=2)
    frames, umem = found.memory.frames, found.memory.umem_bytes
    assert found.kernel.heads == frames * 128 * 8
    assert found.kernel.heads <= found.kernel.heads_allocated <= found.kernel.heads + 8 * (2 << 20)
    assert found.kernel.total == found.kernel.heads_allocated + found.kernel.page_lists + found.kernel.rings
    assert found.memlock_bytes == 4 * umem
    assert found.hugepages == math.ceil(umem / (2 << 20))
    # RX and TX have 16 bytes an entry, FILL and COMPLETION 8: 2048 * 48, for each of 8 queues
    assert 0 <= found.kernel.rings - 8 * 2048 * 48 <= 8 * 4 * 512
    user = umem + found.memory.table_bytes + found.memory.stores_bytes
    assert found.total_bytes == user + found.kernel.total


def test_a_memory_just_above_what_a_kernel_takes_does_not_look_as_if_it_were_not():
    found = plan(WAN, {"memory": "1025MiB"})
    assert found.memory.umem_bytes > 1 << 30
    assert size_text(found.memory.umem_bytes) == size_text((1 << 30) + 1) == "1 GiB"
    assert "refuse it: 1GiB at most" in text(found)
    assert "refuse it: 2 GiB at most" not in text(found)


@pytest.mark.parametrize(
    ("memory", "fits"),
    [
        ("1GiB", [True, True, True]),
        ("2GiB", [False, True, True]),
        ("3GiB", [False, False, True]),
        ("32GiB", [False, False, False]),
    ],
)
def test_kernels_have_limits(memory, fits):
    found = plan(WAN, {"memory": memory})
    assert [limit.kernels for limit in found.limits] == ["< 5.6", "< 5.14", ">= 5.15"]
    assert [limit.largest_bytes for limit in found.limits] == [1 << 30, 2 << 30, 2048 * ((1 << 24) - 1)]
    assert [limit.fits for limit in found.limits] == fits


def test_what_the_kernel_allocates():
    assert allocated_bytes(1) == allocated_bytes(4096) == 4096
    assert allocated_bytes((1 << 20) + 1) == 2 << 20
    assert allocated_bytes(4 << 20) == 4 << 20
    assert allocated_bytes((4 << 20) + 1) == 6 << 20
    assert allocated_bytes(131086 * 128) == 18 << 20  # /proc/vmallocinfo on Linux 6.18


def test_the_veth_page_pool_by_mtu():
    assert plan(WAN).page_pool.pages_per_packet == 1
    assert plan(WAN, mtu=3502).page_pool.pages_per_packet == 1
    assert plan(WAN, mtu=3503).page_pool.pages_per_packet == 2
    assert plan(WAN, mtu=9000, queues=2).page_pool.bytes_per_port == 64 * 4096 * 2


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"mtu": 20}, "mtu must be between 68 and 65535, not 20"),
        ({"ports": 3}, "ports must be even, two for each link, not 3"),
        ({"ports": 0}, "ports must be between 2 and 65536, not 0"),
        ({"ports": 10**10}, "ports must be between 2 and 65536, not 10000000000"),
        ({"queues": 0}, "queues must be between 1 and 1024, not 0"),
        ({"hardware_ring": -1}, "hardware_ring must be between 0 and 1048576, not -1"),
        ({"mix": PacketMix({2000: 1})}, "a packet of 2000 bytes does not pass an MTU of 1500"),
    ],
)
def test_what_cannot_be(arguments, cause):
    with pytest.raises(UsageError) as caught:
        plan(WAN, **arguments)
    assert caught.value.cause == cause


def test_what_comes_is_said_in_words_or_read_from_a_capture(tmp_path):
    assert PacketMix.parse("64:7,576:4,1518:1").counts == {64: 7, 576: 4, 1518: 1}
    assert PacketMix.parse("64,1518").counts == {64: 1, 1518: 1}
    for wrong in ("", "64:", "x", "64;7"):
        with pytest.raises(SettingsError, match="is no size in bytes"):
            PacketMix.parse(wrong)
    capture = tmp_path / "two.pcap"
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    record = bytes(8) + (60).to_bytes(4, "little") + (1514).to_bytes(4, "little") + bytes(60)
    capture.write_bytes(header + 2 * record)
    assert PacketMix.read(capture).counts == {1514: 2}


def test_from_python():
    settings = {"rate": "10Gbit", "owd": "100ms", "queue": "50ms"}
    assert xskit.plan(settings, {"ring_size": 1024}) == plan(link_settings(settings), EngineSettings(ring_size=1024))
    assert str(xskit.plan(WAN)) == text(plan(WAN))
    with pytest.raises(SettingsError, match="owdd"):
        xskit.plan({"owdd": "1ms"})


@pytest.mark.parametrize(
    "counts", [{}, {0: 1}, {64: 0}, {64: -1, 100: 2}, {64: math.nan}, {64: 1, 100: math.inf}, {65_554: 1}]
)
def test_a_mix_of_nothing(counts):
    with pytest.raises(UsageError):
        PacketMix(counts)


def test_the_text_says_it_all():
    found = plan(WAN, mtu=9000, hardware_ring=512)
    said = text(found)
    assert "each direction: 10Gbit, owd 100ms, queue 50ms" in said
    assert f"{found.memory.frames} frames of 4096 bytes" in said
    assert f"sysctl vm.nr_hugepages={found.hugepages}" in said
    assert "FILL 4096" in said
    assert "room for the hardware's 512 entries and RX's 2048" in said
    assert max(map(len, said.splitlines())) <= 120
    assert "nobody knows" in text(plan(link_settings({"owd": "1ms"})))
    assert "reverse: 1Mbit" in text(plan(link_settings({"rate": "10Mbit", "reverse": {"rate": "1Mbit"}})))


def test_sizes_as_people_read_them():
    assert [size_text(n) for n in (0, 1000, 1 << 10, 1 << 30, 1.25 * (1 << 30), 123 << 20)] == [
        "0 B", "1000 B", "1 KiB", "1 GiB", "1.25 GiB", "123 MiB"
    ]  # fmt: skip


def test_json_keeps_the_numbers():
    found = plan(WAN)
    read_back = json.loads(json.dumps(found.as_dict()))
    assert read_back["schema"] == 1
    assert read_back["memory"]["umem_bytes"] == found.memory.umem_bytes
    assert read_back["kernel"]["total"] == found.kernel.total
    assert read_back["asked"]["forward"]["rate_bps"] == 10_000_000_000
