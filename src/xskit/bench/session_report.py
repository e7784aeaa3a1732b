"""What a session says: medians and what is worth a remark; while it runs; and everything, for a page."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xskit.bench.document import Column, Dots, Folded, Heading, Items, Part, Plot, Row, Table, Unit
from xskit.bench.machine import flat
from xskit.bench.metrics import METRICS, OF_MODE, rates
from xskit.bench.others import BUSY
from xskit.bench.results import CaseResult, Session
from xskit.bench.runner import CALLS, Running
from xskit.bench.words import case_words, figure, interval
from xskit.engine import histogram

__all__ = ["final", "live", "page", "remarks"]

FRACTIONS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)
MARKED = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


def live(session: Session | None, running: Running, total: str) -> list[Part]:
    """What is known while a run goes on: the runs so far, and the present rates; `total` runs are to be done."""
    row = [running.case.mode, str(running.mode), _rates(running, -2), _rates(running, 0)]
    columns: dict[str, Unit] = dict.fromkeys(("case", "mode in use", "now", "since the start"), "text")
    now = Table.of(f"run {running.repeat + 1} of {total}", columns, [row])
    return [now, _medians(session)] if session and session.outcomes else [now]


def _rates(running: Running, first: int) -> str:
    samples = running.samples
    if len(samples) < 2:
        return ""
    found = rates([samples[first], samples[-1]], sleeps=running.case.poll)
    shown = [name for name in ("rx_pps", "tx_pps") if found.get(name)]
    return ", ".join(f"{METRICS[name].title} {figure(METRICS[name], found[name])}" for name in shown) or "nothing"


def final(session: Session, *, extra: bool = False, calls: bool = False) -> list[Part]:
    """The final table, and what is worth saying below it."""
    counters = [_counters(session, extra=extra, calls=calls)] if extra or calls else []
    notes = remarks(session)
    return [session.headline(), _medians(session), *counters, *([Items(notes)] if notes else [])]


def _medians(session: Session) -> Table:
    """Median, interval and number of runs, a line for each metric of each case."""
    columns: dict[str, Unit] = {"case": "text", "mode in use": "text", "metric": "text", "median": "number"}
    columns |= {"95 % of the median": "number", "runs": "number", "outliers": "text"}
    table = Table.of("", columns, [])
    for outcome, label in _labelled(session):
        rows = [[METRICS[name].title, "-", "", "", ""] for name in _no_results(session, outcome)]
        for name in outcome.metrics():
            spread, metric = outcome.spread(name), METRICS[name]
            assert spread is not None
            middle, around = figure(metric, spread.median), interval(metric, spread)
            rows.append([metric.title, middle, around, str(spread.n), _outliers(outcome, name, spread.outliers)])
        heads = itertools.chain([(label, str(outcome.mode))], itertools.repeat(("", "")))
        table.rows += [[*head, *row] for head, row in zip(heads, rows, strict=False)]
    return table


def _labelled(session: Session) -> list[tuple[CaseResult, str]]:
    return list(zip(session.outcomes, map(case_words, session.labels()), strict=True))


def _no_results(session: Session, outcome: CaseResult) -> list[str]:
    """The mode's first metric if instructions were counted, which give no times or rates; otherwise nothing."""
    return [OF_MODE[outcome.case.mode][0]] if session.is_counted(outcome.case) else []


def _outliers(outcome: CaseResult, name: str, positions: Sequence[int]) -> str:
    values = outcome.values(name)
    return ", ".join(figure(METRICS[name], values[at]) for at in positions[:3]) + (" ..." if len(positions) > 3 else "")


def remarks(session: Session) -> list[str]:
    """Why better modes were not to be had, warm-up, and the notes of runs; each sentence once."""
    found: list[str] = []
    until: float | None = session.conditions.get("until")
    for outcome, label in _labelled(session):
        where = f"{label}: " if len(session.outcomes) > 1 else ""
        found += [f"not better: {why}" for why in outcome.mode.why]
        listened = ", ".join(map(str, outcome.case.queues))
        found += [
            f"{facts['name']} has {facts['rx_queues']} RX queues and only {listened} was listened to: "
            "what its RSS gave to others is not in these figures (--queue all)"
            for facts in outcome.interfaces
            if outcome.case.mode != "txonly" and facts["rx_queues"] > len(outcome.case.queues)
        ]
        if until is not None and not outcome.is_known(until):
            found.append(_not_known(outcome, until, where))
        warm = [run.warm_up_seconds for run in outcome.runs if run.warm_up_seconds]
        if warm:
            found.append(f"{where}warm-up, not counted: up to {max(warm):.2g} s of a run, in {len(warm)} runs")
        found += [f"{where}{note} (last run)" for run in outcome.runs[-1:] for note in run.notes]
        interrupts = [run.interrupts for run in outcome.runs if run.interrupts is not None]
        if interrupts:
            rate = f"{sum(interrupts) / sum(run.seconds for run in outcome.runs):.0f} interrupts/s"
            found.append(f"{where}{f'{sum(interrupts)} interrupts' if session.is_counted(outcome.case) else rate}")
    others = max((outcome.other_cpus for outcome in session.outcomes), default=0.0)
    if others > BUSY:
        found.append(f"other programs took {others:.1f} CPUs meanwhile: small differences are not to be trusted")
    return list(dict.fromkeys(found))


