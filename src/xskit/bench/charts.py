"""Charts as SVG, drawn by matplotlib: the extra xskit[plots]. Nothing else needs it, and nothing imports it before."""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from textwrap import fill
from typing import TYPE_CHECKING, Any

from xskit.bench.document import Dots, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MISSING", "available", "inline", "svg"]

MISSING = "no charts: they need matplotlib, which the extra xskit[plots] installs"
_INK = "#777777"
"""Readable on white and on black."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "xskit",  # the same figures are the same file
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), _INK),
}
_WIDTH = 7.5
"""Inches, of 72 points each."""


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def svg(chart: Plot | Dots) -> str:
    """A file that stands by itself."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        if isinstance(chart, Dots):
            figure = Figure(figsize=(_WIDTH, 0.7 + 0.4 * len(chart.rows)), layout="constrained")
            _draw_dots(figure.subplots(), chart)
        else:
            figure = Figure(figsize=(_WIDTH, 3 + 0.2 * len(chart.curves)), layout="constrained")
            _draw_curves(figure, figure.subplots(), chart)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def inline(chart: Plot | Dots) -> str:
    """The same as a part of an HTML page: without what only a file needs, so that the page names no other place."""
    picture = re.sub(r"<metadata>.*?</metadata>", "", svg(chart), flags=re.DOTALL)
    picture = re.sub(r' xmlns(:\w+)?="[^"]*"', "", picture[picture.index("<svg") :])
    return picture.replace("xlink:href", "href")


def _draw_dots(axes: Axes, chart: Dots) -> None:
    """A dot is a run, a ring a run far out; the bar is the interval of the median, the line in it the median."""
    for y, row in enumerate(chart.rows):
        if row.low is not None and row.high is not None:
            axes.barh(y, row.high - row.low, left=row.low, height=0.5, color="C0", alpha=0.25)
        near = [value for at, value in enumerate(row.values) if at not in row.outliers]
        axes.plot(near, [y] * len(near), "o", color="C0", alpha=0.7, markersize=5)
        far = [row.values[at] for at in row.outliers]
        axes.plot(far, [y] * len(far), "o", color="C1", markerfacecolor="none", markersize=6)
        axes.plot([row.median] * 2, [y - 0.3, y + 0.3], color=_INK, linewidth=2)
    axes.set_yticks(range(len(chart.rows)), [fill(row.label, 42) for row in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.unit)
    _short_numbers(axes, "x")


def _draw_curves(figure: Figure, axes: Axes, chart: Plot) -> None:
    for label, points in chart.curves:
        axes.plot([x for x, _ in points], [y for _, y in points], label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(chart.x_unit)
    axes.set_ylabel(chart.y_unit)
    if chart.ticks:
        axes.set_xticks(list(chart.ticks), list(chart.ticks.values()))
    _short_numbers(axes, "y")
    if chart.curves:
        figure.legend(loc="outside lower left", frameon=False)


def _short_numbers(axes: Axes, which: str) -> None:
    """2.5 M instead of 2500000."""
    from matplotlib.ticker import EngFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(EngFormatter())
