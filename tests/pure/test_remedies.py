"""What mends an error is said in the words of the interface in use: Python, options, or the keys of a file."""

from __future__ import annotations

import errno
import json
import re

import pytest

from xskit.cli import main
from xskit.emulator import room
from xskit.emulator.mistakes import CapacityError
from xskit.emulator.room import check_room, engine_words
from xskit.emulator.settings import EngineSettings, link_settings
from xskit.emulator.sizing import PortFacts, plan_links
from xskit.errors import Setting, XskitError
from xskit.xsk.errors import EXPLANATIONS, Call, explain

GIB = 1 << 30


def shown(capsys, remedy, *arguments):
    """What the command line prints of an error."""
    main._show(XskitError("it failed", remedy=remedy), arguments)
    return capsys.readouterr()


@pytest.mark.parametrize(
    ("remedy", "python", "option", "key"),
    [
        (Setting("mode", "native"), "mode='native'", "--mode native", 'mode = "native"'),
        (Setting("frame_size", 4096), "frame_size=4096", "--frame-size 4096", "frame_size = 4096"),
        (Setting("cpus", [3, 1]), "cpus=[3, 1]", "--cpus 3,1", "cpus = [3, 1]"),
        (
            Setting("memory", "2GiB", "{} or less"),
            "memory='2GiB' or less",
            "--memory 2GiB or less",
            'memory = "2GiB" or less',
        ),
    ],
)
def test_a_setting_is_written_for_who_reads_it(capsys, remedy, python, option, key):
    assert str(XskitError("it failed", remedy=remedy)) == f"it failed\n  try: {python}"
    assert shown(capsys, remedy, "run", "--", "true").err == f"xskit: it failed\ntry: {option}\n"
    told = shown(capsys, remedy, "emulate", "wan.toml", "--json")
    assert told.err == f"xskit: it failed\ntry: {key} (in the table [engine])\n"
    assert json.loads(told.out)["error"]["remedy"] == f"{key} (in the table [engine])"


def test_bench_has_the_words_of_xdpsock(capsys):
    assert shown(capsys, Setting("mode", "generic"), "bench", "rxdrop").err.endswith("try: --mode skb\n")
    assert shown(capsys, Setting("mode", "native"), "bench", "rxdrop").err.endswith("try: --mode native\n")
    assert shown(capsys, Setting("rx", 128), "bench", "rxdrop").err.endswith("try: --ring 128\n")
    assert shown(capsys, Setting("multi_buffer", False), "bench", "rxdrop").err.endswith("try: no --frags\n")
    remedy = Setting("unaligned", True, "a frame size of 2048 or 4096, or {}")
    assert shown(capsys, remedy, "bench", "rxdrop").err.endswith("try: a frame size of 2048 or 4096, or --unaligned\n")


def test_other_remedies_stay_as_they_are(capsys):
    assert shown(capsys, "ip link set xka up", "emulate", "a.toml").err.endswith("try: ip link set xka up\n")
    assert shown(capsys, None, "run").err == "xskit: it failed\n"


FACTS = {
    "interface": "eth1", "queue": 0, "ring": "RX", "ring_argument": "rx", "entries": 8, "nearest": 8, "frames": 4,
    "frame_size": 2048, "headroom": 1, "largest_headroom": 2, "needed": 3, "needed_kib": 4, "allowed": 5, "budget": 6,
    "option": "x", "queue_range": "0", "needed_queues": 1, "holders": "",
}  # fmt: skip
SINGLE_SOCKET = ("rx=", "tx=", "fill=", "completion=", "multi_buffer=", "mode=", "frame_size=")


@pytest.mark.parametrize("key", EXPLANATIONS)
def test_no_remedy_of_a_socket_is_python_where_a_link_is_run(key):
    """Those that stay plain text are commands, or cannot come about: the engine's ring sizes are powers of two."""
    error = explain(*key, **FACTS)
    if key == (Call.RING, errno.EINVAL, ""):
        return
    with pytest.raises(XskitError) as told, engine_words():
        raise error
    remedy = told.value.remedy
    if isinstance(remedy, Setting):
        assert remedy.name in EngineSettings.model_fields
        EngineSettings(**{remedy.name: remedy.value})
    else:
        assert not (remedy or "").startswith(SINGLE_SOCKET)


def test_a_ring_that_is_too_large_is_mended_by_its_own_argument_or_by_that_of_the_engine():
    error = explain(Call.RING, errno.ENOMEM, **FACTS)
    assert error.remedy == "rx=2048"
    with pytest.raises(XskitError, match="try: ring_size=2048"), engine_words():
        raise error


def plan_for(engine, **settings):
    port = PortFacts(1500)
    return plan_links([(link_settings(settings), port, port)], engine)


@pytest.fixture
def machine(monkeypatch):
    """A machine with 16 GiB to spare."""
    monkeypatch.setattr(room, "available_bytes", lambda: 16 * GIB)


def test_memory_that_the_machine_does_not_have_is_refused(machine):
    engine = EngineSettings(memory="1TiB")
    with pytest.raises(CapacityError) as refused:
        check_room(plan_for(engine), engine)
    assert refused.value.cause == (
        "so much packet memory takes 1210.0GiB of memory in all, but this machine has 16.0GiB to spare"
    )
    assert refused.value.remedy == "memory='10GiB' or less"
    engine = EngineSettings(memory="10GiB")
    check_room(plan_for(engine), engine)


def test_what_does_not_fit_never_looks_as_if_it_did(machine, monkeypatch):
    engine = EngineSettings(memory="1GiB")
    plan = plan_for(engine)
    monkeypatch.setattr(room, "available_bytes", lambda: plan.total_bytes - 1)
    with pytest.raises(CapacityError) as refused:
        check_room(plan, engine)
    needed, spare = re.findall(r"([\d.]+)GiB", refused.value.cause)
    assert float(needed) > float(spare)


def test_settings_that_hold_more_than_the_machine_has_are_refused(machine):
    plan = plan_for(EngineSettings(), rate="10Gbit", queue="1h")
    with pytest.raises(CapacityError) as refused:
        check_room(plan, EngineSettings())
    assert refused.value.cause.startswith("holding what is in flight at this rate, owd and queue takes ")
    assert refused.value.cause.endswith("GiB of memory in all, but this machine has 16.0GiB to spare")
    assert refused.value.remedy == ("a smaller rate, owd or queue; or memory='10GiB', and what does not fit is dropped")


def test_the_hugetlb_pool_was_set_aside_before(machine):
    engine = EngineSettings(memory="20GiB", hugetlb=True)
    check_room(plan_for(engine), engine)


def test_this_machine_has_some_memory():
    assert room.available_bytes() > 1 << 20
