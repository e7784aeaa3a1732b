"""Sentences about a run that a figure alone would not tell: what was the limit, what was lost, why nothing came."""

from __future__ import annotations

from collections.abc import Sequence

from xskit.bench.in_guest import counted_instructions
from xskit.bench.results import Run
from xskit.bench.settings import Case
from xskit.netconf.interfaces import LinkState, Watch, look

__all__ = ["explain_silence", "notes"]

IDLE = 0.9
"""A worker that is busy for less of the time was waiting for packets."""
SHOWN = 0.001


def notes(case: Case, run: Run) -> list[str]:
    """What is worth saying of a run."""
    found = []
    counts, kernel = run.counts, run.kernel
    busy = run.busy_ns / (run.seconds * 1e9 * len(case.queues)) if run.seconds else 1.0
    receives = case.mode in ("rxdrop", "l2fwd", "forward", "loss") and counts["received"] > 0
    idle = receives and not case.poll and busy < IDLE and not counted_instructions()
    if idle and kernel["rx_ring_full"] <= SHOWN * counts["received"]:
        found.append(f"the source was the limit: the worker had nothing to do for {1 - busy:.0%} of the time")
    elif kernel["rx_ring_full"]:
        why = ", though the worker was idle for the most part: it was kept from its CPU, or bursts were longer than RX"
        found.append(f"{kernel['rx_ring_full']} packets found the RX ring full{why if idle else ''}")
    if kernel["rx_dropped"] and counts["received"]:
        found.append(f"{kernel['rx_dropped']} packets were dropped: longer than a frame, or FILL was empty")
    if counts["refused"] > SHOWN * counts["sent"]:
        found.append(f"the kernel refused {counts['refused']} packets: the way out was full, down, or they too long")
    if counts["unfinished"]:
        found.append(f"{counts['unfinished']} frames that were sent did not come back")
    if counts["strays"]:
        found.append(f"{counts['strays']} entries of rings named no frame that could be there: this is a bug")
    if counts.get("corrupted"):
        found.append(f"{counts['corrupted']} packets came that were not those that were sent")
    if counts.get("lost") and case.mode == "latency":
        found.append(f"{counts['lost']} packets did not come back within a second")
    return found


def explain_silence(case: Case, run: Run, interfaces: Sequence[str]) -> list[str]:
    """Why nothing came, as far as it shows."""
    found = []
    with Watch() as watch:
        for name in dict.fromkeys(interfaces):
            state = watch.state(name)
            if state is not LinkState.UP:
                found.append(f"{name} is {state.value}: nothing can come or go")
            elif case.mode != "txonly" and (queues := look(name).rx_queues) > len(case.queues):
                listened = ", ".join(map(str, case.queues))
                found.append(f"{name} has {queues} RX queues and only {listened} was listened to: --queue all")
    if run.kernel["rx_dropped"]:
        found.append(f"{run.kernel['rx_dropped']} packets came that do not fit a frame of {case.frame_size}: --frags")
    return found or ["no packet came or went"]
