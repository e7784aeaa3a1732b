"""A comparison as text for a mail (72 columns), as Markdown, as CSV, for JSON."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from xskit.bench import render
from xskit.bench.compare import Comparison, ComparisonRow
from xskit.bench.document import Column, Items, Part, Table
from xskit.bench.metrics import METRICS
from xskit.bench.words import figure
from xskit.units import apart

__all__ = ["as_csv", "as_dict", "as_mail", "as_markdown"]

WIDTH = 72


def as_mail(found: Comparison) -> str:
    """Plain text, no line longer than 72 columns."""
    said = f"{found.first} -> {found.second}: medians, difference, its 95 % interval, conclusion"
    rows = [[*_figures(row), _conclusion(row)] for row in found.rows]
    return render.text([found.meaning, said, _table(("first", "second"), "", rows), *_remarks(found)], WIDTH)


def as_markdown(found: Comparison) -> str:
    """A table, and the remarks as a list."""
    rows = [[*_figures(row), _emphasised(row.difference.conclusion)] for row in found.rows]
    return render.markdown([found.meaning, _table((found.first, found.second), "conclusion", rows), *_remarks(found)])


def _table(sides: tuple[str, str], conclusion: str, rows: list[list[str]]) -> Table:
    columns = (Column("case"), Column("metric"), *(Column(title, "number") for title in (*sides, "change")))
    return Table("", [*columns, Column("95 % interval"), Column(conclusion)], [[*row] for row in rows])


def _figures(row: ComparisonRow) -> list[str]:
    metric, difference = METRICS[row.metric], row.difference
    sides = (figure(metric, difference.first), figure(metric, difference.second))
    return [row.case, metric.title, *sides, _percent(row), _interval(row)]


def _emphasised(conclusion: str) -> str:
    return f"**{conclusion}**" if conclusion in ("better", "worse") else conclusion


def as_csv(found: Comparison) -> str:
    """One line a metric; ratios are second over first, and empty where the first is 0."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ("case", "metric", "unit", "first", "second", "ratio", "low", "high", "paired", "runs", "runs2", "conclusion")
    )
    for row in found.rows:
        one = row.difference
        figures = (one.first, one.second, one.ratio, one.low, one.high)
        numbers = ("" if value is None else f"{value:.6g}" for value in figures)
        unit = METRICS[row.metric].unit
        writer.writerow((row.case, row.metric, unit, *numbers, "yes" if one.paired else "no", *one.n, one.conclusion))
    return out.getvalue().rstrip("\n")


def as_dict(found: Comparison) -> dict[str, Any]:
    """For JSON."""
    return {
        **({"meaning": found.meaning} if found.meaning else {}),
        "first": found.first,
        "second": found.second,
        "rows": [{"case": row.case, "metric": row.metric, **asdict(row.difference)} for row in found.rows],
        "machines_differ": [{"fact": name, "first": one, "second": other} for name, one, other in found.machines],
        "remarks": found.remarks,
    }


def _percent(row: ComparisonRow) -> str:
    """`+5.0%`; a change from 0 has no percentage."""
    percent = row.difference.percent
    if percent is None:
        return "from 0" if row.difference.second else "none"
    return f"{_change(row, percent)}%"


def _interval(row: ComparisonRow) -> str:
    if row.difference.low is None or row.difference.high is None:
        return ""
    low, high = (_change(row, (ratio - 1) * 100) for ratio in (row.difference.low, row.difference.high))
    return f"[{low}%, {high}%]"


def _change(row: ComparisonRow, percent: float) -> str:
    """One digit; where the conclusion is a difference, enough digits to show that it is not 0."""
    if row.difference.conclusion not in ("better", "worse"):
        return f"{percent:+.1f}"
    size, _ = apart((abs(percent), 0.0), lambda value, digits: f"{value:.{digits}f}", 1)
    return f"{'-' if percent < 0 else '+'}{size}"


def _conclusion(row: ComparisonRow) -> str:
    first, second = row.difference.n
    runs = f"{first} pairs of runs" if row.difference.paired else f"{first} and {second} runs"
    return f"{row.difference.conclusion} ({runs})"


def _remarks(found: Comparison) -> list[Part]:
    remarks = list(found.remarks)
    if found.machines:
        remarks.append("WARNING: the machines differ, so the figures may differ for that reason alone:")
        remarks += [f"{name}: {_short(one)} -> {_short(other)}" for name, one, other in found.machines]
    return [Items(remarks)] if remarks else []


def _short(value: object) -> str:
    text = "nothing" if value in (None, "", []) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
