"""Experiments under other kernels: what only they have, and that counted instructions are repeatable."""

from __future__ import annotations

import pytest

from xskit.bench.document import Table
from xskit.cli.experiment_guests import in_guest
from xskit.experiments.catalogue import find
from xskit.experiments.combined import combined
from xskit.experiments.experiment import ExperimentResult, Options

pytestmark = pytest.mark.vm_bench

SHORTEST = Options.choose(short=True).with_times(0.1, 1)


def run(name: str, kernel: str) -> ExperimentResult:
    (result,) = in_guest(find(name), kernel, "virtio-net", SHORTEST)
    assert result.where.startswith(f"Linux {kernel}.")
    return result


def column(table: Table, title: str) -> list:
    at = [one.title for one in table.columns].index(title)
    return [row[at] for row in table.rows]


def test_packets_were_copied_before_5_13_and_go_out_from_their_page_since():
    copying, paging = run("tx-sizes", "5.10"), run("tx-sizes", "6.1")
    (copied,), (paged,) = copying.tables, paging.tables
    assert column(copied, "bytes copied a packet") == [60, 508, 1020, 1496]
    assert column(paged, "bytes copied a packet") == [0] * 4
    assert (set(column(copied, "path")), set(column(paged, "path"))) == ({"copy"}, {"page"})
    assert (copying.counted, copying.emulated) == (True, True)
    (both,) = combined("tx-sizes", [copying, paging])
    title = next(one.title for one in both.columns if one.title.startswith("copy"))
    costs = column(both, title)
    assert costs == sorted(costs)  # the longer, the more there is to copy
    saved = column(both, "saved")
    assert saved[3] > saved[1] > 0  # and the more is saved: the shape that was published


def test_a_bridge_without_a_copy():
    forward, large = run("bridge", "7.3").tables
    used = dict(zip(column(forward, "mode asked"), column(forward, "in use"), strict=True))
    assert used == {"zero-copy": "native, zero copy", "native": "native, copy", "generic": "generic, copy"}
    assert all(count > 0 for count in column(forward, "forwarded"))
    assert column(large, "lost") == [0]


def test_the_same_link_asked_of_netem_and_of_xskit():
    times, packets = run("netem", "6.12").tables
    overtaken = {(row[0], row[1]): row[-1] for row in times.rows}
    assert overtaken["owd 20ms, jitter 5ms uniform", "xskit"] == 0
    assert overtaken["owd 20ms, jitter 5ms uniform", "sch_netem"] > 0
    arrived = {(row[0], row[1]): row[3] for row in packets.rows}
    assert arrived["owd 6s, no limit said", "sch_netem"] < arrived["owd 6s, no limit said", "xskit"] == 1500
