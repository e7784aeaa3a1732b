"""`xskit experiment` as a user types it: every experiment in its shortest form.

No rate is judged: where others are at work it says nothing. A measurement during which nobody let the sender run is
repeated, and only if nothing came in several it is a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.rig import Outer, Result

pytestmark = [pytest.mark.root, pytest.mark.e2e]

ATTEMPTS = 4
SHORTEST = ("--short", "--seconds", "0.05", "--repeat", "1", "--quiet")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Results of others are not to be replaced; compiled code is to be found where it is."""
    from xskit.jit import cache_root

    place = tmp_path / "cache"
    place.mkdir()
    for folder in cache_root().glob("code-*"):
        (place / folder.name).symlink_to(folder)
    monkeypatch.setenv("XSKIT_CACHE", str(place))
    return place


def run(machine: Outer, name: str, *more: str, counted: Callable[[list[dict]], list] = lambda tables: [1]) -> dict:
    """What it found; `counted` are the figures that are none as long as no packet came."""
    for _ in range(ATTEMPTS):
        done: Result = machine.xskit("experiment", "run", name, *SHORTEST, "--json", *more)
        assert done.code == 0, done.err
        (found,) = json.loads(done.out)
        assert found["experiment"] == name
        assert found["command"][:3] == ["xskit", "experiment", "run"]
        if all(counted(found["tables"])):
            return found
    raise AssertionError(f"no packet came in {ATTEMPTS} runs: {found['tables']}")


def column(table: dict, title: str) -> list:
    at = [one["title"] for one in table["columns"]].index(title)
    return [row[at] for row in table["rows"]]


def test_frame_sizes(machine, cache):
    def frames(tables: list[dict]) -> list:
        return column(tables[1], "frames: 4096") + column(tables[1], "frames: 2048")

    rates, cpu, views, actions = run(machine, "frame-sizes", counted=frames)["tables"]
    assert column(rates, "mode") == column(cpu, "mode") == ["rxdrop", "l2fwd"]
    assert column(rates, "one chunk of 8192") == ["refused"] * 2
    assert frames([rates, cpu]) == [3.0] * 2 + [5.0] * 2
    assert column(views, "frames each") == [3] * 4 + [5] * 4 + [1] * 4
    assert column(actions, "action") == ["XDP_PASS", "XDP_REDIRECT"]
    assert column(actions, "whole") == column(actions, "arrived") == column(actions, "sent")


def test_bridge(machine, cache):
    def forwarded(tables: list[dict]) -> list:
        return [row[4] for row in tables[0]["rows"] if row[1] != "refused"]

    forward, tcp, large = run(machine, "bridge", counted=forwarded)["tables"]
    used = {row[0]: row[1] for row in forward["rows"]}
    assert used == {"native": "native, copy", "generic": "generic, copy", "zero-copy": "refused"}
    assert column(forward, "driven") == ["one way", "both ways"] * 4 + [""]
    assert column(tcp, "direction") == ["there", "back", "both at once"] * 2
    assert all(rate > 0 for rate in column(tcp, "Gbit/s"))
    assert column(large, "lost") == [0]
    assert column(large, "arrived") == column(large, "in flight at most") > [0]


def test_veth_tcp(machine, cache):
    rates, pages, model, capacities = run(machine, "veth-tcp")["tables"]
    assert column(rates, "MTU") == ["1500", "8000"]
    assert all(rate > 0 for rate in column(rates, "XDP_PASS native"))
    assert column(capacities, "capacity")[-1] == 36_350
    assert model["rows"][0][1:] == [4096, 4096, 2048, 0.5]
    assert len(pages["rows"]) == 6


def test_tx_sizes(machine, cache):
    (table,) = run(machine, "tx-sizes", counted=lambda tables: column(tables[0], "pps"))["tables"]
    assert column(table, "size") == ["64", "512", "1024", "1500"]


def test_netem_runs_or_says_that_this_kernel_has_none(machine, cache):
    done = machine.xskit("experiment", "run", "netem", *SHORTEST, "--json")
    if done.code == 0:
        (found,) = json.loads(done.out)
        assert [row[0] for row in found["tables"][0]["rows"]][:1] == ["owd 20ms"]
    else:
        assert "this kernel has no sch_netem" in done.err
        assert "try: xskit experiment run netem --kernel" in done.err


def test_what_was_measured_is_reported(machine, cache):
    assert "Published" in machine.xskit("experiment", "report").out
    run(machine, "tx-sizes")
    said = machine.xskit("experiment", "report", "tx-sizes", "--format", "markdown")
    assert said.code == 0
    assert "`xskit experiment run tx-sizes" in said.out
    assert len(json.loads(machine.xskit("experiment", "report", "--format", "json").out)) == 1


def test_the_list_and_mistakes(machine):
    assert machine.xskit("experiment", "list").out.count("\n") == 10
    done = machine.xskit("experiment", "run", "frame-size")
    assert done.code == 2
    assert "try: xskit experiment run frame-sizes" in done.err
    assert machine.xskit("experiment", "run", "bridge", "--repeat", "0").code == 2
    denied = machine.xskit_without_privileges("experiment", "run", "bridge", "--short")
    assert denied.code == 1
    assert "CAP_NET_ADMIN" in denied.err
