"""Runs and sessions of benchmarks with figures that a test has made up."""

from __future__ import annotations

from xskit.bench.machine import describe_machine
from xskit.bench.metrics import OF_MODE, Sample
from xskit.bench.results import BindModeInUse, CaseResult, Run, Session
from xskit.bench.settings import Case


def samples(rate_a_step: list[int], step_ns: int = 10_000_000) -> list[Sample]:
    found, total = [Sample(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)], 0
    for number, packets in enumerate(rate_a_step, start=1):
        total += packets
        busy = number * step_ns // 2
        found.append(Sample(number * step_ns, total, total * 60, 0, 0, busy, busy, total * 5, total, total))
    return found


def made_run(repeat: int, metrics: dict[str, float]) -> Run:
    return Run(
        repeat=repeat,
        started="2026-01-01T00:00:00.000+00:00",
        seconds=1.0,
        metrics=metrics,
        counts={"received": 1, "sent": 0},
        kernel={"rx_dropped": 0},
        calls={},
        far={"made": 5},
        cpu_ns=1,
        busy_ns=1,
        warm_up_seconds=0.1,
        samples=samples([1, 2, 3]),
        histogram={"100": 5},
        notes=["a note"],
    )


def made_session(*cases: Case, factor: float = 1.0) -> Session:
    outcomes = []
    for case in cases:
        values = dict.fromkeys(OF_MODE[case.mode], 100.0 * factor)
        runs = [made_run(number, {name: value + number for name, value in values.items()}) for number in range(8)]
        outcomes.append(
            CaseResult(
                case, BindModeInUse("native", False, False, 2048, ["why"]), [{"name": "xk0", "rx_queues": 1}], runs
            )
        )
    return Session(describe_machine(), ["xskit", "bench"], {"repeat": 8}, "2026-01-01", outcomes, 1.5)
