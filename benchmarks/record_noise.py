"""Record what this machine's noise does to a benchmark: the same case twice, in turns, in many sessions.

    benchmarks/record_noise.py [--sessions N] [--repeat N] [--duration S] [--mode M ...] FILE

The file is what tests/pure/test_bench_conclusions.py judges `xskit bench compare` by: within noise for
what is the same, worse for what was made 5 % slower. Record it anew on the machine that benchmarks are run on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from xskit.bench.metrics import OF_MODE
from xskit.bench.session import measure
from xskit.bench.settings import BenchMode, Case, Conditions

MODES: tuple[BenchMode, ...] = ("txonly",)
"""Where the CPU time of a packet is the kernel's: tens of thousands of packets a run, whatever else goes on."""


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description="record the noise of this machine")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=80)
    parser.add_argument("--duration", type=float, default=0.04)
    parser.add_argument("--mode", action="append", choices=sorted(OF_MODE))
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    sessions = {mode: [one_session(mode, options) for _ in range(options.sessions)] for mode in options.mode or MODES}
    facts = {"kernel": platform.release(), "cpus": os.cpu_count(), "load": os.getloadavg()}
    conditions = {"repeat": options.repeat, "duration_s": options.duration}
    text = json.dumps({"schema": 1, "machine": facts, "conditions": conditions, "sessions": sessions})
    options.file.write_text(text.replace('}, {"first"', '},\n {"first"') + "\n")
    return 0


def one_session(mode: BenchMode, options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Two cases that are the same, run in turns: first and second, each metric -> one value a run."""
    case = Case(mode)
    measured = measure([case, case], Conditions(duration=options.duration, repeat=options.repeat))
    first, second = measured.outcomes
    recorded: dict[str, dict[str, list[float]]] = {"first": {}, "second": {}}
    for metric in OF_MODE[mode]:
        one, other = first.by_repeat(metric), second.by_repeat(metric)
        for repeat in sorted(one.keys() & other.keys()):  # pairs
            recorded["first"].setdefault(metric, []).append(float(f"{one[repeat]:.6g}"))
            recorded["second"].setdefault(metric, []).append(float(f"{other[repeat]:.6g}"))
    return recorded


if __name__ == "__main__":
    sys.exit(main())
