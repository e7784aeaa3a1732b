"""`xskit bench` and `xskit bench compare` as users type them."""

from __future__ import annotations

import csv
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import XSKIT, Bridge, Outer

pytestmark = [pytest.mark.e2e, pytest.mark.root]

QUICK = ("--duration", "60ms", "--repeat", "2")


def bench(machine: Outer, *arguments: str, code: int = 0) -> str:
    result = machine.xskit("bench", *arguments)
    assert (result.code, result.err) == (code, ""), result.out
    return result.out


def measured(machine: Outer, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench(machine, *arguments, "--json"))
    return found


@pytest.mark.parametrize("mode", ["rxdrop", "txonly", "l2fwd", "forward", "latency", "loss"])
def test_every_mode_runs_without_any_interface(machine: Outer, mode: str) -> None:
    found = measured(machine, mode, *QUICK)
    (case,) = found["cases"]
    assert case["case"]["mode"] == mode
    assert case["mode_in_use"]["xdp"] == ("none" if mode == "txonly" else "native")
    assert len(case["runs"]) == 2
    for run in case["runs"]:
        assert run["counts"]["received"] + run["counts"]["sent"] > 0
        assert len(run["samples"]["time_ns"]) > 1


def test_the_json_says_everything_about_machine_and_interface(machine: Outer) -> None:
    found = measured(machine, "rxdrop", *QUICK)
    assert found["schema"] == 1
    assert found["command"][:3] == ["xskit", "bench", "rxdrop"]
    facts = found["machine"]
    assert set(facts) >= {"kernel", "cpu", "mitigations", "memory", "versions", "load"}
    assert set(facts["versions"]) >= {"python", "xskit", "numba", "numpy"}
    assert facts["kernel"]["release"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    (interface,) = found["cases"][0]["interfaces"]
    assert (interface["driver"], interface["kind"], interface["mtu"]) == ("veth", "veth", 1500)
    wanted = {"firmware", "offloads", "xdp_features", "hardware_rings", "rx_queues", "napi", "mode"}
    assert set(interface) >= wanted
    assert interface["napi"]["by"] == "the CPU that sends"


def test_lists_are_swept_in_turns(machine: Outer) -> None:
    found = measured(machine, "txonly", *QUICK, "--mode", "skb,native", "--packet-size", "64,1500")
    cases = [(one["case"]["xdp"], one["case"]["packet_size"]) for one in found["cases"]]
    assert cases == [("generic", 64), ("generic", 1500), ("native", 64), ("native", 1500)]
    begun = [
        (run["started"], run["repeat"]) for repeat in (0, 1) for one in found["cases"] for run in [one["runs"][repeat]]
    ]
    assert begun == sorted(begun)
    assert [repeat for _, repeat in begun] == [0] * 4 + [1] * 4


def test_the_table_shows_the_mode_in_use_medians_and_runs(machine: Outer) -> None:
    out = bench(machine, "l2fwd", *QUICK, "-x", "-a")
    assert re.search(r"l2fwd +native, copy +received +[0-9.]+ k?M?pps +range [0-9.]+ \.\. [0-9.]+ k?M?pps +2", out)
    assert re.search(r"CPU time a packet +[0-9.]+ (ns|us)", out)
    assert re.search(r"rx ring full +\d+  \d+/s", out)
    assert re.search(r"copy tx sendtos +\d+  \d+/s", out)
    assert "not better: zero copy: the driver of xknear0 has no zero copy" in out


def test_xdpsock_s_letters_give_xdpsock_s_columns(machine: Outer) -> None:
    out = bench(machine, "-t", "-S", "-p", "-s", "128", "-d", "2", "-n", "1", "-x", "-a", "--format", "xdpsock")
    blocks = out.split("\n sock0@xknear0:0 txonly xdp-skb poll() \n")[1:]
    assert len(blocks) >= 2
    for block in blocks:
        lines = block.split("\n")
        assert re.fullmatch(r" {19}pps {12}pkts {11}\d\.\d\d {10}", lines[0])
        names = ["rx", "tx", "rx dropped", "rx invalid", "tx invalid", "rx queue full", "fill ring empty"]
        for name, line in zip([*names, "tx ring empty"], lines[1:9], strict=True):
            assert re.fullmatch(rf"{name:<18s} (?=.{{14}} )\d+ * (?=.{{14}}$)\d+ *", line), line
        assert lines[9] == ""
        assert lines[10] == f"{'':<18} {'calls/s':<14} {'count':<14}"
        calls = ["rx empty polls", "fill fail polls", "copy tx sendtos", "tx wakeup sendtos", "opt polls"]
        for name, line in zip(calls, lines[11:16], strict=True):
            assert re.fullmatch(rf"{name:<18s} (?=.{{14}} )\d+ * (?=.{{14}}$)\d+ *", line), line
    sent = [int(block.split("\n")[2].split()[2]) for block in blocks]
    assert sent == sorted(sent)
    assert sent[-1] > 0


def test_frames_have_their_columns_as_xdpsock_has_them(machine: Outer) -> None:
    out = bench(machine, "-tF", "-s", "9000", "-b", "4", "-C", "40", "--format", "xdpsock")
    head, received, sent = out.rstrip("\n").split("\n")[-3:]
    assert re.fullmatch(r" {19}pps {12}pkts {11}fps {12}frags {10}\d+\.\d\d +", head)
    assert received == f"{'rx':<18} {'0':<14} {'0':<14} {'0':<14} {'0':<14}"
    assert re.fullmatch(r"tx {17}(?=.{14} )\d+ +40 {13}(?=.{14} )\d+ +120 {11}", sent)


def test_cycles_are_shown_as_xdpsock_shows_them(machine: Outer) -> None:
    out = bench(machine, "-t", "-T", "1000", "-C", "320", "-b", "16", "-a", "--format", "xdpsock")
    head, row = out.rstrip("\n").split("\n")[-2:]
    assert head == f"{'':<18} {'period':<10} {'min':<10} {'ave':<10} {'max':<10} {'cycle':<10}"
    assert re.fullmatch(r"Cyclic TX {10}1000000    (\d+ +){3}19 +", row)
    assert re.search(r"^tx {17}\d+ +320 +$", out, re.MULTILINE)


def test_pages_stand_alone(machine: Outer, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    bench(machine, "latency", *QUICK, "--html", str(page), "--report", str(tmp_path / "r.json"))
    text = page.read_text()
    assert text.count("<svg") >= 3
    assert "Round trips" in text
    assert not re.search(r"https?:|<script|<link|src=", text)
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "xskit bench"


def test_runs_go_on_until_the_interval_is_narrow(machine: Outer) -> None:
    found = measured(machine, "txonly", "-d", "20ms", "--repeat", "2", "--until", "99%")
    assert len(found["cases"][0]["runs"]) >= 6  # fewer have no interval
    assert found["cases"][0]["summary"]["tx_pps"]["low"] is not None


def test_ctrl_c_ends_it_with_what_there_is(machine: Outer) -> None:
    process = machine.start(XSKIT, "bench", "rxdrop", "-d", "60", "-n", "50ms", "--format", "xdpsock")
    assert process.stdout is not None
    while "rx " not in process.stdout.readline():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "sock0@xknear0:0 rxdrop xdp-drv" in out
    machine.nothing_left(process.pid)


def test_an_interface_of_ones_own_is_measured_and_left_as_it_was(bridge: Bridge) -> None:
    before = bridge.outer.run("ip", "-details", "link", "show", "xka").out
    found = json.loads(bridge.outer.xskit("bench", "txonly", "-i", "xka", *QUICK, "--json").out)
    (case,) = found["cases"]
    assert case["interfaces"][0]["name"] == "xka"
    assert all(run["counts"]["sent"] > 0 and run["far"] == {} for run in case["runs"])
    assert bridge.outer.run("ip", "-details", "link", "show", "xka").out == before


def test_results_are_compared(machine: Outer, tmp_path: Path) -> None:
    base = tmp_path / "base.json"
    sizes = ("--packet-size", "64,1500")
    base.write_text(bench(machine, "txonly", "-d", "30ms", "--repeat", "6", *sizes, "--json"))

    same = bench(machine, "compare", str(base), str(base))
    assert same.count("within noise (6 and 6 runs)") == 4
    assert "machines differ" not in same
    assert max(map(len, same.splitlines())) <= 72

    slower = json.loads(base.read_text())
    slower["machine"]["cpu"]["model"] = "another"
    for case in slower["cases"]:
        for run in case["runs"]:
            run["metrics"]["cpu_ns_per_packet"] *= 4
    other = tmp_path / "other.json"
    other.write_text(json.dumps(slower))
    text = bench(machine, "compare", str(base), str(other))
    assert text.count("+300.0%") == text.count("worse (6 and 6 runs)") == 2
    assert "WARNING: the machines differ" in text
    assert re.search(r"^- cpu\.model: .* -> another$", text.replace("\n  ", " "), re.MULTILINE)
    assert bench(machine, "compare", str(base), str(other), "--check", code=1) == text

    rows = list(csv.DictReader(bench(machine, "compare", str(base), str(other), "--format", "csv").splitlines()))
    conclusions = {(row["case"], row["metric"]): row["conclusion"] for row in rows}
    assert conclusions["txonly, packet-size 64", "cpu_ns_per_packet"] == "worse"
    assert conclusions["txonly, packet-size 64", "tx_pps"] == "within noise"
    markdown = bench(machine, "compare", str(base), str(other), "--format", "markdown").splitlines()
    assert markdown[0].startswith("| case | metric | base.json | other.json |")
    assert {line.count("|") for line in markdown[:6]} == {8}
    assert "**worse**" in markdown[2]
    (as_json,) = json.loads(bench(machine, "compare", str(base), str(other), "--format", "json"))
    assert as_json["machines_differ"][0]["second"] == "another"

    across = bench(machine, "compare", str(base), "--across", "packet-size")
    assert "packet-size 64 -> each other value" in across
    assert across.count("(6 and 6 runs)") == 2  # too few for pairs

    early = machine.xskit("bench", "rxdrop", "-d", "1h", "--compare", str(base))
    assert early.code == 2
    assert f"{base} has no results of rxdrop" in early.err

    now = bench(machine, "txonly", *QUICK, *sizes, "--compare", str(base))
    assert "base.json -> now" in " ".join(now.split())
    assert "too few runs (6 and 2 runs)" in now


# Those that need no interface and no process of their own are in tests/pure/test_cli_mistakes.py.
MISTAKES = [
    (["rxdrop", "--mode", "fast"], "there is no mode 'fast'", "--mode auto, native, skb or zero-copy"),
    (["rxdrop", "-i", "xknone"], "there is no interface xknone in this network namespace", "ip -brief link"),
    (["rxdrop", "-I", "no such line"], "no line of /proc/interrupts contains", "cat /proc/interrupts"),
    (["rxdrop", "--cpu", "4000", *QUICK], "this process cannot run on CPU 4000", "lscpu --online --extended"),
    (["rxdrop", "-z", *QUICK], "has no zero copy", "try: --mode native"),
    (["rxdrop", "--ring", "100", *QUICK], "the RX ring cannot have 100 entries", "try: --ring 128"),
]


@pytest.mark.parametrize(("arguments", "cause", "remedy"), MISTAKES, ids=[" ".join(one[0]) for one in MISTAKES])
def test_mistakes_are_told_with_a_remedy(machine: Outer, arguments: list[str], cause: str, remedy: str) -> None:
    result = machine.xskit("bench", *arguments)
    assert result.code in (1, 2)
    assert cause in result.err
    assert remedy in result.err
    assert "Traceback" not in result.err
