"""Two sessions compared, or the cases of one: what changed, by how much, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from xskit.bench.in_guest import RATIO
from xskit.bench.inference import LEAST, Difference, compare
from xskit.bench.machine import differences
from xskit.bench.metrics import METRICS, VERDICT_METRICS
from xskit.bench.others import BUSY
from xskit.bench.results import CaseResult, Session
from xskit.bench.settings import Case, distinguishing, labelled
from xskit.bench.words import case_words, option_word
from xskit.errors import UsageError

__all__ = ["Comparison", "ComparisonRow", "across", "sessions"]


@dataclass(frozen=True)
class ComparisonRow:
    """One metric of one case, before and after."""

    case: str
    metric: str
    difference: Difference


@dataclass
class Comparison:
    """All rows, and what the reader must know of where they come from."""

    first: str
    second: str
    rows: list[ComparisonRow] = field(default_factory=list)
    machines: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Facts in which the machines differ: name, first, second."""
    remarks: list[str] = field(default_factory=list)
    meaning: str = ""
    """What the figures are, where they are no times: the first line of a report."""

    @property
    def worse(self) -> bool:
        """Something became worse."""
        return any(row.difference.conclusion == "worse" for row in self.rows)


def sessions(
    first: Session, second: Session, names: tuple[str, str] = ("before", "after"), *, least: float = LEAST
) -> Comparison:
    """Case by case, those that were asked the same; where there is none, those of each mode in their order. Cases that
    only one side has are told.

    Raises:
        UsageError: they have no mode in common, or one counted instructions and the other one did not.
    """
    found = Comparison(*names)
    pairs = _matching(first.outcomes, second.outcomes)
    if not pairs:
        modes = [", ".join(dict.fromkeys(one.case.mode for one in side.outcomes)) for side in (first, second)]
        raise UsageError(f"{names[0]} measured {modes[0]}, {names[1]} {modes[1]}: nothing to compare")
    counted = [any(side.is_counted(one.case) for one in side.outcomes) for side in (first, second)]
    if counted[0] != counted[1]:
        raise UsageError(
            f"{names[counted.index(True)]} counted instructions in emulated guests, {names[counted.index(False)]} "
            "measured time: neither says anything of the other",
            remedy="measure both in guests, or both on this machine",
        )
    found.meaning = RATIO if counted[0] else ""
    labels = [case_words(label) for label in labelled([one.case for one, _ in pairs])]
    for (before, after), label in zip(pairs, labels, strict=True):
        _add(found, label, before, after, paired=False, least=least)
        changed = _changed(before.case, after.case)
        if changed:
            found.remarks.append(f"{label}: the cases differ in {', '.join(changed)}")
        if str(before.mode) != str(after.mode):
            found.remarks.append(f"{label}: {names[0]} used {before.mode}, {names[1]} {after.mode}")
        found.machines += _machines(first, second, before.case, after.case)
        found.machines += [
            (f"interface.{name}", *values)
            for one, other in zip(before.interfaces, after.interfaces, strict=False)
            for name, *values in differences(one, other)
        ]
    found.remarks += _copied(zip(labels, pairs, strict=True))
    found.remarks += _alone(first, [one for one, _ in pairs], names[0])
    found.remarks += _alone(second, [other for _, other in pairs], names[1])
    found.remarks += _conditions(first, second)
    busy = [max((outcome.other_cpus for outcome in side.outcomes), default=0.0) for side in (first, second)]
    if max(busy) > BUSY:
        found.remarks.append(
            f"WARNING: other programs took {busy[0]:.1f} CPUs while {names[0]} was measured and {busy[1]:.1f} while "
            f"{names[1]} was: what changed may be their doing"
        )
    found.machines = list({name: (name, one, other) for name, one, other in found.machines}.values())
    return found


