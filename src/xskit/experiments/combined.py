"""What only several results together show: the published layout, made of runs on different kernels."""

from __future__ import annotations

from collections.abc import Sequence

from xskit.bench.document import Cell, Column, Table
from xskit.experiments.experiment import ExperimentResult

__all__ = ["combined"]

_COST = ("instructions of sendto a packet", "ns of sendto a packet")


def combined(name: str, results: Sequence[ExperimentResult]) -> list[Table]:
    """Tables over all results of one experiment; none where there is nothing to be held against each other."""
    return _copy_and_page(results) if name == "tx-sizes" else []


def _copy_and_page(results: Sequence[ExperimentResult]) -> list[Table]:
    """The cost of a packet where it was copied, and where it was sent from its own page."""
    counted = [result for result in results if result.counted]
    copying = [result for result in counted if _paths(result) == {"copy"}]
    paging = [result for result in counted if _paths(result) == {"page"}]
    if not (copying and paging):
        return []
    copy = copying[-1]
    columns = [Column("size"), Column(f"copy: {_kernel(copy)}", "count"), Column("bytes copied", "count")]
    for page in paging:
        columns += [Column(f"page: {_kernel(page)}", "count"), Column("saved", "percent")]
    rows: list[list[Cell]] = []
    for number, size in enumerate(_column(copy, "size")):
        before = _cost(copy, number)
        row: list[Cell] = [size, before, _column(copy, "bytes copied a packet")[number]]
        for page in paging:
            after = _cost(page, number)
            row += [after, (1 - after / before) * 100]
        rows.append(row)
    note = "The published percentages are of packets a second, on hardware; these are of instructions in sendto."
    return [Table("Instructions of sendto for a packet: copy against page", columns, rows, note)]


def _column(result: ExperimentResult, title: str) -> list[Cell]:
    (table,) = result.tables
    at = [column.title for column in table.columns].index(title)
    return [row[at] for row in table.rows]


def _cost(result: ExperimentResult, number: int) -> float:
    title = next(column.title for column in result.tables[0].columns if column.title in _COST)
    value = _column(result, title)[number]
    assert isinstance(value, (int, float))
    return float(value)


def _paths(result: ExperimentResult) -> set[Cell]:
    known = any(column.title == "path" for table in result.tables for column in table.columns)
    return set(_column(result, "path")) if known else set()


def _kernel(result: ExperimentResult) -> str:
    """`Linux 5.10`."""
    release = result.where.split(",")[0].removeprefix("Linux ")
    return "Linux " + ".".join(release.split("-")[0].split(".")[:2])
