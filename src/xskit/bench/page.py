"""A self-contained HTML page of a session: tables, plots, machine; no script, nothing loaded from elsewhere."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from xskit.bench import svg
from xskit.bench.metrics import METRICS, Sample
from xskit.bench.results import CaseResult, Session
from xskit.bench.table import no_results, remarks
from xskit.bench.words import case_words, figure, interval
from xskit.engine import histogram

__all__ = ["render"]

FRACTIONS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.6rem 0 1.4rem}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{max-width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:#333}.grid{stroke:#e4e4e4}
.interval{fill:#2f6fb0;opacity:.22}.median{stroke:#111;stroke-width:2}.dot{fill:#2f6fb0;opacity:.7}
.far{fill:none;stroke:#c4622d;stroke-width:2}code{background:#f3f3f3;padding:.1rem .3rem}
details{margin:.6rem 0}h2{margin-top:2rem}
@media(prefers-color-scheme:dark){body{background:#16181b;color:#ddd}td,th{border-color:#333}svg text{fill:#bbb}
.grid{stroke:#2c2f33}.median{stroke:#eee}code{background:#24272b}}
""".strip()


def render(session: Session) -> str:
    """The page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>xskit bench</title><style>{_STYLE}</style><h1>xskit bench</h1>",
        f"<p><code>{escape(shlex.join(session.command))}</code><br>{escape(session.started)}, ",
        f"{session.seconds:.0f} s, {escape(_kernel(session))}</p>",
        f"<p>{escape(session.headline())}</p>" if session.guests else "",
        _table(session),
    ]
    notes = remarks(session)
    if notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    labels = [case_words(label) for label in session.labels()]
    parts.append("<h2>Runs</h2><p>A dot is a run, a ring a run far out, the bar the 95 % interval of the median.</p>")
    names = dict.fromkeys(name for outcome in session.outcomes for name in outcome.metrics())
    parts += [f"<h3>{escape(METRICS[name].title)}</h3>{_dots(session, labels, name)}" for name in names]
    timed = [(one, label) for one, label in _pairs(session, labels) if not session.is_counted(one.case)]
    if timed:
        parts.append(_round_trips([one for one, _ in timed], [label for _, label in timed]))
        parts.append("<h2>Over time</h2><p>Packets a second in the last run of each case, its warm-up included.</p>")
        parts.append(svg.lines([_over_time(one, label) for one, label in timed], "s", "pps"))
    parts.append("<h2>Machine</h2>" + _facts(session.machine))
    for kernel, guest in session.guests.items():
        parts.append(f"<details><summary>Guest, Linux {escape(kernel)}</summary>{_facts(guest)}</details>")
    for outcome, label in _pairs(session, labels):
        for facts in outcome.interfaces:
            title = f"{escape(str(facts['name']))}, {escape(label)}"
            parts.append(f"<details><summary>{title}</summary>{_facts(facts)}</details>")
    return "\n".join(parts) + "</html>\n"


def _pairs(session: Session, labels: list[str]) -> list[tuple[CaseResult, str]]:
    return list(zip(session.outcomes, labels, strict=True))


def _kernel(session: Session) -> str:
    facts = session.machine
    return f"Linux {facts['kernel']['release']}, {facts['cpu']['model']}"


def _table(session: Session) -> str:
    head = "".join(f"<th>{one}" for one in ("case", "mode in use", "", "median", "95 % of the median", "runs"))
    rows = []
    for outcome, label in zip(session.outcomes, session.labels(), strict=True):
        first = (case_words(label), str(outcome.mode))
        for name in no_results(session, outcome):
            cells = "".join(f"<td>{escape(text)}" for text in (*first, METRICS[name].title))
            rows.append(f"<tr>{cells}<td class=n>-<td class=n><td class=n>")
            first = ("", "")
        for name in outcome.metrics():
            spread, metric = outcome.spread(name), METRICS[name]
            assert spread is not None
            cells = "".join(f"<td>{escape(text)}" for text in (*first, metric.title))
            numbers = (figure(metric, spread.median), interval(metric, spread), str(spread.n))
            rows.append(f"<tr>{cells}" + "".join(f"<td class=n>{escape(text)}" for text in numbers))
            first = ("", "")
    return f"<table><tr>{head}{''.join(rows)}</table>"


def _dots(session: Session, labels: list[str], name: str) -> str:
    rows = []
    for outcome, label in _pairs(session, labels):
        spread = outcome.spread(name)
        if spread:
            rows.append(svg.Dots(label, outcome.values(name), spread.median, spread.low, spread.high, spread.outliers))
    unit = METRICS[name].unit
    return svg.dots(rows, "" if unit == "1" else unit)


def _over_time(outcome: CaseResult, label: str) -> svg.Line:
    samples: list[Sample] = outcome.runs[-1].samples
    points = []
    for before, after in itertools.pairwise(samples):
        packets = max(after.received - before.received, after.sent - before.sent)
        points.append((after.time_ns / 1e9, packets * 1e9 / max(after.time_ns - before.time_ns, 1)))
    return svg.Line(label, points)


def _round_trips(outcomes: list[CaseResult], labels: list[str]) -> str:
    """Quantiles on an axis of nines."""
    curves = []
    for outcome, label in zip(outcomes, labels, strict=True):
        counts = np.zeros(histogram.BUCKETS, np.int64)
        for run in outcome.runs:
            for bucket, count in run.histogram.items():
                counts[int(bucket)] += count
        if counts.any():
            values = histogram.quantiles(counts, FRACTIONS)
            nines = [-float(np.log10(1 - fraction)) for fraction in FRACTIONS]
            points = [(x, value) for x, value in zip(nines, values, strict=True) if value is not None]
            curves.append(svg.Line(label, points))
    if not curves:
        return ""
    ticks = {-float(np.log10(1 - fraction)): f"{fraction:.5g}" for fraction in (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)}
    return "<h2>Round trips</h2>" + svg.lines(curves, "quantile", "ns", ticks=ticks)


def _facts(facts: Mapping[str, Any]) -> str:
    rows = []
    for name, value in facts.items():
        shown = _facts(value) if isinstance(value, Mapping) else escape(_plain(value))
        rows.append(f"<tr><td>{escape(str(name).replace('_', ' '))}<td>{shown}")
    return f"<table>{''.join(rows)}</table>"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
