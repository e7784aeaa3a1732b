"""Results of benchmarks without running one: kept as JSON, and compared."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.pure.support_results import made_session
from xskit.bench.compare import across, sessions
from xskit.bench.compare_report import as_csv, as_dict, as_mail, as_markdown
from xskit.bench.machine import describe_machine, differences
from xskit.bench.others import OtherPrograms
from xskit.bench.results import FileError, Session
from xskit.bench.settings import Case, Conditions, sweep
from xskit.bench.words import option_word
from xskit.cli.bench_compare import _field
from xskit.errors import UsageError

# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_the_same_after_json() -> None:
    before = made_session(Case("rxdrop"), Case("latency", queues=(3,), vlan=5, packet_size=80))
    text = before.to_json()
    assert Session.from_dict(json.loads(text)) == before
    assert '"rx_pps": {' in text
    assert "[0, 10000000, 20000000, 30000000]" in text  # one line


def test_results_of_a_later_version_are_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    values = made_session(Case("rxdrop")).as_dict()
    file.write_text(json.dumps({**values, "schema": 99}))
    with pytest.raises(FileError, match="a later version wrote it"):
        Session.load(file)
    values["cases"][0]["runs"][0]["samples"] = [1, 2]
    case = {**Case("rxdrop").as_dict(), "mode": "teleport"}
    for other in ([], {}, values, {**values, "cases": [{**values["cases"][0], "case": case, "runs": []}]}):
        file.write_text(json.dumps(other))
        with pytest.raises(FileError, match="is not what xskit bench --json writes"):
            Session.load(file)


def test_fields_of_a_case_that_are_unknown_are_left_out() -> None:
    assert Case.from_dict({**Case("loss").as_dict(), "colour": "green"}) == Case("loss")


# --- comparing --------------------------------------------------------------------------------------------------------


def test_equal_cases_are_compared_and_others_left_out() -> None:
    first = made_session(Case("rxdrop"), Case("txonly"))
    second = made_session(Case("txonly"), Case("loss"), factor=2)
    found = sessions(first, second)
    assert {row.case for row in found.rows} == {"txonly"}
    conclusions = {row.metric: row.difference.conclusion for row in found.rows}
    assert conclusions == {"cpu_ns_per_packet": "worse", "tx_pps": "better"}
    assert found.worse
    assert found.machines == []
    assert found.remarks == [
        "only before has, and nothing is said of: rxdrop",
        "only after has, and nothing is said of: loss",
    ]


def test_cases_that_differ_are_compared_in_order_and_it_is_said() -> None:
    found = sessions(made_session(Case("rxdrop")), made_session(Case("rxdrop", frame_size=2048)))
    assert found.remarks == ["rxdrop: the cases differ in frame-size (4096 -> 2048)"]
    assert {row.difference.conclusion for row in found.rows} == {"within noise"}


def test_cases_of_one_mode_are_found_whatever_stands_before_them() -> None:
    first = made_session(Case("rxdrop"), Case("txonly"))
    found = sessions(first, made_session(Case("txonly", batch=8)))
    assert {row.case for row in found.rows} == {"txonly"}
    assert found.remarks == [
        "txonly: the cases differ in batch (64 -> 8)",
        "only before has, and nothing is said of: rxdrop",
    ]


def test_losses_where_there_were_none_are_worse() -> None:
    first, second = made_session(Case("loss")), made_session(Case("loss"))
    for session, loss in ((first, 0.0), (second, 0.03)):
        for run in session.outcomes[0].runs:
            run.metrics["loss"] = loss
    found = sessions(first, second)
    assert found.worse
    assert [row.metric for row in found.rows if row.difference.conclusion == "worse"] == ["loss"]
    mail, table = as_mail(found), as_markdown(found)
    assert re.search(r"lost +0\.000 % +3\.000 % +from 0\n +worse \(8 and 8 runs\)", mail)
    assert "| loss | lost | 0.000 % | 3.000 % | from 0 |  | **worse** |" in table
    assert ",loss,1,0,0.03,,,,no,8,8,worse" in as_csv(found)
    assert json.loads(json.dumps(as_dict(found), allow_nan=False))["rows"][-1]["ratio"] is None
    assert not sessions(first, first).worse
    assert re.search(r"lost +0\.000 % +0\.000 % +none\n +within noise", as_mail(sessions(first, first)))


@pytest.mark.parametrize(
    ("conclusion", "low", "high", "shown"),
    [
        ("better", 1.0002, 1.034, ["+1.7%", "[+0.02%, +3.4%]"]),
        ("worse", 0.98, 0.99996, ["+1.7%", "[-2.0%, -0.004%]"]),
        ("within noise", 0.9999, 1.0001, ["+1.7%", "[-0.0%, +0.0%]"]),
    ],
)
def test_a_difference_never_looks_like_none(conclusion: str, low: float, high: float, shown: list[str]) -> None:
    first = made_session(Case("rxdrop"))
    found = sessions(first, first)
    (row, *_) = found.rows
    different = replace(row.difference, ratio=1.017, low=low, high=high, conclusion=conclusion)
    mail = as_mail(replace(found, rows=[replace(row, difference=different)]))
    assert all(text in mail for text in shown)


def test_what_no_longer_comes_is_worse() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    for run in second.outcomes[0].runs:
        run.metrics["rx_pps"] = 0.0
    (row,) = [row for row in sessions(first, second).rows if row.metric == "rx_pps"]
    assert (row.difference.percent, row.difference.conclusion) == (-100.0, "worse")


def test_other_conditions_are_told() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    first.conditions = Conditions(cpus=(3,)).as_dict()
    second.conditions = json.loads(json.dumps(first.conditions))
    assert sessions(first, second).remarks == []
    second.conditions |= {"duration": 0.2, "cpus": [], "repeat": 90}
    (said,) = sessions(first, second).remarks
    assert said.endswith("under different conditions: duration (1.0 -> 0.2), cpus ([3] -> [])")


def test_nothing_in_common_is_told() -> None:
    with pytest.raises(UsageError, match="before measured rxdrop, after latency: nothing to compare"):
        sessions(made_session(Case("rxdrop")), made_session(Case("latency")))


def test_machines_that_differ_are_told_by_fact() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    second.machine = {**second.machine, "kernel": {**second.machine["kernel"], "release": "9.9"}, "load": [99.0]}
    second.outcomes[0].interfaces = [{"name": "xk0", "rx_queues": 1, "mtu": 9000}]
    found = sessions(first, second)
    assert [(name, other) for name, _, other in found.machines] == [("kernel.release", "9.9"), ("interface.mtu", 9000)]
    text = as_mail(found)
    assert "WARNING: the machines differ" in text
    assert max(map(len, text.splitlines())) <= 72


def test_a_busy_machine_is_told_in_the_comparison() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    for run in second.outcomes[0].runs:
        run.other_cpus = 1.5
    found = sessions(first, second, ("a.json", "b.json"))
    assert any("took 0.0 CPUs while a.json was measured and 1.5 while b.json was" in one for one in found.remarks)
    assert not sessions(first, first).remarks


def test_what_this_process_takes_is_not_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "stat"
    monkeypatch.setattr("xskit.bench.others._TABLE", table)
    own = os.times()
    table.write_text("cpu  100 0 100 900 50 0 0 0 0 0\ncpu0 1 2 3\n")
    others = OtherPrograms()
    table.write_text("cpu  100 0 100 1900 150 0 0 0 0 0\ncpu0 1 2 3\n")
    assert others.cpus() == 0.0
    table.write_text("cpu  600 0 700 1900 150 100 100 200 0 0\ncpu0 1 2 3\n")
    assert others.cpus() > 100  # 14 s of CPU in no time
    assert os.times().elapsed - own.elapsed < 60


def test_the_machine_does_not_differ_from_itself() -> None:
    assert differences(describe_machine(), describe_machine()) == []
    assert differences({"a": {"b": 1}}, {"a": {"b": 1, "c": [2]}}) == [("a.c", None, [2])]


def test_cases_of_one_session_are_compared_along_a_field_pair_by_pair() -> None:
    cases = sweep(Case("txonly"), {"xdp": ["native", "generic"], "packet_size": [64, 1500]})
    found = across(made_session(*cases), "xdp")
    assert {row.case for row in found.rows} == {
        "txonly, mode generic, packet-size 64",
        "txonly, mode generic, packet-size 1500",
    }
    assert all(row.difference.paired for row in found.rows)
    assert found.first == "mode native"
    assert found.remarks == ["differences are medians of the ratios of pairs, which need not be those of the medians"]
    with pytest.raises(UsageError, match="batch has one value only") as caught:
        across(made_session(*cases), "batch")
    assert caught.value.remedy == "--across mode"


def test_an_option_is_found_by_the_word_that_reports_have_for_it() -> None:
    for name in (one.name for one in fields(Case) if one.name != "mode"):
        assert _field(option_word(name)) == _field(f"--{option_word(name)}") == name
    with pytest.raises(UsageError, match="cases have no option colour-of-it") as caught:
        across(made_session(Case("txonly")), _field("colour-of-it"))
    assert {"mode", "frags", "tx-cycle", "packet-size"} <= set(
        str(caught.value.remedy).removeprefix("--across one of ").split(", ")
    )
