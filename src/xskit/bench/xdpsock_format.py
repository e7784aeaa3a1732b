"""Output in the columns of xdpsock (bpf-examples, AF_XDP-example/xdpsock.c, dump_stats), so that scripts go on working.

Never by locale: xdpsock groups digits as the locale says, which is nothing under LC_ALL=C. Two differences: `tx`
counts what was completed, not what was put into TX, and with several sockets on one queue the second block is theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple

from xskit.bench.ends import End, total
from xskit.bench.runner import CALLS, Running

__all__ = ["Printer"]

_KERNEL = ("rx dropped", "rx invalid", "tx invalid", "rx queue full", "fill ring empty", "tx ring empty")
_MODES = {"generic": "xdp-skb ", "native": "xdp-drv ", "none": "xdp-drv "}


class Printer:
    """Prints a block every interval, and one at the end.

    Args:
        write: takes whole lines.
        interval: seconds between blocks.
        extra, calls: as -x and -a.
        rates: what a second brought is a result; else there is a dash instead.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        interval: float = 1.0,
        extra: bool = False,
        calls: bool = False,
        rates: bool = True,
    ) -> None:
        self._write, self._rates = write, rates
        self._interval_ns = round(interval * 1e9)
        self._extra, self._calls = extra, calls
        self._before: dict[tuple[int, str], int] = {}
        self._last_ns = 0
        self._begun: object = None

    def observe(self, running: Running) -> None:
        """For run_once: called at every sample."""
        now_ns = running.samples[-1].time_ns
        if self._begun is not running:
            self._begun, self._last_ns, self._before = running, now_ns, {}
            return
        if running.over:
            self._block(running, time.monotonic_ns())
        elif now_ns - self._last_ns >= self._interval_ns:
            self._block(running, now_ns)

    def _block(self, running: Running, now_ns: int) -> None:
        step_ns = max(now_ns - self._last_ns, 1)
        self._last_ns = now_ns
        number = 0
        for end in running.ends:
            for position in range(len(end.sockets)):
                self._socket(running, end, position, number, step_ns)
                number += 1
        if self._calls:
            self._application(running, step_ns)
        if running.interrupts:
            self._write("")
            self._write("{:<18s} {:<14s} {:<14s}".format("", "intrs/s", "count"))
            self._row(-1, "irqs", running.interrupts.count(), step_ns)

    def _socket(self, running: Running, end: End, position: int, number: int, step_ns: int) -> None:
        mode = _MODES["generic" if running.case.xdp == "generic" else running.mode.xdp]
        poll = "poll() " if running.case.poll else ""
        counts = end.counts_of(position)
        self._write("")
        self._write(f" sock{number}@{end.interface}:{end.queue} {running.case.mode} {mode}{poll}")
        if running.case.multi_buffer:
            heads = ("", "pps", "pkts", "fps", "frags")
            self._write("{:<18s} {:<14s} {:<14s} {:<14s} {:<14s} {:<14.2f}".format(*heads, step_ns / 1e9))
            self._row(number, "rx", counts.received, step_ns, counts.received_frames)
            self._row(number, "tx", counts.sent, step_ns, round(counts.sent * _frames_a_packet(running, end)))
        else:
            self._write("{:<18s} {:<14s} {:<14s} {:<14.2f}".format("", "pps", "pkts", step_ns / 1e9))
            self._row(number, "rx", counts.received, step_ns)
            self._row(number, "tx", counts.sent, step_ns)
        if self._extra:
            for name, value in zip(_KERNEL, astuple(end.sockets[position].statistics()), strict=True):
                self._row(number, name, int(value), step_ns)

    def _application(self, running: Running, step_ns: int) -> None:
        number = 0
        for end in running.ends:
            for position in range(len(end.sockets)):
                counts = end.counts_of(position)
                self._write("")
                self._write("{:<18s} {:<14s} {:<14s}".format("", "calls/s", "count"))
                for name, field in CALLS.items():
                    self._row(number, name, getattr(counts, field), step_ns)
                number += 1
        sources = [source for end in running.ends for source in end.sources]
        if running.case.cycle_ns and sources:
            cycles = sum(source.cycles for source in sources)
            mean = sum(source.late_sum_ns for source in sources) // max(cycles, 1)
            most, least = max(source.late_max_ns for source in sources), min(source.late_min_ns for source in sources)
            self._write("")
            self._write(_CYCLE.format("", "period", "min", "ave", "max", "cycle"))
            self._write(_CYCLE.format("Cyclic TX", running.case.cycle_ns, least, mean, most, cycles))

    def _row(self, number: int, name: str, value: int, step_ns: int, frames: int | None = None) -> None:
        cells = self._cells(number, name, value, step_ns)
        if frames is not None:
            cells += self._cells(number, f"{name} frames", frames, step_ns)
        self._write(f"{name:<18s} {cells}".removesuffix(" "))

    def _cells(self, number: int, name: str, value: int, step_ns: int) -> str:
        before = self._before.get((number, name), 0)
        self._before[number, name] = value
        rate = f"{(value - before) * 1e9 / step_ns:.0f}" if self._rates else "-"
        return f"{rate:<14s} {value:<14d} "


def _frames_a_packet(running: Running, end: End) -> float:
    """Of what is sent: as its source makes it, else as it was received."""
    if end.sources:
        return float(end.sources[0].frames)
    counts = total(one.counts() for one in running.ends)
    return counts.received_frames / counts.received if counts.received else 0.0


_CYCLE = "{:<18s} {:<10} {:<10} {:<10} {:<10} {:<10}"
