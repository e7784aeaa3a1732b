"""A comparison as text for a mail (72 columns), as Markdown, as CSV."""

from __future__ import annotations

import csv
import io
import textwrap
from dataclasses import asdict
from itertools import groupby
from typing import Any

from xskit.bench.compare import Comparison, ComparisonRow
from xskit.bench.metrics import METRICS
from xskit.bench.words import figure
from xskit.units import apart

__all__ = ["as_csv", "as_dict", "as_mail", "as_markdown"]

WIDTH = 72
_LINE = "  {:<17} {:>11} {:>11} {:>7}  {:<19}"


def as_mail(found: Comparison) -> str:
    """Plain text, no line longer than 72 columns."""
    lines = [*_wrapped(found.meaning), ""] if found.meaning else []
    lines += [*_wrapped(f"{found.first} -> {found.second}: medians, difference, its 95 % interval, conclusion"), ""]
    for case, rows in groupby(found.rows, key=lambda row: row.case):
        lines += _wrapped(case)
        for row in rows:
            metric, difference = METRICS[row.metric], row.difference
            lines.append(
                _LINE.format(
                    metric.title,
                    figure(metric, difference.first),
                    figure(metric, difference.second),
                    _percent(row).replace(" %", "%"),
                    _interval(row),
                ).rstrip()
            )
            lines.append(f"  {'':<17} {_conclusion(row)}")
        lines.append("")
    lines += [line for remark in _remarks(found) for line in _wrapped(remark)]
    return "\n".join(lines).rstrip()


def as_markdown(found: Comparison) -> str:
    """A table, and the remarks as a list."""
    first, second = found.first.replace("|", "\\|"), found.second.replace("|", "\\|")
    lines = [found.meaning, ""] if found.meaning else []
    lines += [
        f"| case | metric | {first} | {second} | change | 95 % interval | conclusion |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for row in found.rows:
        metric, difference = METRICS[row.metric], row.difference
        cells = (
            row.case,
            metric.title,
            figure(metric, difference.first),
            figure(metric, difference.second),
            _percent(row),
            _interval(row).strip("[]"),
            f"**{difference.conclusion}**" if difference.conclusion in ("better", "worse") else difference.conclusion,
        )
        lines.append("| " + " | ".join(cells) + " |")
    remarks = _remarks(found)
    return "\n".join([*lines, "", *(f"- {remark}" for remark in remarks)]).rstrip()


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
    """`+5.0 %`; of what was 0 there is no percentage."""
    percent = row.difference.percent
    if percent is None:
        return "from 0" if row.difference.second else "none"
    return f"{_change(row, percent)} %"


def _interval(row: ComparisonRow) -> str:
    if row.difference.low is None or row.difference.high is None:
        return ""
    low, high = (_change(row, (ratio - 1) * 100) for ratio in (row.difference.low, row.difference.high))
    return f"[{low}%, {high}%]"


def _change(row: ComparisonRow, percent: float) -> str:
    """One digit; where there is said to be a difference, as many as it takes to show that it is not 0."""
    if row.difference.conclusion not in ("better", "worse"):
        return f"{percent:+.1f}"
    size, _ = apart((abs(percent), 0.0), lambda value, digits: f"{value:.{digits}f}", 1)
    return f"{'-' if percent < 0 else '+'}{size}"


def _conclusion(row: ComparisonRow) -> str:
    first, second = row.difference.n
    runs = f"{first} pairs of runs" if row.difference.paired else f"{first} and {second} runs"
    return f"{row.difference.conclusion} ({runs})"


def _remarks(found: Comparison) -> list[str]:
    remarks = list(found.remarks)
    if found.machines:
        remarks.append("WARNING: the machines differ, so the figures may differ for that reason alone:")
        remarks += [f"{name}: {_short(one)} -> {_short(other)}" for name, one, other in found.machines]
    return remarks


def _short(value: object) -> str:
    text = "nothing" if value in (None, "", []) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False) or [""]
