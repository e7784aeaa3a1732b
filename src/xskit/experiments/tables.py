"""Tables of an experiment: figures with units, as text for a terminal, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Cell", "Column", "Plot", "Table", "shown"]

Unit = Literal["text", "count", "pps", "bit/s", "percent", "bytes", "ns", "number"]
Cell = str | int | float | None
"""None: there is no such figure; text in a column of figures says why."""


@dataclass(frozen=True)
class Column:
    """A heading, and the unit of what stands below it."""

    title: str
    unit: Unit = "text"


@dataclass
class Table:
    """One table."""

    title: str
    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    note: str = ""

    def text(self) -> str:
        """For a terminal: figures to the right."""
        body = [[shown(cell, column.unit) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]
        heads = [column.title for column in self.columns]
        widths = [max(len(line[at]) for line in [heads, *body]) for at in range(len(heads))]
        lines = [self._line(heads, widths), "  ".join("-" * width for width in widths)]
        lines += [self._line(row, widths) for row in body]
        return "\n".join([self.title, *(f"  {line}".rstrip() for line in lines), *([self.note] if self.note else [])])

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        return "  ".join(
            cell.ljust(width) if column.unit == "text" else cell.rjust(width)
            for cell, width, column in zip(cells, widths, self.columns, strict=True)
        )

    def markdown(self) -> str:
        """For a page."""
        rule = ["---" if column.unit == "text" else "---:" for column in self.columns]
        rows = [[shown(cell, column.unit) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]
        lines = [" | ".join(cells) for cells in ([column.title for column in self.columns], rule, *rows)]
        table = "\n".join(f"| {line} |" for line in lines)
        return "\n\n".join([f"**{self.title}**", table, *([self.note] if self.note else [])])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Table:
        """What as_dict gave."""
        columns = [Column(**column) for column in values["columns"]]
        return cls(values["title"], columns, [list(row) for row in values["rows"]], values["note"])


@dataclass
class Plot:
    """Curves over a common axis: (label, points)."""

    title: str
    x_unit: str
    y_unit: str
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()

    def svg(self) -> str:
        """A picture that stands by itself."""
        from xskit.bench.svg import Line, lines

        picture = lines([Line(label, points) for label, points in self.curves], self.x_unit, self.y_unit)
        style = "<style>text{font:12px sans-serif}.grid{stroke:#ccc}</style>"
        return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plot:
        """What asdict gave."""
        curves = [(label, [(x, y) for x, y in points]) for label, points in values["curves"]]
        return cls(values["title"], values["x_unit"], values["y_unit"], curves)


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
