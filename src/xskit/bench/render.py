"""Documents as text, as Markdown and as a self-contained HTML page: the only place that knows how a report looks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import zip_longest
from textwrap import fill, wrap

from xskit.bench import charts
from xskit.bench.document import Dots, Folded, Heading, Items, Part, Plot, Table

__all__ = ["html", "markdown", "text"]

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.6rem 0 1.4rem}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{max-width:100%;height:auto}code{background:#f3f3f3;padding:.1rem .3rem}details{margin:.6rem 0}h2{margin-top:2rem}
@media(prefers-color-scheme:dark){body{background:#16181b;color:#ddd}td,th{border-color:#333}code{background:#24272b}}
""".strip()


def text(parts: Sequence[Part], width: int) -> str:
    """For a terminal or a mail of so many columns; without charts, and without what is folded."""
    blocks = []
    for part in parts:
        match part:
            case Heading():
                blocks.append(part.text)
            case Items():
                lines = [wrap(line, width, initial_indent="- ", subsequent_indent="  ") for line in part.lines]
                blocks.append("\n".join(line for item in lines for line in item))
            case Table():
                blocks.append("\n".join(_table_lines(part, width)))
            case str():
                blocks.append(fill(part, width, break_on_hyphens=False))
    return "\n\n".join(block for block in blocks if block)


def _table_lines(table: Table, width: int) -> Iterator[str]:
    """Figures to the right. What is too wide: the last column goes below the others, then the first above them, then
    words are wrapped."""
    heads, rows = [column.title for column in table.columns], table.shown()
    words = [column.unit == "text" for column in table.columns]
    widths = [max(1, *map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    first, last = 0, len(heads)

    def missing() -> int:
        return 2 + sum(widths[first:last]) + 2 * (last - first - 1) - width

    if missing() > 0 and words[-1]:
        last -= 1
    if missing() > 0 and words[0] and last > 2:
        first = 1
    while missing() > 0:
        widest = max(range(first, last), key=lambda at: widths[at] * words[at])
        if not words[widest] or widths[widest] <= _NARROW:
            break
        widths[widest] = max(widths[widest] - missing(), _NARROW)

    def lines(cells: Sequence[str]) -> Iterator[str]:
        pieces = [wrap(cells[at], widths[at]) or [""] if words[at] else [cells[at]] for at in range(first, last)]
        for line in zip_longest(*pieces, fillvalue=""):
            aligned = (
                cell.ljust(widths[at]) if words[at] else cell.rjust(widths[at]) for at, cell in enumerate(line, first)
            )
            yield "  " + "  ".join(aligned).rstrip()

    if table.title:
        yield table.title
    yield from lines(heads)
    yield "  " + "  ".join("-" * width for width in widths[first:last])
    above = ""
    for cells in rows:
        if first and cells[0] not in ("", above):
            above = cells[0]
            yield from ("", *wrap(above, width))
        yield from lines(cells)
        if last < len(cells) and cells[-1]:
            said = f"{heads[-1]}: {cells[-1]}" if heads[-1] else cells[-1]
            indent = " " * (4 + widths[first])
            yield fill(said, max(width, 2 * len(indent)), initial_indent=indent, subsequent_indent=indent)
    if table.note:
        yield from ("", *wrap(table.note, width)) if first or last < len(heads) else wrap(table.note, width)


_NARROW = 8


def markdown(parts: Sequence[Part], picture: Callable[[Plot | Dots], str] | None = None) -> str:
    """For a page of documentation. `picture` gives the path of a chart's picture; without it, charts are left out."""
    blocks = []
    for part in parts:
        match part:
            case Heading():
                blocks.append(f"{'#' * part.level} {part.text}")
            case Items():
                blocks.append("\n".join(f"- {line}" for line in part.lines))
            case Table():
                rule = ["---" if column.unit == "text" else "---:" for column in part.columns]
                rows = [[column.title for column in part.columns], *part.shown()]
                lines = [" | ".join(cell.replace("|", "\\|") for cell in cells) for cells in rows]
                lines.insert(1, " | ".join(rule))
                blocks += [f"**{part.title}**"] if part.title else []
                blocks += ["\n".join(f"| {line} |" for line in lines), part.note]
            case Plot() | Dots() if picture:
                blocks.append(f"![{part.title}]({picture(part)})")
            case Folded():
                blocks += [f"**{part.title}**", markdown(part.parts, picture)]
            case str():
                blocks.append(part)
    return "\n\n".join(block for block in blocks if block)


def html(title: str, parts: Sequence[Part]) -> str:
    """A page without scripts that loads nothing from elsewhere. Without matplotlib it says so in place of charts."""
    head = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    return f"{head}<title>{escape(title)}</title><style>{_STYLE}</style>\n{_html(parts)}</html>\n"


def _html(parts: Sequence[Part]) -> str:
    blocks = []
    for part in parts:
        match part:
            case Heading():
                blocks.append(f"<h{part.level}>{escape(part.text)}</h{part.level}>")
            case Items():
                blocks.append(f"<ul>{''.join(f'<li>{_inline(line)}' for line in part.lines)}</ul>")
            case Table():
                heads = "".join(f"<th>{escape(column.title)}" for column in part.columns)
                kinds = ["<td>" if column.unit == "text" else "<td class=n>" for column in part.columns]
                rows = [
                    "<tr>" + "".join(kind + escape(cell) for kind, cell in zip(kinds, cells, strict=True))
                    for cells in part.shown()
                ]
                blocks += [f"<h3>{escape(part.title)}</h3>"] if part.title else []
                blocks.append(f"<table><tr>{heads}{''.join(rows)}</table>")
                blocks += [f"<p>{_inline(part.note)}</p>"] if part.note else []
            case Plot() | Dots():
                picture = charts.inline(part) if charts.available() else f"<p>({escape(charts.MISSING)})</p>"
                blocks.append(f"<h3>{escape(part.title)}</h3>{picture}")
            case Folded():
                blocks.append(f"<details><summary>{escape(part.title)}</summary>{_html(part.parts)}</details>")
            case str():
                blocks.append(f"<p>{_inline(part)}</p>")
    return "\n".join(blocks)


def _inline(words: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(words))