def across(session: Session, name: str, *, least: float = LEAST) -> Comparison:
    """The cases of one session along one field of the sweep, against its first value; paired by repeat.

    Raises:
        UsageError: the field was not swept.
    """
    if name not in {one.name for one in fields(Case)}:
        known = ", ".join(option_word(one.name) for one in fields(Case) if one.name != "mode")
        raise UsageError(f"cases have no option {option_word(name)}", remedy=f"--across one of {known}")
    values = list(dict.fromkeys(getattr(outcome.case, name, None) for outcome in session.outcomes))
    swept = distinguishing([outcome.case for outcome in session.outcomes])
    if len(values) < 2:
        raise UsageError(
            f"{option_word(name)} has one value only in these results",
            remedy=f"--across {option_word(swept[0])}" if swept else "give --packet-size, --mode, ... a list",
        )
    found = Comparison(case_words({name: values[0]}), "each other value")
    found.meaning = RATIO if any(session.is_counted(outcome.case) for outcome in session.outcomes) else ""
    in_turns = name != "kernel"  # each guest ran for itself
    bases = (outcome for outcome in session.outcomes if getattr(outcome.case, name) == values[0])
    first = {_but(outcome.case, name): outcome for outcome in bases}
    for outcome in session.outcomes:
        before = first.get(_but(outcome.case, name))
        if before is None or before is outcome:
            continue
        label = case_words({one: getattr(outcome.case, one) for one in dict.fromkeys(("mode", *swept, name))})
        _add(found, label, before, outcome, paired=in_turns, least=least)
        found.remarks += _copied([(label, (before, outcome))])
    if any(row.difference.paired for row in found.rows):
        found.remarks.append("differences are medians of the ratios of pairs, which need not be those of the medians")
    return found


def _machines(first: Session, second: Session, before: Case, after: Case) -> list[tuple[str, Any, Any]]:
    """Facts in which the machines of two cases differ; of a guest, with its kernel's name where that is the same."""
    where = f"Linux {before.kernel}: " if before.kernel and before.kernel == after.kernel else ""
    found = differences(first.machine_of(before), second.machine_of(after))
    return [(f"{where}{name}", one, other) for name, one, other in found]


def _copied(pairs: Iterable[tuple[str, tuple[CaseResult, CaseResult]]]) -> list[str]:
    """How many bytes of a packet were copied: apart from instructions, and no matter of intervals."""
    found = []
    for label, sides in pairs:
        values = [side.spread("copied_bytes_per_packet") for side in sides]
        if values[0] is not None and values[1] is not None:
            found.append(f"{label}: bytes copied of a packet: {values[0].median:.4g} -> {values[1].median:.4g}")
    return found


def _but(case: Case, name: str) -> tuple[Any, ...]:
    return tuple(getattr(case, one.name) for one in fields(Case) if one.name != name)


def _add(found: Comparison, label: str, before: CaseResult, after: CaseResult, *, paired: bool, least: float) -> None:
    for name in VERDICT_METRICS:
        if name not in before.metrics() or name not in after.metrics():
            continue
        first, second = before.values(name), after.values(name)
        together = paired
        if paired:
            one, other = before.by_repeat(name), after.by_repeat(name)
            both = sorted(one.keys() & other.keys())
            first, second = [one[number] for number in both], [other[number] for number in both]
            together = bool(both)
        difference = compare(first, second, better=METRICS[name].better, paired=together, least=least)
        if difference is not None:
            found.rows.append(ComparisonRow(label, name, difference))


def _matching(first: Sequence[CaseResult], second: Sequence[CaseResult]) -> list[tuple[CaseResult, CaseResult]]:
    """Pairs of cases: equal ones; without any, those of the same mode in order."""
    alike: list[Callable[[Case], Hashable]] = [lambda case: case, lambda case: case.mode]
    for key in alike:
        rest, pairs = list(second), []
        for outcome in first:
            other = next((one for one in rest if key(one.case) == key(outcome.case)), None)
            if other:
                rest.remove(other)
                pairs.append((outcome, other))
        if pairs:
            return pairs
    return []


def _alone(session: Session, compared: Sequence[CaseResult], name: str) -> list[str]:
    """What only one side has, in a sentence."""
    labels = zip(session.outcomes, session.labels(), strict=True)
    left = [case_words(label) for one, label in labels if not any(one is other for other in compared)]
    return [f"only {name} has, and nothing is said of: {'; '.join(left)}"] if left else []


_CONDITIONS = ("duration", "cpus", "drive_cpu", "priority", "reduce_capabilities")
"""Those that move figures; how often a case was run shows in the intervals."""


def _conditions(first: Session, second: Session) -> list[str]:
    """Under which other conditions the second was measured, in a sentence."""
    changed = []
    for name in _CONDITIONS:
        one, other = (_plain(session.conditions.get(name)) for session in (first, second))
        if one != other:
            changed.append(f"{name.replace('_', '-')} ({one} -> {other})")
    return [f"WARNING: they were measured under different conditions: {', '.join(changed)}"] if changed else []


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value


def _changed(before: Case, after: Case) -> list[str]:
    names = distinguishing([before, after])
    return [f"{option_word(name)} ({getattr(before, name)} -> {getattr(after, name)})" for name in names]
