"""Experiments as text and as Markdown: the published table, ours, what agrees; and the results of the last runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, wrap

from xskit.experiments.combined import combined
from xskit.experiments.experiment import Experiment, ExperimentResult, ResultError
from xskit.experiments.tables import Table

__all__ = ["as_json", "keep", "kept", "markdown", "text"]

WIDTH = 110


def text(experiment: Experiment, results: Sequence[ExperimentResult]) -> str:
    """For a terminal."""
    parts = [f"{experiment.name}: {experiment.title}"]
    parts += [_paragraph(results[0].headline())] if results else []
    parts += [_paragraph(experiment.question), _paragraph(f"Published: {experiment.source}")]
    parts += [table.text() for table in experiment.published]
    parts.append(_paragraph(experiment.conditions))
    for number, (result, tables) in enumerate(_each_table_once(results)):
        parts += [f"Ours: {result.where}"] if number == 0 else [f"Ours: {_paragraph(result.headline())}"]
        parts += [table.text() for table in tables]
        parts += ["\n".join(_item(line) for line in result.findings)] if result.findings else []
    parts += [table.text() for table in combined(experiment.name, results)]
    parts += [_paragraph(f"Comparable: {experiment.comparable}"), _paragraph(f"Not: {experiment.different}")]
    return "\n\n".join(parts)


def markdown(experiment: Experiment, results: Sequence[ExperimentResult]) -> str:
    """A section of a page: everything that was measured, with the command that did it."""
    parts = []
    for result, tables in _each_table_once(results):
        command = shlex.join(result.command)
        parts.append(f"### {result.where}\n\n`{command}`, {result.started[:10]}\n\n{result.headline()}")
        parts += [table.markdown() for table in tables]
        parts += ["\n".join(f"- {line}" for line in result.findings)] if result.findings else []
    if together := combined(experiment.name, results):
        parts += ["### All together", *(table.markdown() for table in together)]
    if not parts:
        parts = [f"Not measured yet: `xskit experiment run {experiment.name}`."]
    return "\n\n".join(parts)


def _each_table_once(results: Sequence[ExperimentResult]) -> list[tuple[ExperimentResult, list[Table]]]:
    """Results and their tables, without those that an earlier one has shown: what is calculated is alike everywhere."""
    found: list[tuple[ExperimentResult, list[Table]]] = []
    for result in results:
        seen = [table for _, tables in found for table in tables]
        found.append((result, [table for table in result.tables if table not in seen]))
    return found


def _paragraph(words: str) -> str:
    return fill(words, WIDTH)


def _item(words: str) -> str:
    return "\n".join(wrap(words, WIDTH, initial_indent="- ", subsequent_indent="  "))


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
