"""`make bench-peers`: CPU time of a packet in rxdrop, txonly and l2fwd, against C twins and, where it is, xdpsock.

    benchmarks/peers.py [--quick] [--cpu N] [--json FILE] [--one MODE SIZE]

The twins do what xdpsock does, on the very sockets, rings and packet memory of xskit's loops, in turns with them. They
have books of their own and leave the packet table alone: after each turn all frames are where they were before it.

    rxdrop   a burst lies in RX; time until its last frame is back in FILL
    l2fwd    a burst lies in RX; time until its last packet is sent and its frame back in FILL, kernel included
    txonly   time until a burst is sent and its last frame home, kernel included

Both read the CPU clock of the thread inside, so that the call from Python is not in it. Where a process has its memory
and its code moves a ratio by some percent, so each pair of figures is that of a process, and there are many of them.

xdpsock itself, found on the PATH, runs in turns with `xskit bench`, each with sockets of its own on the same interface
under the same source: CPU time of the whole process, or of the worker, for each packet.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from measure import Paired, Result, on_cpu, other_cpu, paired_result, pinned
from twins import check_layout, function, load
from xskit.bench.bed import Bed, Place
from xskit.bench.ends import End, waiting
from xskit.bench.far import LiveSource
from xskit.bench.loops.modes import run
from xskit.bench.programs import Counting, SocketProgram, sink_program
from xskit.bench.runner import run_once
from xskit.bench.settings import BenchMode, Case, Conditions
from xskit.bench.thread import BenchThread
from xskit.closing import Closing
from xskit.memory import I64, Record, Region, record_view, size_of
from xskit.netconf.interfaces import look
from xskit.netconf.namespaces import inside
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import PacketMemory
from xskit.xsk.path.rings import Ring

MODES: tuple[BenchMode, ...] = ("rxdrop", "txonly", "l2fwd")
SIZES = (64, 1500)
RING = 8192
BURST = {"rxdrop": 8192, "l2fwd": 2048, "txonly": 2048}
ROUNDS = {"rxdrop": 300, "txonly": 100, "l2fwd": 100}
"""In each process; a short time needs many."""
PROCESSES, QUICK_PROCESSES = 24, 8
LIMIT = 1.05
XDPSOCK_SECONDS = 2
PATIENCE_SECONDS = 10
BUSY = os.strerror(errno.EBUSY)
"""What xdpsock says while the kernel is still giving back the queue of the process before."""
ENDLESS = 1 << 62


def main() -> int:
    """0 when every upper bound is within the limit."""
    parser = argparse.ArgumentParser(prog="benchmarks/peers.py", description="xskit bench against C twins and xdpsock")
    parser.add_argument("--quick", action="store_true", help="fewer processes: wider intervals")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the CPU to measure on")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--one", nargs=2, metavar=("MODE", "SIZE"), help="the C twin in this process: two medians")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("sockets and namespaces need root: sudo make bench-peers")
    if options.one:
        print(json.dumps(in_this_process(options.one[0], int(options.one[1]), options.cpu)))
        return 0
    console, results = Console(), []
    for mode in MODES:
        for size in SIZES:
            with console.status(f"{mode}, {size} bytes"):
                paired = in_processes(mode, size, options.cpu, QUICK_PROCESSES if options.quick else PROCESSES)
            results.append(paired_result("C twin", f"{mode}, {size} B", paired, LIMIT))
    if shutil.which("xdpsock"):
        with Bed() as bed:
            for mode in MODES:
                for size in SIZES:
                    with console.status(f"xdpsock: {mode}, {size} bytes"):
                        paired = against_xdpsock(bed, mode, size, options.cpu, 5 if options.quick else 12)
                    results.append(paired_result("xdpsock", f"{mode}, {size} B", paired, LIMIT))
    console.print(table(results))
    if not shutil.which("xdpsock"):
        console.print("[dim]there is no xdpsock on the PATH: measured against the C twins only[/]")
    if options.json:
        options.json.write_text(json.dumps([one.as_json() for one in results], indent=2) + "\n")
    return int(any(one.met is False for one in results))


def table(results: list[Result]) -> Table:
    """What was measured, and whether it is within the limit."""
    shown = Table(title="xskit bench against its peers: CPU time of a packet")
    for heading in ("peer", "what", "ratio and its 95 % interval", "xskit against the peer", "target", ""):
        shown.add_column(heading)
    met = {True: "[green]met[/]", False: "[bold red]not met[/]", None: ""}
    for one in results:
        shown.add_row(one.part, one.what, one.value, one.beside, one.target, met[one.met])
    return shown


# --- the twins ------------------------------------------------------------------------------------------------------


def twin_library() -> ctypes.CDLL:
    """The C twins of xskit's loops, checked against their records."""
    library = load("peer_modes")
    check_layout(library, "peer_sizes", (Ring, Peer))
    return library


