"""Plots as inline SVG: dots of runs with median and interval, lines over time, quantiles of round trips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Dots", "Line", "dots", "lines"]

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 90, 20, 14, 34
ROW = 34
LABELS, LETTER = 250, 6.6
"""Room for the names of rows, and for each letter of longer ones."""
COLOURS = ("#2f6fb0", "#c4622d", "#3b8f4f", "#8a4fa3", "#a88a1e", "#4a4a4a", "#b0395f", "#2b8f8f")


@dataclass(frozen=True)
class Dots:
    """One row: the values of the runs, their median, its interval, and which values are far out."""

    label: str
    values: Sequence[float]
    median: float
    low: float | None
    high: float | None
    outliers: Sequence[int] = ()


@dataclass(frozen=True)
class Line:
    """One curve."""

    label: str
    points: Sequence[tuple[float, float]]


def dots(rows: Sequence[Dots], unit: str) -> str:
    """A row for each case, on one axis that begins at 0."""
    top = max((value for row in rows for value in row.values), default=0) or 1.0
    left = max([LABELS, *(round(LETTER * len(row.label)) for row in rows)])
    width = WIDTH + left - LABELS
    scale = _Scale(0, top * 1.05, left + 10, width - RIGHT)
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [_open(height, width), *_axis(scale, height, width, unit)]
    for number, row in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        parts.append(_text(left, y + 4, row.label, anchor="end"))
        if row.low is not None and row.high is not None:
            x = scale.at(row.low)
            wide = max(scale.at(row.high) - x, 1)
            parts.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="{wide:.1f}" height="18" class="interval"/>')
        for at, value in enumerate(row.values):
            name = "far" if at in row.outliers else "dot"
            title = f"<title>run {at + 1}: {value:.6g} {escape(unit)}</title>"
            parts.append(f'<circle cx="{scale.at(value):.1f}" cy="{y:.1f}" r="3.5" class="{name}">{title}</circle>')
        x = scale.at(row.median)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 11:.1f}" y2="{y + 11:.1f}" class="median"/>')
    return "".join([*parts, "</svg>"])


def lines(curves: Sequence[Line], x_unit: str, y_unit: str, *, ticks: dict[float, str] | None = None) -> str:
    """Curves over a common axis; `ticks` replaces the numbers of the x axis."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        return ""
    height = 260 + 16 * len(curves)
    across = _Scale(min(x for x, _ in points), max(x for x, _ in points), LEFT, WIDTH - RIGHT)
    up = _Scale(0, (max(y for _, y in points) or 1.0) * 1.05, 260 - BOTTOM, TOP)
    parts = [_open(height, WIDTH)]
    for value in up.ticks():
        y = up.at(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(LEFT - 6, y + 4, _number(value), anchor="end"))
    for value, label in (ticks or {value: _number(value) for value in across.ticks()}).items():
        parts.append(_text(across.at(value), 260 - BOTTOM + 16, label, anchor="middle"))
    parts.append(_text(WIDTH - RIGHT, 260 - 4, x_unit, anchor="end"))
    parts.append(_text(4, TOP - 2, y_unit))
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in curve.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = 268 + 16 * number
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(_text(LEFT + 18, y - 3, curve.label))
    return "".join([*parts, "</svg>"])


class _Scale:
    """Values to pixels."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self._low, self._high = low, high if high > low else low + 1
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        """About five round numbers."""
        rough = (self._high - self._low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = math.ceil(self._low / step)
        return [number * step for number in range(first, int(self._high / step) + 1)]


def _axis(scale: _Scale, height: int, width: int, unit: str) -> list[str]:
    parts = []
    for value in scale.ticks():
        x = scale.at(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}" class="grid"/>')
        parts.append(_text(x, height - BOTTOM + 16, _number(value), anchor="middle"))
    return [*parts, _text(width - RIGHT, height - 4, unit, anchor="end")]


def _open(height: int, width: int) -> str:
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _number(value: float) -> str:
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"
