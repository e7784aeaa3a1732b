"""All runs of all cases: in turns, so that what disturbs the machine for a while disturbs all of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from xskit.bench.bed import Bed
from xskit.bench.counted import count_once
from xskit.bench.in_guest import counted_instructions
from xskit.bench.machine import describe_interface, describe_machine
from xskit.bench.results import CaseResult, Session
from xskit.bench.runner import Observer, run_once
from xskit.bench.settings import Case, Conditions

__all__ = ["measure"]


def measure(
    cases: Sequence[Case],
    conditions: Conditions | None = None,
    *,
    observe: Observer | None = None,
    on_run: Callable[[Session], None] | None = None,
    command: Sequence[str] = (),
    far: tuple[str, ...] = (),
) -> Session:
    """Measure cases. Veth pairs that are made for them are taken back at the end. Ctrl-C ends it, with what was
    measured so far.

    Args:
        cases: what; those without interfaces run on veth pairs.
        conditions: how; runs of a second each, eight times in turns, when left out.
        observe: called several times in each run.
        on_run: called after each run with what there is so far.
        command: kept in the results.
        far: interfaces of this machine that the cases' interfaces are wired to, to be driven from there.

    Raises:
        XskitError: a case cannot be run.
    """
    asked = conditions or Conditions()
    do = count_once if counted_instructions() else run_once
    begun = time.monotonic()
    session = Session(
        machine=describe_machine(),
        command=list(command) or sys.argv,
        conditions=asked.as_dict(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with Bed(far) as bed:
        repeat = 0
        while repeat < asked.limit:
            for number, case in enumerate(cases):
                if repeat >= asked.repeat and session.outcomes[number].is_known(asked.until):
                    continue
                place = bed.place(case)
                try:
                    run, running = do(case, place, asked, repeat, observe)
                except KeyboardInterrupt:  # while it was opened or closed: a run that has begun ends by itself
                    if not session.outcomes:
                        raise
                    session.interrupted = True
                    return session
                if number == len(session.outcomes):
                    with place.inside():
                        facts = [describe_interface(name, running.mode) for name in place.near]
                    session.outcomes.append(CaseResult(case, running.mode, facts))
                session.outcomes[number].runs.append(run)
                session.seconds = round(time.monotonic() - begun, 3)
                if on_run:
                    on_run(session)
                if running.interrupted:
                    session.interrupted = True
                    return session
            repeat += 1
            if repeat >= asked.repeat and all(outcome.is_known(asked.until) for outcome in session.outcomes):
                break
    return session
