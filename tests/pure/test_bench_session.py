"""Runs of all cases in turns, without a kernel: how often, until when, and what is left when somebody interrupts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pure.support_results import made_run
from xskit.bench import session as module
from xskit.bench.results import BindModeInUse, Session
from xskit.bench.session import measure
from xskit.bench.session_report import remarks
from xskit.bench.settings import Case, Conditions

CASES = [Case("rxdrop"), Case("txonly")]


class NoBed:
    """In the place of veth pairs."""

    def __init__(self, far: tuple[str, ...]) -> None: ...

    def __enter__(self) -> NoBed:
        return self

    def __exit__(self, *error: object) -> None: ...

    def place(self, case: Case) -> Any:
        return SimpleNamespace(near=(), inside=nullcontext)


Doing = Callable[[Callable[[Case, int], dict[str, float]]], None]


@pytest.fixture
def doing(monkeypatch: pytest.MonkeyPatch) -> Doing:
    """What a run of a case brings."""

    def set_up(metrics: Callable[[Case, int], dict[str, float]]) -> None:
        def do(case: Case, place: Any, conditions: Any, repeat: int, observe: Any) -> tuple[Any, Any]:
            mode = BindModeInUse("native", False, False, None)
            return made_run(repeat, metrics(case, repeat)), SimpleNamespace(mode=mode, interrupted=False)

        monkeypatch.setattr(module, "Bed", NoBed)
        monkeypatch.setattr(module, "run_once", do)

    return set_up


def runs(session: Session) -> list[int]:
    return [len(outcome.runs) for outcome in session.outcomes]


def test_cases_that_are_known_well_enough_are_left_out_of_further_rounds(doing: Doing) -> None:
    doing(lambda case, repeat: {"rx_pps": 100.0, "tx_pps": 100.0 + (5 if repeat % 2 else -5) * (repeat < 20)})
    assert runs(measure(CASES, Conditions(repeat=3, until=0.01))) == [6, 33]  # ranks 11 to 23 of 33
    assert runs(measure(CASES, Conditions(repeat=8))) == [8, 8]


def test_what_was_asked_for_and_not_reached_is_told(doing: Doing) -> None:
    doing(lambda case, repeat: {"rx_pps": 100.0, "tx_pps": 100.0 + (repeat % 2) * 10})
    session = measure(CASES, Conditions(repeat=2, until=0.01, most=12))
    assert runs(session) == [6, 12]
    (said,) = [line for line in remarks(session) if "--until" in line]
    assert said == "txonly: --until 0.01 was not reached in 12 runs: 'sent' is known within 4.76%"
    assert not [line for line in remarks(measure(CASES, Conditions(repeat=2))) if "--until" in line]


def test_as_many_runs_as_were_asked_for_are_done_whatever_the_limit(doing: Doing) -> None:
    doing(lambda case, repeat: {"rx_pps": 100.0, "tx_pps": 100.0})
    assert runs(measure(CASES, Conditions(repeat=15, until=0.01, most=12))) == [15, 15]


def test_ctrl_c_between_runs_leaves_what_was_measured(doing: Doing) -> None:
    asked = iter([1.0, 2.0, 3.0])

    def interrupt(case: Case, repeat: int) -> dict[str, float]:
        value = next(asked, None)
        if value is None:
            raise KeyboardInterrupt
        return {"rx_pps": value, "tx_pps": value}

    doing(interrupt)
    session = measure(CASES, Conditions(repeat=5))
    assert session.interrupted
    assert runs(session) == [2, 1]


def test_ctrl_c_before_anything_was_measured_is_passed_on(doing: Doing) -> None:
    def interrupt(case: Case, repeat: int) -> dict[str, float]:
        raise KeyboardInterrupt

    doing(interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(CASES, Conditions())
