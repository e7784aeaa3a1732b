"""Reports made of directions in virtual time."""

from __future__ import annotations

import bisect
from types import SimpleNamespace

import numpy as np

from xskit.emulator.judge import judge
from xskit.emulator.report import Report, direction_report
from xskit.emulator.report_data import LinkReport, PortReport, WorkerReport
from xskit.emulator.settings import DirectionSettings, read
from xskit.emulator.significance import late_limit_ns
from xskit.engine import histogram
from xskit.engine.virtual import VirtualPipeline
from xskit.memory import array_at

KERNEL = (
    "rx_dropped",
    "rx_invalid_descs",
    "tx_invalid_descs",
    "rx_ring_full",
    "rx_fill_ring_empty_descs",
    "tx_ring_empty_descs",
)
BUCKET_STARTS = [histogram.lowest(bucket) for bucket in range(histogram.BUCKETS)]
STARTED_NS = 1_000_000
MEMORY_REMEDY = "set memory to 64MiB"


def since_start(settings, late_ns=(), **changes):
    """The record of a direction that no update has changed, after packets that left so late."""
    limit_ns = late_limit_ns(settings.owd)
    record = {"since_lost": 0, "since_offered": 0, "updates": 0, "owd_base_ns": 0, "since_ns": 0, "moved_late": 0,
              "late_limit_ns": limit_ns, "late": sum(value > limit_ns for value in late_ns)}  # fmt: skip
    return SimpleNamespace(**record | changes)


def direction(name, settings, *, packets=0, length=1000, late_ns=(), inside_ns=(), until_ns=1 << 40, **since):
    """The report of a pipeline that met these packets, a microsecond apart."""
    with VirtualPipeline(settings.stages(), packets=1024, seed=5, name=name) as virtual:
        virtual.run([(1_000 * n, length) for n in range(packets)], until_ns)
        for address, values in ((virtual.pipeline.lateness, late_ns), (virtual.pipeline.owd, inside_ns)):
            counts = array_at(address, histogram.BUCKETS, np.int64)
            for value in values:
                counts[bisect.bisect_right(BUCKET_STARTS, value) - 1] += 1
        record = since_start(settings, late_ns, **since)
        return direction_report(
            name,
            settings.asked(),
            virtual.pipeline.reading(),
            record,
            virtual.pipeline.kinds,
            None,
            started_ns=STARTED_NS,
        )


def report(**changes):
    settings = read(DirectionSettings, {"owd": "20ms", "loss": "10%", "rate": "100Mbit"})
    forward = direction("forward", settings, packets=500, late_ns=[3_000] * 99 + [40_000], inside_ns=[20_003_000] * 100)
    made = Report(
        links=[LinkReport("wan", [forward, direction("reverse", DirectionSettings())])],
        ports=[
            PortReport("xk1a", "native", False, 1, dict.fromkeys(KERNEL, 0), why=["no driver for zero copy"]),
            PortReport("xk1b", "generic", False, 2, dict.fromkeys(KERNEL, 0)),
        ],
        workers=[WorkerReport(1, "adaptive", 1000, 250, 2, 3_500_000, 17)],
        memory={"frames": 4096},
        duration_ns=1_000_000_000,
    )
    judged = {"imbalances": 0, "broken": [], "remedy": MEMORY_REMEDY} | changes
    judge(made, **judged)
    return made
