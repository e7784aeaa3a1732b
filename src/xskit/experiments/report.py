"""Experiments as documents: the published tables, ours, what agrees; and the results of the last runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from xskit.bench.document import Heading, Items, Part, Table
from xskit.experiments.combined import combined
from xskit.experiments.experiment import Experiment, ExperimentResult, ResultError

__all__ = ["WIDTH", "as_json", "keep", "kept", "measured", "published", "whole"]

WIDTH = 110
"""Columns of the text."""


def whole(experiment: Experiment, results: Sequence[ExperimentResult]) -> list[Part]:
    """Everything about an experiment; what the figures of the first result mean stands before all others."""
    title, *rest = published(experiment)
    return [title, *(result.headline() for result in results[:1]), *rest, *measured(experiment, results)]


def published(experiment: Experiment) -> list[Part]:
    """Question, source, and the published tables."""
    return [
        Heading(f"{experiment.name}: {experiment.title}", 1),
        experiment.question,
        f"Source: {experiment.source}.",
        Heading("Published"),
        *experiment.published,
        experiment.conditions,
    ]


def measured(experiment: Experiment, results: Sequence[ExperimentResult]) -> list[Part]:
    """All results, with the commands that gave them, and what of them can be held against what was published."""
    parts: list[Part] = [Heading("Ours")]
    for result, tables in _each_table_once(results):
        parts += [Heading(result.where, 3), f"`{shlex.join(result.command)}`, {result.started[:10]}", result.headline()]
        parts += [*tables, *([Items(result.findings)] if result.findings else [])]
    if together := combined(experiment.name, results):
        parts += [Heading("All together", 3), *together]
    if not results:
        parts.append(f"Not measured yet: `xskit experiment run {experiment.name}`.")
    for result in results:
        for plot in result.plots:
            parts += [f"{result.where}: {plot.title}.", plot]
    parts += [Heading("What can be compared"), f"Comparable: {experiment.comparable}", f"Not: {experiment.different}"]
    return parts


def _each_table_once(results: Sequence[ExperimentResult]) -> list[tuple[ExperimentResult, list[Table]]]:
    """Results and their tables, without those that an earlier one has shown: what is calculated is alike everywhere."""
    found: list[tuple[ExperimentResult, list[Table]]] = []
    for result in results:
        seen = [table for _, tables in found for table in tables]
        found.append((result, [table for table in result.tables if table not in seen]))
    return found


def as_json(results: Sequence[ExperimentResult]) -> str:
    """Text that ExperimentResult.load_all reads."""
    return json.dumps([result.as_dict() for result in results], indent=1, allow_nan=False)


def keep(folder: Path, results: Sequence[ExperimentResult]) -> None:
    """Note what was measured, a file for each experiment and place; an earlier result of the same is replaced.

    Raises:
        ResultError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            place = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in result.where)
            path = folder / f"{result.experiment}@{place}.json"
            path.write_text(as_json([result]) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultError(f"results cannot be kept in {folder}: {error.strerror}", remedy=f"ls -ld {folder}") from error


def kept(folder: Path, name: str) -> list[ExperimentResult]:
    """What was noted of one experiment, this machine's own kernel first."""
    found = [result for path in sorted(folder.glob(f"{name}@*.json")) for result in ExperimentResult.load_all(path)]
    return sorted(found, key=lambda result: (result.emulated, result.where))
