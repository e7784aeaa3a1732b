"""`xskit experiment` as a user types it: every experiment in its shortest form."""

from __future__ import annotations

import json

import pytest

from tests.e2e.rig import Outer, Result

pytestmark = [pytest.mark.root, pytest.mark.e2e]

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


def run(machine: Outer, name: str, *more: str) -> dict:
    done: Result = machine.xskit("experiment", "run", name, *SHORTEST, "--json", *more)
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    assert found["experiment"] == name
    assert found["command"][:3] == ["xskit", "experiment", "run"]
    return found


def column(table: dict, title: str) -> list:
    at = [one["title"] for one in table["columns"]].index(title)
    return [row[at] for row in table["rows"]]


def test_frame_sizes(machine, cache):
    rates, cpu, views, actions = run(machine, "frame-sizes")["tables"]
    assert column(rates, "mode") == ["rxdrop", "l2fwd"]
    assert all(rate > 0 for rate in column(rates, "4096, multi-buffer") + column(rates, "2048, multi-buffer"))
    assert column(rates, "one chunk of 8192") == ["refused"] * 2
    assert column(cpu, "frames: 4096") == [3.0] * 2
    assert column(cpu, "2048") == [5.0] * 2 or len(views["rows"]) == 12
    assert column(actions, "whole") == column(actions, "sent")


def test_bridge(machine, cache):
    forward, tcp, large = run(machine, "bridge")["tables"]
    assert {row[0]: row[1] for row in forward["rows"]} == {
        "native": "native, copy", "generic": "generic, copy", "zero-copy": "refused"
    }  # fmt: skip
    assert all(rate > 0 for rate in column(forward, "pps")[:4])
    assert all(rate > 0 for rate in column(tcp, "Gbit/s"))
    assert column(large, "lost") == [0]
    assert column(large, "arrived") == column(large, "in flight at most")


def test_veth_tcp(machine, cache):
    rates, pages, model, capacities = run(machine, "veth-tcp")["tables"]
    assert column(rates, "MTU") == ["1500", "8000"]
    assert all(rate > 0 for rate in column(rates, "XDP_PASS native"))
    assert column(capacities, "capacity")[-1] == 36_350
    assert model["rows"][0][1:] == [4096, 4096, 2048, 0.5]
    assert len(pages["rows"]) == 6


def test_tx_sizes(machine, cache):
    (table,) = run(machine, "tx-sizes")["tables"]
    assert column(table, "size") == ["64", "512", "1024", "1500"]
    assert all(rate > 0 for rate in column(table, "pps"))


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
