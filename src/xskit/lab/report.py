"""The report of a lab: its links, each of which is a run of its own."""

from __future__ import annotations

from collections.abc import Iterable

from xskit.emulator.report import Report
from xskit.emulator.report_data import LinkReport

__all__ = ["LabReport"]


class LabReport(list[LinkReport]):
    """The links of a lab, as a list that prints as their reports.

    Attributes:
        runs: the whole report of each link.
    """

    def __init__(self, runs: Iterable[Report]) -> None:
        self.runs = list(runs)
        super().__init__(link for run in self.runs for link in run.links)

    @property
    def valid(self) -> bool:
        """Whether all links are valid."""
        return all(run.valid for run in self.runs)

    @property
    def invalid_because(self) -> list[str]:
        """A sentence for each reason why a link is not valid."""
        return [sentence for run in self.runs for sentence in run.invalid_because]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.runs)) if self.runs else "no links"
