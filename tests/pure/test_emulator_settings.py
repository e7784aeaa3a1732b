"""Settings: short forms, what an update changes, and the exact sentence for every mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.portcounts import kept_chatter
from xskit.emulator.queue_warning import narrow_queue
from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings, link_settings, read
from xskit.engine.sizes import LONGEST_HORIZON_NS
from xskit.units import QueueLimit


def sentence(model, values) -> str:
    with pytest.raises(SettingsError) as caught:
        read(model, values, "wan.toml", "link.wan")
    assert caught.value.exit_code == 2
    return caught.value.cause.removeprefix("wan.toml: link.wan: ")


LINK_MISTAKES = [
    ({"lossy": "1%"}, "lossy: unknown key; did you mean loss?"),
    (
        {"xyz": 1},
        "xyz: unknown key; known keys are forward, jitter, jitter_distribution, loss, order, overhead, owd, queue, "
        "rate, reverse",
    ),
    ({"forward": {"los": 1}}, "forward.los: unknown key; did you mean loss?"),
    ({"reverse": {"forwards": {}}}, "reverse.forwards: unknown key; known keys are jitter, jitter_distribution, "
     "loss, order, overhead, owd, queue, rate"),
    ({"queue": {"limt": "5ms"}}, "queue.limt: unknown key; did you mean limit?"),
    ({"queue": {"zzz": "5ms"}}, "queue.zzz: unknown key; known keys are kind, limit"),
    ({"forward": {"queue": {"zzz": "5ms"}}}, "forward.queue.zzz: unknown key; known keys are kind, limit"),
    ({"queue": "codel"}, "queue.kind: expected 'droptail', got 'codel'"),
    ({"queue": 5}, "queue.limit: 5 what? write 5packets, 5KiB or 5ms"),
    ({"queue": True}, "queue.limit: expected a quantity such as 50ms, got true"),
    ({"queue": [1]}, "queue: expected a table, got [1]"),
    ({"owd": "20"}, "owd: 20 what? write 20ms"),
    ({"owd": 20}, "owd: 20 what? write 20ms"),
    ({"owd": True}, "owd: expected a quantity such as 20ms, got true"),
    ({"owd": None}, "owd: None is no duration: write it as text, for instance 20ms"),
    ({"owd": "-1ms"}, "owd: -1ms is no duration: it cannot be negative"),
    (
        {"rate": 0},
        "rate: a rate of 0 never sends: leave rate out for unlimited, or write loss 100% for a black hole",
    ),
    ({"rate": "10mbps"}, "rate: did you mean 10Mbit or 10MBps?"),
    ({"loss": "101%"}, "loss: 101% is no probability: write it from 0% to 100%"),
    ({"loss": 1}, "loss: 1 what? write 1% or 100%"),
    ({"order": "frei"}, "order: expected 'keep' or 'free', got 'frei'"),
    ({"owd": "169h"}, "owd and jitter would hold a packet for more than a week (168h)"),
    ({"jitter": "19h"}, "owd and jitter would hold a packet for more than a week (168h)"),
    (
        {"order": "free", "jitter": "1h"},
        "owd and jitter would hold a packet for up to 9h: with order = free 549s can be, with order = keep "
        "168h (normal jitter draws up to 9 standard deviations)",
    ),
    (
        {"order": "free", "owd": "5min", "jitter": "250s", "jitter_distribution": "uniform"},
        "owd and jitter would hold a packet for up to 550s: with order = free 549s can be, with order = keep 168h",
    ),
    ({"jitter_distribution": "pareto"}, "jitter_distribution: expected 'normal' or 'uniform', got 'pareto'"),
    ({"overhead": "L4"}, "overhead: expected 'L1', 'L2' or 'L3', got 'L4'"),
    ({"forward": 3}, "forward: expected a table, got 3"),
    (3, "expected a table, got 3"),
]  # fmt: skip

ENGINE_MISTAKES = [
    ({"memory": "1G"}, "memory: did you mean 1GiB or 1GB?"),
    ({"frame_size": 3000}, "frame_size: expected 2048 or 4096, got 3000"),
    ({"ring_size": 100}, "ring_size must be a power of two, not 100"),
    ({"ring_size": 32}, "ring_size: expected 64 or more, got 32"),
    ({"ring_size": 1 << 21}, "ring_size: expected 1048576 or less, got 2097152"),
    ({"ring_size": "many"}, "ring_size: expected a whole number, got 'many'"),
    ({"workers": 3}, "workers: expected 1 or 2, got 3"),
    ({"workers": 2, "cpus": [0]}, "cpus: 2 workers need 2 CPUs, got 1"),
    ({"cpus": [0, 0, 0]}, "cpus: 1 worker needs 1 CPU, got 3"),
    ({"workers": 2, "cpus": [1, 1]}, "cpus: expected a different CPU for each worker, got 1, 1"),
    ({"cpus": [-1]}, "cpus: expected a different CPU for each worker, got -1"),
    ({"cpus": [True]}, "cpus.0: expected a whole number, got true"),
    ({"workers": True}, "workers: expected a whole number, got true"),
    ({"seed": 1 << 64}, "seed: expected less than 18446744073709551616, got 18446744073709551616"),
    ({"cpus": "1"}, "cpus: expected a list, got '1'"),
    ({"cpus": [1, "a"]}, "cpus.1: expected a whole number, got 'a'"),
    ({"seed": -1}, "seed: expected 0 or more, got -1"),
    ({"seed": 1.5}, "seed: expected a whole number, got 1.5"),
    ({"seed": True}, "seed: expected a whole number, got true"),
    ({"seed": "7"}, "seed: expected a whole number, got '7'"),
    ({"spin": "maybe"}, "spin: expected true or false, got 'maybe'"),
    ({"spin": "yes"}, "spin: expected true or false, got 'yes'"),
    ({"spin": 1}, "spin: expected true or false, got 1"),
    ({"mode": "fast"}, "mode: expected 'auto', 'zero-copy', 'native' or 'generic', got 'fast'"),
    ({"spinn": True}, "spinn: unknown key; did you mean spin?"),
]


@pytest.mark.parametrize(("values", "expected"), LINK_MISTAKES)
def test_mistake_in_a_link(values, expected):
    assert sentence(LinkSettings, values) == expected


@pytest.mark.parametrize(("values", "expected"), ENGINE_MISTAKES)
def test_mistake_in_the_engine(values, expected):
    assert sentence(EngineSettings, values) == expected


def test_a_mistake_names_where_it_is():
    with pytest.raises(SettingsError) as caught:
        read(LinkSettings, {"owd": "20"}, "wan.toml", "link.wan")
    assert str(caught.value) == "wan.toml: link.wan: owd: 20 what? write 20ms"
    with pytest.raises(SettingsError) as caught:
        read(DirectionSettings, 5)
    assert str(caught.value) == "expected a table, got 5"


def test_a_key_can_be_spelled_as_it_was_written():
    with pytest.raises(SettingsError) as caught:
        read(LinkSettings, {"forward": {"owd": "20"}}, spelled=lambda path: "--" + "-".join(path))
    assert str(caught.value) == "--forward-owd: 20 what? write 20ms"


def test_a_mistake_for_both_directions_counts_once():
    assert sentence(LinkSettings, {"owd": "x"}) == (
        "owd: 'x' is no duration: write a number and a unit, for instance 20ms"
    )


def test_further_mistakes_are_counted():
    assert sentence(LinkSettings, {"owd": "20", "loss": "2"}) == "owd: 20 what? write 20ms (and 1 more)"
    assert sentence(LinkSettings, {"forward": {"owd": "1"}, "reverse": {"owd": "2"}}) == (
        "forward.owd: 1 what? write 1ms (and 1 more)"
    )


def test_short_forms_of_a_link():
    link = link_settings({"owd": "20ms", "rate": "10Mbit", "forward": {"loss": "0.5%"}, "reverse": {"owd": 0}})
    assert (link.forward.owd, link.forward.rate, link.forward.loss) == (20_000_000, 10_000_000, 0.005)
    assert (link.reverse.owd, link.reverse.rate, link.reverse.loss) == (0, 10_000_000, 0.0)
    assert link_settings({"forward": None}) == LinkSettings()


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("50ms", QueueLimit("ns", 50_000_000)),
        ("100packets", QueueLimit("packets", 100)),
        ("64KiB", QueueLimit("bytes", 65536)),
        (0, QueueLimit("packets", 0)),
        ("droptail", None),
        ({"kind": "droptail", "limit": "9packets"}, QueueLimit("packets", 9)),
        ({"limit": QueueLimit("bytes", 7)}, QueueLimit("bytes", 7)),
    ],
)
def test_short_forms_of_a_queue(written, limit):
    assert read(DirectionSettings, {"queue": written}).queue.limit == limit


def test_zero_is_valid_everywhere_but_for_the_rate():
    zero = read(DirectionSettings, {"owd": 0, "jitter": "0ms", "loss": 0, "queue": 0, "rate": None})
    assert (zero.owd, zero.jitter, zero.loss, zero.rate) == (0, 0, 0.0, None)
    assert read(DirectionSettings, {"loss": "100%"}).loss == 1.0


CHANGES = {
    "owd": ["0", "30ms", "1.5s"],
    "jitter": ["0", "1us", "5ms"],
    "jitter_distribution": ["normal", "uniform"],
    "rate": [None, "10Mbit", "999999937bit"],
    "overhead": ["L1", "L2", "L3"],
    "queue": ["100packets", "64KiB", "7ms", "droptail"],
    "loss": ["0", "1e-7", "0.1%", "100%"],
}
changes = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in CHANGES.items()})


@given(changes, changes)
def test_an_update_changes_only_what_it_names(first, then):
    before = read(DirectionSettings, {k: v for k, v in first.items() if v is not None})
    after = before.changed(then)
    for name in DirectionSettings.model_fields:
        if name not in then:
            assert getattr(after, name) == getattr(before, name)
        elif name != "queue":
            assert getattr(after, name) == getattr(read(DirectionSettings, {name: then[name]}), name)


def test_an_update_of_the_queue_changes_only_what_it_names():
    before = read(DirectionSettings, {"queue": "64KiB"})
    assert before.changed({"queue": "droptail"}) == before
    assert before.changed({"queue": {"kind": "droptail"}}) == before
    assert before.changed({"queue": {"limit": "9packets"}}).queue.limit == QueueLimit("packets", 9)
    assert before.changed({"queue": "9packets"}).queue.limit == QueueLimit("packets", 9)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lss": "1%"}, "update: lss: unknown key; did you mean loss?"),
        ({"owd": "x"}, "update: owd: 'x' is no duration: write a number and a unit, for instance 20ms"),
        ({"queue": 5}, "update: queue.limit: 5 what? write 5packets, 5KiB or 5ms"),
        ({"queue": True}, "update: queue.limit: expected a quantity such as 50ms, got true"),
        ({"order": "free"}, "order cannot change while the link runs: it decides which stages are compiled"),
    ],
)
def test_a_refused_update(change, expected):
    with pytest.raises(SettingsError) as caught:
        DirectionSettings().changed(change)
    assert str(caught.value) == expected


def test_naming_the_same_order_is_no_change():
    free = read(DirectionSettings, {"order": "free", "jitter": "1ms"})
    assert free.changed({"order": "free", "owd": "3ms"}).order == "free"


def test_stages_are_all_there_whatever_is_asked_for():
    plain, free = DirectionSettings(), read(DirectionSettings, {"order": "free"})
    assert [stage.kind.name for stage in plain.stages()] == ["loss", "bottleneck", "delay"]
    assert [stage.kind.name for stage in free.stages()] == ["loss", "bottleneck", "delay (free order)"]


def test_what_was_asked_in_base_units():
    asked = read(DirectionSettings, {"owd": "20ms", "rate": "1Gbit", "queue": "64KiB", "loss": "0.5%"}).asked()
    assert asked == {
        "owd_ns": 20_000_000,
        "jitter_ns": 0,
        "jitter_distribution": "normal",
        "order": "keep",
        "rate_bps": 1_000_000_000,
        "overhead": "L2",
        "queue": {"kind": "droptail", "limit": "64KiB"},
        "loss": 0.005,
    }


@pytest.mark.parametrize(
    ("rate", "longest", "overhead", "limit", "text"),
    [
        (None, 1518, "L2", QueueLimit("ns", 50_000_000), "50ms"),
        ("10Mbit", 1518, "L2", QueueLimit("ns", 50_000_000), "50ms"),
        ("2428800bit", 1518, "L2", QueueLimit("ns", 50_000_000), "50ms"),  # 15180 bytes: ten packets
        ("2428799bit", 1518, "L2", QueueLimit("bytes", 15180), "15180B"),
        ("64kbit", 1518, "L2", QueueLimit("bytes", 15180), "15180B"),
        ("64kbit", 1518, "L1", QueueLimit("bytes", 15420), "15420B"),
        ("64kbit", 1518, "L3", QueueLimit("bytes", 15040), "15040B"),
        ("10Mbit", 9018, "L2", QueueLimit("bytes", 90180), "90180B"),
    ],
)
def test_the_default_queue_holds_ten_full_size_packets_at_any_rate(rate, longest, overhead, limit, text):
    settings = read(DirectionSettings, {"rate": rate, "overhead": overhead})
    assert settings.queue_limit(longest) == limit
    assert settings.asked(longest)["queue"]["limit"] == text
    if rate:
        faster = settings.changed({"rate": "1Gbit"})
        assert faster.queue_limit(longest) == QueueLimit("ns", 50_000_000)
        assert faster.changed({"rate": rate}).queue_limit(longest) == limit


def test_a_queue_that_was_asked_for_stays_as_it_is():
    settings = read(DirectionSettings, {"rate": "64kbit", "queue": "50ms"})
    assert settings.queue_limit(1518) == QueueLimit("ns", 50_000_000)
    assert settings.changed({"rate": "1kbit"}).queue_limit(1518) == QueueLimit("ns", 50_000_000)


@pytest.mark.parametrize(
    ("rate", "queue", "sentence"),
    [
        ("400kbit", "50ms", "queue = 50ms holds 2500 bytes at 400kbit, less than two packets of 1518 bytes"),
        ("10Mbit", "2KiB", "queue = 2KiB holds 2048 bytes at 10Mbit, less than two packets of 1518 bytes"),
        ("485760bit", "50ms", None),  # 3036 bytes
        ("485759bit", "50ms", "queue = 50ms holds 3035 bytes at 485759bit, less than two packets of 1518 bytes"),
        (None, "50ms", None),
        ("64kbit", None, None),
        ("64kbit", "1packets", None),
        ("64kbit", 0, None),
        ("64kbit", "0ms", None),
    ],
)
def test_a_queue_for_less_than_two_packets_is_warned_of(rate, queue, sentence):
    asked = {"rate": rate} | ({} if queue is None else {"queue": queue})
    said = narrow_queue("run forward", read(DirectionSettings, asked), 1518)
    if sentence is None:
        assert said == []
    else:
        assert said == [
            f"run forward: {sentence}: a packet that comes while another is being sent is dropped; to hold ten: "
            "queue = 10packets"
        ]


def test_chatter_that_cannot_be_dropped_is_warned_of():
    port = PortSpec("eth1", namespace="blue")
    assert kept_chatter(EngineSettings(chatter="drop"), port) == [
        "blue/eth1: chatter = drop has no effect: xskit drops only the chatter of hosts that it made"
    ]
    assert kept_chatter(EngineSettings(), port) == kept_chatter(EngineSettings(chatter="keep"), port) == []
    with pytest.raises(SettingsError, match=r"^\[engine\]: chatter: expected 'drop' or 'keep'"):
        read(EngineSettings, {"chatter": "none"}, "[engine]")


def test_links_share_neither_ports_nor_names():
    a, b, c = PortSpec("a"), PortSpec("b", namespace="x"), PortSpec("c")
    with pytest.raises(SettingsError, match="^port x/b is in two links, or twice in one$"):
        Emulator([LinkSpec("one", (a, b), LinkSettings()), LinkSpec("two", (b, c), LinkSettings())])
    with pytest.raises(SettingsError, match="^two links have the same name$"):
        Emulator([LinkSpec("one", (a, b), LinkSettings()), LinkSpec("one", (c, PortSpec("d")), LinkSettings())])
    with pytest.raises(SettingsError, match="^port a is in two links, or twice in one$"):
        Emulator([LinkSpec("one", (a, PortSpec("a", owned=True)), LinkSettings())])
    with pytest.raises(SettingsError, match="^there is no link: an emulator needs one at least$"):
        Emulator([])


def test_the_longest_owd_and_jitter():
    assert read(DirectionSettings, {"owd": "168h"}).longest_owd_ns == 7 * 24 * 3600 * 10**9
    free = {"order": "free", "jitter_distribution": "uniform"}
    assert read(DirectionSettings, {**free, "owd": "5min", "jitter": "249s"}).longest_owd_ns <= LONGEST_HORIZON_NS