def _not_known(outcome: CaseResult, until: float, where: str) -> str:
    """What --until asked for, and what there is."""
    title = METRICS[outcome.main_metric].title
    spread = outcome.spread(outcome.main_metric)
    width = spread.width if spread else None
    known = "not at all" if width is None else f"within {width:.2%}"
    return f"{where}--until {until:g} was not reached in {len(outcome.runs)} runs: '{title}' is known {known}"


def _counters(session: Session, *, extra: bool, calls: bool) -> Table:
    """Sums over all runs of each case, a column each, and what that is a second."""
    labelled = _labelled(session)
    table = Table("", [Column("counter"), *(Column(label, "number") for _, label in labelled)])
    kernel = [("kernel", name) for name in session.outcomes[0].runs[0].kernel] if extra else []
    for group, name in [*kernel, *(("calls", name) for name in CALLS if calls)]:
        cells = []
        for outcome, _ in labelled:
            total = sum(getattr(run, group)[name] for run in outcome.runs)
            rate = f"  {total / sum(run.seconds for run in outcome.runs):.0f}/s"
            cells.append(f"{total}{'' if session.is_counted(outcome.case) else rate}")
        table.rows.append([name.replace("_", " "), *cells])
    return table


def page(session: Session) -> list[Part]:
    """Tables, charts of all runs, the machine."""
    kernel, cpu = session.machine["kernel"]["release"], session.machine["cpu"]["model"]
    labelled = _labelled(session)
    parts: list[Part] = [
        Heading("xskit bench", 1),
        f"`{shlex.join(session.command)}`",
        f"{session.started}, {session.seconds:.0f} s, Linux {kernel}, {cpu}",
        *final(session),
        Heading("Runs"),
        "A dot is a run, a ring a run far out, the bar the 95 % interval of the median.",
    ]
    parts += [_dots(labelled, name) for name in dict.fromkeys(name for one, _ in labelled for name in one.metrics())]
    timed = [(outcome, label) for outcome, label in labelled if not session.is_counted(outcome.case)]
    if timed:
        if trips := _curves(timed, _round_trips):
            ticks = {_nines(fraction): f"{fraction:.5g}" for fraction in MARKED}
            parts.append(Plot("Round trips", "quantile", "ns", trips, ticks))
        title = "Over time: packets a second in the last run of each case, its warm-up included"
        parts.append(Plot(title, "s", "pps", _curves(timed, _over_time)))
    parts += [Heading("Machine"), _facts(session.machine)]
    parts += [Folded(f"Guest, Linux {release}", [_facts(guest)]) for release, guest in session.guests.items()]
    for outcome, label in labelled:
        parts += [Folded(f"{facts['name']}, {label}", [_facts(facts)]) for facts in outcome.interfaces]
    return parts


def _dots(labelled: Sequence[tuple[CaseResult, str]], name: str) -> Dots:
    rows = []
    for outcome, label in labelled:
        if spread := outcome.spread(name):
            rows.append(Row(label, outcome.values(name), spread.median, spread.low, spread.high, spread.outliers))
    metric = METRICS[name]
    return Dots(metric.title, "" if metric.unit == "1" else metric.unit, rows)


Points = list[tuple[float, float]]


def _curves(
    labelled: Sequence[tuple[CaseResult, str]], points: Callable[[CaseResult], Points]
) -> list[tuple[str, Points]]:
    return [(label, found) for outcome, label in labelled if (found := points(outcome))]


def _over_time(outcome: CaseResult) -> Points:
    return [
        (
            after.time_ns / 1e9,
            max(after.received - before.received, after.sent - before.sent)
            * 1e9
            / max(after.time_ns - before.time_ns, 1),
        )
        for before, after in itertools.pairwise(outcome.runs[-1].samples)
    ]


def _round_trips(outcome: CaseResult) -> Points:
    """Quantiles on an axis of nines."""
    counts = np.zeros(histogram.BUCKETS, np.int64)
    for run in outcome.runs:
        for bucket, count in run.histogram.items():
            counts[int(bucket)] += count
    values = histogram.quantiles(counts, FRACTIONS) if counts.any() else ()
    return [(_nines(at), value) for at, value in zip(FRACTIONS, values, strict=False) if value is not None]


def _nines(fraction: float) -> float:
    return -float(np.log10(1 - fraction))


def _facts(facts: Mapping[str, Any]) -> Table:
    rows = ([name.replace("_", " ").replace(".", ": "), _plain(value)] for name, value in flat(facts))
    return Table.of("", {"fact": "text", "value": "text"}, rows)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
