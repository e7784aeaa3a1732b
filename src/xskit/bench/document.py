"""What a report says, apart from how it looks: `render` makes text, Markdown or HTML of a list of these parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Cell", "Column", "Dots", "Folded", "Heading", "Items", "Part", "Plot", "Row", "Table", "Unit", "shown"]

Unit = Literal["text", "count", "pps", "bit/s", "percent", "bytes", "ns", "number"]
Cell = str | int | float | None
"""None: no figure. Text in a column of figures says why there is none."""


@dataclass(frozen=True)
class Heading:
    """Level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Folded:
    """Details that few readers open: left out of text."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Column:
    """A heading, and the unit of what stands below it."""

    title: str
    unit: Unit = "text"


@dataclass
class Table:
    """One table. Where it is too wide for a text, its first and last columns stand above and below the others."""

    title: str
    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    note: str = ""

    @classmethod
    def of(cls, title: str, columns: Mapping[str, Unit], rows: Iterable[Sequence[Cell]], note: str = "") -> Table:
        """Columns are headings and the units of what stands below them."""
        return cls(title, [Column(*column) for column in columns.items()], [list(row) for row in rows], note)

    def shown(self) -> list[list[str]]:
        """The cells as a person reads them, a list for each row."""
        return [[shown(cell, column.unit) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]


@dataclass
class Plot:
    """Curves over a common axis: (label, points). `ticks` replaces the numbers of the x axis."""

    title: str
    x_unit: str
    y_unit: str
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()
    ticks: dict[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """The values of the runs of one case, their median, its interval, and the positions of those far out."""

    label: str
    values: Sequence[float]
    median: float
    low: float | None
    high: float | None
    outliers: Sequence[int] = ()


@dataclass(frozen=True)
class Dots:
    """A row for each case, on one axis that begins at 0."""

    title: str
    unit: str
    rows: Sequence[Row]


Part = Heading | str | Items | Table | Plot | Dots | Folded
"""A string is a paragraph; `words` in backquotes are code."""


def shown(cell: Cell, unit: Unit) -> str:
    """One figure: `1,904,478`, `8.57`, `32.3 %`."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    match unit:
        case "bit/s":
            return f"{cell / 1e9:.2f}"
        case "percent":
            return f"{cell:.1f} %"
        case "number":
            return f"{cell:.2f}"
        case "ns" if cell >= 100_000:
            return f"{cell / 1000:,.0f} us"
        case "ns":
            return f"{cell / 1000:.1f} us" if cell >= 10_000 else f"{cell:.0f} ns"
        case _:
            return f"{cell:,.0f}"
