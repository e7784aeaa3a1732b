"""Part `startup`: the first run's compilation, from a command to its first packet, and what an idle link costs."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

from clockloop import busy
from measure import Result
from xskit.lab.lab import Lab

COLD_LIMIT_S, WARM_LIMIT_S, IDLE_LIMIT = 10.0, 1.0, 0.03
COMPILE = """
from xskit.emulator.emulator import compile_data_plane
from xskit.emulator.settings import DirectionSettings
compile_data_plane([DirectionSettings()])
"""
XSKIT = (sys.executable, "-m", "xskit")
IDLE_S = 5.0


def children_s() -> float:
    """CPU time of all children that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compile_cold() -> tuple[float, float]:
    """(CPU, wall) seconds of a process that compiles everything for a link, into an empty cache."""
    with tempfile.TemporaryDirectory(prefix="xkbench") as folder:
        cpu, wall = children_s(), time.monotonic()
        subprocess.run([sys.executable, "-c", COMPILE], check=True, env=os.environ | {"XSKIT_CACHE": folder})
        return children_s() - cpu, time.monotonic() - wall


def first_packet() -> float:
    """Seconds from starting `xskit run` to the first packet of its command, which comes here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.settimeout(30)
        port = receiver.getsockname()[1]
        begun = time.monotonic()
        command = [*XSKIT, "run", "--loss", "0%", "--", "bash", "-c", f"echo > /dev/udp/peer/{port}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            receiver.recv(64)
            spent = time.monotonic() - begun
            if process.wait(timeout=30) != 0:
                raise SystemExit("startup: xskit run failed")
        return spent


def idle_share() -> float:
    """CPU time of a process whose link carries nothing, as a share of the time."""
    with Lab() as lab:
        lab.link(lab.host("a"), lab.host("b"), owd="20ms", rate="100Mbit")
        time.sleep(0.5)
        cpu, wall = time.process_time(), time.monotonic()
        time.sleep(IDLE_S)
        return (time.process_time() - cpu) / (time.monotonic() - wall)


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    cold = [compile_cold() for _ in range(1 if quick else 3)]
    cold_cpu, cold_wall = (float(np.median(column)) for column in zip(*cold, strict=True))
    first_packet()
    disturbed = busy(cpu)
    warm = float(np.median([first_packet() for _ in range(3 if quick else 9)]))
    disturbed = busy(cpu) or disturbed
    idle = idle_share()
    return [
        Result(
            "startup",
            "cold: compiling for a link, CPU time",
            f"{cold_cpu:.1f} s",
            f"{cold_wall:.1f} s by the clock",
            f"<= {COLD_LIMIT_S:.0f} s",
            cold_cpu <= COLD_LIMIT_S,
            {"cpu_s": cold_cpu, "wall_s": cold_wall},
        ),
        Result(
            "startup",
            "warm: from `xskit run` to the first packet",
            f"{warm:.2f} s",
            "",
            f"<= {WARM_LIMIT_S:.0f} s",
            None if disturbed and warm > WARM_LIMIT_S else warm <= WARM_LIMIT_S,
            {"seconds": warm},
        ),
        Result(
            "startup",
            "idle link, adaptive",
            f"{idle:.2%} of a CPU",
            "",
            f"< {IDLE_LIMIT:.0%}",
            idle < IDLE_LIMIT,
            {"share": idle},
        ),
    ]