def in_processes(mode: BenchMode, size: int, cpu: int, processes: int) -> Paired:
    """The medians of so many processes: each has its memory and its code elsewhere, which moves a ratio by percents."""
    command = [sys.executable, __file__, "--cpu", str(cpu), "--one", mode, str(size)]
    pairs = [json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(processes)]
    return Paired(*np.array(pairs).T)


def in_this_process(mode: BenchMode, size: int, cpu: int) -> list[float]:
    """Medians of ns a packet: xskit's, the twin's."""
    with Bed() as bed, pinned(cpu):
        paired = against_twin(bed, mode, size, ROUNDS[mode])
    return [float(np.median(paired.ours)), float(np.median(paired.twin))]


def against_twin(bed: Bed, mode: BenchMode, size: int, rounds: int) -> Paired:
    """Both in turns, on one set of sockets."""
    twin = function(twin_library(), f"peer_{mode}", 2)
    case = Case(mode, packet_size=size, ring=RING, frames=2 * RING, frame_size=2048)
    place = bed.place(case)
    with place.inside(), ExitStack() as stack:
        end, fill_up = open_end(case, place, stack)
        worker = BenchThread(mode, [end])
        stack.callback(worker.close)
        worker.view.meter = 0
        peer = stack.enter_context(TwinEnd(end))
        burst, came = BURST[mode], end.receivers[0]

        def ours_once() -> tuple[float, int]:
            if mode == "txonly":
                end.sources[0].left = burst
                count = burst
            else:
                count = fill_up(burst)
                worker.view.limit, worker.view.done = came.packets + count, came.packets
            run(worker.address, ENDLESS)
            return worker.view.stopped_cpu_ns - worker.view.started_cpu_ns, count

        def twin_once() -> tuple[float, int]:
            count = fill_up(burst)
            goal = count if mode == "txonly" else peer.view.received + count
            return float(twin(peer.address, goal)), count

        samples = np.zeros((rounds, 2))
        for number in range(rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                spent_ns, count = (ours_once, twin_once)[which]()
                samples[number, which] = spent_ns / count
        check_books(end, peer)
    return Paired(samples[5:, 0], samples[5:, 1])


class Peer(Record):
    """What a twin knows (c/peer_modes.c): rings and memory of a socket, and books of its own."""

    rx: I64
    fill: I64
    tx: I64
    completion: I64
    fd: I64
    base: I64
    frame_bytes: I64
    batch: I64
    busy_poll: I64
    wake_always: I64
    frames: I64
    length: I64
    received: I64
    received_bytes: I64
    submitted: I64
    submitted_bytes: I64
    completed: I64
    outstanding: I64
    refused: I64
    rx_calls: I64
    tx_calls: I64
    fill_fails: I64


class TwinEnd(Closing):
    """The record of a twin on the first socket of an end."""

    def __init__(self, end: End) -> None:
        self._region = Region(size_of(Peer))
        self.address = self._region.address
        peer = self.view = record_view(Peer, self.address)
        receiver, transmitter = end.receivers[0], end.transmitters[0]
        memory = record_view(PacketMemory, transmitter.memory)
        peer.rx, peer.fill, peer.tx, peer.completion = (
            receiver.rx,
            receiver.fill,
            transmitter.tx,
            transmitter.completion,
        )
        peer.fd, peer.base, peer.frame_bytes = transmitter.fd, memory.base, memory.frame_bytes
        peer.batch, peer.wake_always = end.case.batch, transmitter.always
        peer.frames, peer.length = memory.frames, end.case.packet.length

    def close(self) -> None:
        """Give the memory back; twice is fine."""
        self._region.close()


def open_end(case: Case, place: Place, stack: ExitStack) -> tuple[End, Callable[[int], int]]:
    """The end under test, and what puts a burst into its RX ring: returns how many packets lie there then."""
    program = stack.enter_context(SocketProgram(look(place.near[0]).index, "native"))
    sends, receives = case.mode != "rxdrop", case.mode != "txonly"
    source = case.packet if case.mode == "txonly" else None
    end = stack.enter_context(
        End(
            place.near[0], 0, case, receives=receives, sends=sends, source=source, program=program if receives else None
        )
    )
    if sends:
        stack.enter_context(Counting(sink_program, look(place.far[0]).index))
    if not receives:
        return end, lambda burst: burst
    end.admit()
    made = stack.enter_context(Counting.live())
    ifindex, ring = look(place.far[0]).index, end.receivers[0].rx
    packet = case.packet.build()

    def fill_up(burst: int) -> int:
        while waiting(ring) < burst:
            made.program.run_live(packet, ifindex=ifindex, repeat=burst - waiting(ring))
        return waiting(ring)

    return end, fill_up


def check_books(end: End, peer: TwinEnd) -> None:
    """Nothing may be left on its way, and every frame must be where it was, and have been counted."""
    counts, twin = end.counts(), peer.view
    missing = counts.submitted + twin.submitted - counts.completed - twin.completed
    if missing or counts.outstanding_frames or twin.outstanding:
        raise SystemExit("peers: frames that were sent did not come home")
    if end.case.mode == "l2fwd" and (counts.submitted, twin.submitted) != (counts.received, twin.received):
        raise SystemExit("peers: not all that was received was sent on")
    home = Owner.FREE if end.case.mode == "txonly" else Owner.FILL
    if counts.strays or (end.memory.table.owners() != home).any():
        raise SystemExit("peers: a frame is not where it was")


# --- xdpsock --------------------------------------------------------------------------------------------------------


def against_xdpsock(bed: Bed, mode: BenchMode, size: int, cpu: int, rounds: int) -> Paired:
    """Both in turns, under the same source."""
    case = Case(mode, packet_size=size, xdp="native")
    place = bed.place(case)
    conditions = Conditions(duration=XDPSOCK_SECONDS, repeat=1, cpus=(cpu,), drive_cpu=other_cpu(cpu))
    samples = np.zeros((rounds, 2))
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            samples[number, which] = xdpsock(case, place, cpu) if which else ours(case, place, conditions)
    return Paired(samples[:, 0], samples[:, 1])


def ours(case: Case, place: Place, conditions: Conditions) -> float:
    """CPU time of our worker a packet, idle rounds included, as xdpsock's has to be."""
    run, _ = run_once(case, place, conditions)
    return run.cpu_ns / max(run.counts["received"], run.counts["sent"])


def xdpsock(case: Case, place: Place, cpu: int) -> float:
    """CPU time of an xdpsock process a packet."""
    letter = {"rxdrop": "-r", "txonly": "-t", "l2fwd": "-l"}[case.mode]
    command = ["xdpsock", letter, "-i", place.near[0], "-q", "0", "-N", "-c", "-s", str(case.packet_size)]
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        with inside(place.namespace), ExitStack() as stack:
            if case.mode != "rxdrop":
                stack.enter_context(Counting(sink_program, look(place.far[0]).index))
            source = LiveSource(case, place, place.far, other_cpu(cpu)) if case.mode != "txonly" else None
            if source:
                stack.callback(source.close)
            begin = source.start if source else lambda: None
            spent_ns, text = timed([*command, "-d", str(XDPSOCK_SECONDS)], cpu, begin)
        if BUSY not in text or time.monotonic() > give_up:
            break
    packets = [
        int(found) for found in re.findall(rf"^{'tx' if letter == '-t' else 'rx'} +\S+ +(\d+)", text, re.MULTILINE)
    ]
    if not packets or packets[-1] == 0:
        raise SystemExit(f"xdpsock moved no packet: {' '.join(command)}\n{text[-500:]}")
    return spent_ns / packets[-1]


def timed(command: list[str], cpu: int, begin: Callable[[], None]) -> tuple[int, str]:
    """Run a command on a CPU; (its CPU time in ns, its output)."""
    found: list[Any] = []

    def body() -> None:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "LC_ALL": "C"}
        )
        begin()
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        found.extend((round((usage.ru_utime + usage.ru_stime) * 1e9), text))

    on_cpu(cpu, body)
    return found[0], found[1]


if __name__ == "__main__":
    sys.exit(main())
