"""The live and the final table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from xskit.bench.metrics import METRICS, OF_MODE, rates
from xskit.bench.others import BUSY
from xskit.bench.results import CaseResult, Session
from xskit.bench.runner import CALLS, Running
from xskit.bench.words import case_words, figure, interval

__all__ = ["final", "live", "no_results", "remarks"]


def live(session: Session | None, running: Running, total: str) -> Group:
    """What is known while a run goes on: the runs so far, and the present rates; `total` runs are to be done."""
    table = Table(
        title=f"run {running.repeat + 1} of {total}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in ("case", "mode in use", "now", "since the start"):
        table.add_column(heading)
    now, since = _rates(running, -2), _rates(running, 0)
    table.add_row(running.case.mode, str(running.mode), now, since)
    parts: list[Table | Text] = [table]
    if session and session.outcomes:
        parts.append(final_table(session))
    return Group(*parts)


def _rates(running: Running, first: int) -> str:
    samples = running.samples
    if len(samples) < 2:
        return ""
    found = rates([samples[first], samples[-1]], sleeps=running.case.poll)
    shown = [name for name in ("rx_pps", "tx_pps") if found.get(name)]
    return ", ".join(f"{METRICS[name].title} {figure(METRICS[name], found[name])}" for name in shown) or "nothing"


def final_table(session: Session) -> Table:
    """Median, interval and number of runs, a line for each metric of each case."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("case", "mode in use", "", "median", "95 % of the median", "runs", "outliers"):
        right = heading in ("median", "runs")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading.startswith(("median", "95")))
    for outcome, label in zip(session.outcomes, session.labels(), strict=True):
        heads = [case_words(label), str(outcome.mode)]
        for name in no_results(session, outcome):
            table.add_row(*heads, METRICS[name].title, "-", "", "", "")
            heads = ["", ""]
        for name in outcome.metrics():
            spread, metric = outcome.spread(name), METRICS[name]
            assert spread is not None
            table.add_row(
                *heads,
                metric.title,
                figure(metric, spread.median),
                interval(metric, spread),
                str(spread.n),
                _outliers(outcome, name, spread.outliers),
            )
            heads = ["", ""]
    return table


def no_results(session: Session, outcome: CaseResult) -> list[str]:
    """The mode's first metric where instructions were counted: it and the others like it, times and rates, are none."""
    return [OF_MODE[outcome.case.mode][0]] if session.is_counted(outcome.case) else []


def _outliers(outcome: CaseResult, name: str, positions: Sequence[int]) -> str:
    values = outcome.values(name)
    return ", ".join(figure(METRICS[name], values[at]) for at in positions[:3]) + (" ..." if len(positions) > 3 else "")


def final(session: Session, *, extra: bool = False, calls: bool = False) -> Group:
    """The final table, and what is worth saying below it."""
    meaning = session.headline()
    parts: list[Table | Text] = [*([Text(meaning)] if meaning else []), final_table(session)]
    if extra or calls:
        parts.append(_counters(session, extra=extra, calls=calls))
    parts += [Text(line, style="dim") for line in remarks(session)]
    return Group(*parts)


def remarks(session: Session) -> list[str]:
    """Why better modes were not to be had, warm-up, and the notes of runs; each sentence once."""
    found: dict[str, None] = {}
    for outcome, label in zip(session.outcomes, session.labels(), strict=True):
        where = f"{case_words(label)}: " if len(session.outcomes) > 1 else ""
        for why in outcome.mode.why:
            found[f"not better: {why}"] = None
        for facts in outcome.interfaces:
            if outcome.case.mode != "txonly" and facts["rx_queues"] > len(outcome.case.queues):
                listened = ", ".join(map(str, outcome.case.queues))
                found[
                    f"{facts['name']} has {facts['rx_queues']} RX queues and only {listened} was listened to: "
                    "what its RSS gave to others is not in these figures (--queue all)"
                ] = None
        until: float | None = session.conditions.get("until")
        if until is not None and not outcome.is_known(until):
            found[_not_known(outcome, until, where)] = None
        warm = [run.warm_up_seconds for run in outcome.runs if run.warm_up_seconds]
        if warm:
            found[f"{where}warm-up, not counted: up to {max(warm):.2g} s of a run, in {len(warm)} runs"] = None
        for note in {note: None for run in outcome.runs[-1:] for note in run.notes}:
            found[f"{where}{note} (last run)"] = None
        counted = session.is_counted(outcome.case)
        interrupts = [run.interrupts for run in outcome.runs if run.interrupts is not None]
        if interrupts:
            seconds = sum(run.seconds for run in outcome.runs)
            many = f"{sum(interrupts)} interrupts" if counted else f"{sum(interrupts) / seconds:.0f} interrupts/s"
            found[f"{where}{many}"] = None
    others = max((outcome.other_cpus for outcome in session.outcomes), default=0.0)
    if others > BUSY:
        found[f"other programs took {others:.1f} CPUs meanwhile: small differences are not to be trusted"] = None
    return list(found)


def _not_known(outcome: CaseResult, until: float, where: str) -> str:
    """What --until asked for, and what there is."""
    title = METRICS[outcome.main_metric].title
    spread = outcome.spread(outcome.main_metric)
    width = spread.width if spread else None
    known = "not at all" if width is None else f"within {width:.2%}"
    return f"{where}--until {until:g} was not reached in {len(outcome.runs)} runs: '{title}' is known {known}"


def _counters(session: Session, *, extra: bool, calls: bool) -> Table:
    """Sums over all runs of each case, a column each, and what that is a second."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("counter")
    for label in session.labels():
        table.add_column(case_words(label, "\n"), justify="right")
    groups: list[tuple[str, str]] = []
    if extra:
        groups += [("kernel", name) for name in session.outcomes[0].runs[0].kernel]
    if calls:
        groups += [("calls", name) for name in CALLS]
    for group, name in groups:
        cells = []
        for outcome in session.outcomes:
            total = sum(getattr(run, group)[name] for run in outcome.runs)
            rate = f"  {total / sum(run.seconds for run in outcome.runs):.0f}/s"
            cells.append(f"{total}{'' if session.is_counted(outcome.case) else rate}")
        table.add_row(name.replace("_", " "), *cells)
    return table
