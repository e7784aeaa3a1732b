"""The emulator: links between ports, from the memory plan to the report.

    plan -> compile -> packet memory -> ports -> directions -> workers -> (traffic) -> report -> everything back

Compilation comes before the ports are opened, so that no packet waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from xskit import arguments
from xskit._fork import require_parent
from xskit.emulator.cpus import CpuClaim
from xskit.emulator.judge import judge
from xskit.emulator.lengths import differing_mtus, longest_sent, spare_bytes
from xskit.emulator.link import Link, LinkDirection
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.monitor import Monitor
from xskit.emulator.offloads import Surroundings, expect_tags, merge_nothing, take_whole_packets
from xskit.emulator.portcounts import PortCounts, kept_chatter, port_reports
from xskit.emulator.portends import receive_end, tagging_socket, transmit_end
from xskit.emulator.ports import LinkSpec, PortSpec, port_facts, remarks
from xskit.emulator.portwatch import PortWatch
from xskit.emulator.queue_warning import narrow_queue
from xskit.emulator.report import Report
from xskit.emulator.report_data import LinkReport, WorkerReport
from xskit.emulator.room import check_room, engine_words, memory_remedy
from xskit.emulator.settings import DirectionSettings, EngineSettings
from xskit.emulator.significance import late_limit_ns
from xskit.emulator.sizing import FRAMING_BYTES, MemoryPlan, PortFacts, fill_entries, plan_links
from xskit.engine.clock import monotonic_ns
from xskit.engine.live import EgressLimits, Frames, LiveDirection
from xskit.engine.pipeline import compile_pipeline
from xskit.engine.sizes import LONGEST_HORIZON_NS
from xskit.engine.thread import Snapshot, WorkerThread
from xskit.engine.worker import run_worker
from xskit.errors import UsageError
from xskit.netconf.changes import SetPromiscuous
from xskit.netconf.journal import Journal
from xskit.netconf.privileges import require
from xskit.xsk.path.table import PacketTable
from xskit.xsk.port import Port
from xskit.xsk.umem import Umem

LEAST_HORIZON_NS = 250_000_000

_log = logging.getLogger(__name__)


def compile_data_plane(settings: Sequence[DirectionSettings]) -> None:
    """Compile the loop and every pipeline that these settings need, or load them from the cache."""
    run_worker(0, 0)
    for kinds in {tuple(stage.kind for stage in direction.stages()) for direction in settings}:
        compile_pipeline(kinds)


class Emulator:
    """Runs links until closed.

    Args:
        links: what to join, and how.
        engine: how to run it.
        on_compile: called before compilation begins; what it returns is entered as a context meanwhile, for a
            spinner.
    """

    def __init__(
        self,
        links: Sequence[LinkSpec],
        engine: EngineSettings | None = None,
        *,
        on_compile: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        specs = list(links) if isinstance(links, Iterable) else []
        if not all(isinstance(spec, LinkSpec) for spec in specs):
            raise UsageError(f"links must be a list of LinkSpec, not {arguments.literal(links)}")
        if not (engine is None or isinstance(engine, EngineSettings)):
            raise UsageError(f"engine must be EngineSettings, not {arguments.literal(engine)}")
        self.specs = specs
        self.engine = engine or EngineSettings()
        self.links: dict[str, Link] = {}
        self.ports: dict[PortSpec, Port] = {}
        self.plan: MemoryPlan | None = None
        self._on_compile = on_compile
        self._workers: list[WorkerThread] = []
        self._monitor: Monitor | None = None
        self._closing = contextlib.ExitStack()
        self._started_ns = 0
        self._counts: dict[PortSpec, PortCounts] = {}
        self._longest: dict[PortSpec, int] = {}
        self._tagging: dict[PortSpec, int] = {}
        self._made: list[LinkDirection] = []
        self._last: Report | None = None
        self._pid = os.getpid()
        self._warnings: list[str] = []
        self._check_specs()

    def _check_specs(self) -> None:
        if not self.specs:
            raise SettingsError("there is no link: an emulator needs one at least")
        seen: set[PortSpec] = set()
        for spec in self.specs:
            for port in spec.ports:
                if port in seen:
                    raise SettingsError(f"port {port} is in two links, or twice in one")
                seen.add(port)
        if len({spec.name for spec in self.specs}) != len(self.specs):
            raise SettingsError("two links have the same name")

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open everything and let packets through.

        Raises:
            PrivilegeError, DeviceError, KernelError: what is missing, with the command that mends it. Nothing is
                left half-made.
            UsageError: it was started before.
        """
        if self._workers:
            raise UsageError("an emulator starts once: make another one for another run")
        require(("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"), "opening ports through AF_XDP")
        self._pid = os.getpid()
        try:
            claim = CpuClaim.make(self.engine)
            self._closing.callback(claim.close)
            facts = {port: port_facts(port, self.engine.mode) for spec in self.specs for port in spec.ports}
            self.plan = self._plan(facts)
            check_room(self.plan, self.engine)
            with self._on_compile():
                compile_data_plane([direction for _, _, _, direction in self._directions()])
            self._open(facts, self.plan, claim.cpus)
        except BaseException:
            self._monitor = None  # close() has nothing to read any more
            self._closing.close()
            raise

    def _directions(self) -> list[tuple[LinkSpec, PortSpec, PortSpec, DirectionSettings]]:
        """(link, ingress, egress, settings) of every direction, forward and reverse of each link in turn."""
        found = []
        for spec in self.specs:
            first, second = spec.ports
            found.append((spec, first, second, spec.settings.forward))
            found.append((spec, second, first, spec.settings.reverse))
        return found

    def _plan(self, facts: Mapping[PortSpec, PortFacts]) -> MemoryPlan:
        links = [(spec.settings, facts[spec.ports[0]], facts[spec.ports[1]]) for spec in self.specs]
        return plan_links(links, self.engine)

    def _open(self, facts: Mapping[PortSpec, PortFacts], plan: MemoryPlan, cpus: Sequence[int]) -> None:
        umem = self._closing.enter_context(
            Umem(frames=plan.frames, frame_size=plan.frame_size, huge=True, hugetlb=self.engine.hugetlb)
        )
        table = PacketTable(plan.frames, base=umem.address, frame_bytes=umem.frame_size, pools=2 * len(self.specs))
        self._closing.callback(table.close)
        journal = self._closing.enter_context(Journal.open())
        around: dict[PortSpec, Surroundings] = {}
        for port, known in facts.items():
            spare = spare_bytes(known, plan.frame_size)
            if port.owned:
                around[port] = expect_tags(journal, port, room_bytes=spare)
            else:  # packets for those behind the link have other addresses
                journal.apply(SetPromiscuous(port.name, namespace=port.namespace))
                self._warn(remarks(port))
                around[port] = take_whole_packets(journal, port, room_bytes=spare)
                self._warn(kept_chatter(self.engine, port))
            self._warn(around[port].warnings)
            with engine_words():
                opened = Port.open(
                    port.name,
                    umem,
                    namespace=port.namespace,
                    ring_size=self.engine.ring_size,
                    fill_size=fill_entries(self.engine.ring_size, known.hardware_ring),
                    mode=self.engine.mode,
                    drop_chatter=port.owned and self.engine.chatter == "drop",
                )
            self.ports[port] = self._closing.enter_context(opened)
            self._counts[port] = PortCounts(port, opened)
            self._closing.callback(self._counts[port].close)
            if not port.owned and opened.xdp_mode == "generic":
                self._warn(merge_nothing(journal, port))
            if around[port].grown:
                self._tagging[port] = tagging_socket(self._closing, port)
        self._longest = longest_sent(facts, around)
        self._warn(differing_mtus(self.specs, facts, around))
        made = self._made = self._make_directions(table, plan)
        for spec, forward, reverse in zip(self.specs, made[::2], made[1::2], strict=True):
            self.links[spec.name] = Link(spec, forward, reverse, self.report, self._warn)
        self._start_workers(made, cpus)

    def _make_directions(self, table: PacketTable, plan: MemoryPlan) -> list[LinkDirection]:
        made = []
        first = 0
        for number, (spec, ingress, egress, settings) in enumerate(self._directions()):
            share = plan.directions[number]
            name = ("forward", "reverse")[number % 2]
            horizon_ns = min(max(2 * settings.longest_owd_ns, LEAST_HORIZON_NS), LONGEST_HORIZON_NS)
            receiving, sending = self.ports[ingress], self.ports[egress]
            live = LiveDirection(
                f"{spec.name} {name}",
                settings.stages(self._longest[egress]),
                receive=[receive_end(queue, receiving) for queue in receiving.queues],
                transmit=[transmit_end(sending.queues[0], sending, self._tagging.get(egress, -1))],
                table=table,
                frames=Frames(first, share.frames, share.fill_reserve),
                limits=EgressLimits(max_length=self._longest[egress], max_frames=sending.max_frames),
                horizon_ns=horizon_ns,
                seed=self.engine.seed,
                finish_checksums=not ingress.owned,
                wire_length=receiving.max_length,
                owd_base_ns=settings.owd_base_ns,
                late_limit_ns=late_limit_ns(settings.owd),
            )
            self._closing.callback(live.close)
            self._warn(narrow_queue(live.name, settings, self._longest[egress]))
            first += share.frames
            made.append(
                LinkDirection(
                    name,
                    settings,
                    live,
                    plan,
                    number,
                    max_length=self._longest[egress],
                    horizon_ns=horizon_ns,
                    warn=self._warn,
                    require_ours=self._require_ours,
                )
            )
        return made

    def _start_workers(self, made: Sequence[LinkDirection], cpus: Sequence[int]) -> None:
        for number in range(self.engine.workers):
            mine = made if self.engine.workers == 1 else made[number::2]
            worker = WorkerThread([d.live for d in mine], cpu=cpus[number], spin=self.engine.spin)
            self._closing.callback(worker.close)
            self._workers.append(worker)
            for direction in mine:
                direction.assign(worker)
        for worker in self._workers:
            worker.start()
        for counts in self._counts.values():
            counts.begin()
        self._started_ns = monotonic_ns()
        self._watch_ports = PortWatch(self.ports, self._longest, self._warn, self._resized)
        self._monitor = Monitor(self._workers, self._observe, self._watch_ports)
        self._closing.callback(self._monitor.stop)
        self._monitor.start()

    def wait(self, seconds: float | None = None) -> str | None:
        """Let it run; returns early, with the reason, when the run cannot go on."""
        self._require_ours()
        assert self._monitor is not None, "the emulator was not started"
        self._monitor.wait(arguments.seconds("seconds", seconds))
        return self._monitor.failure

    def close(self) -> Report | None:
        """Stop the workers, close the ports, give the memory back; returns the final report. Twice is fine.

        Raises:
            UsageError: this process was forked from the one in which the links run.
        """
        if self._last is None:
            self._require_ours()
        if self._monitor is not None and self._last is None:
            self._monitor.stop()
            for worker in self._workers:
                worker.stop()
            try:
                self._last = self.report()
            except BaseException:
                self._monitor = None  # nor has a second close()
                raise
            finally:
                self._closing.close()
        self._closing.close()
        return self._last

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:  # a forked process that leaves the block stops nothing
            self.close()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _observe(self, snapshots: list[Snapshot]) -> None:
        by_live = {
            id(live): reading
            for worker, snapshot in zip(self._workers, snapshots, strict=True)
            for live, reading in zip(worker.directions, snapshot.readings, strict=True)
        }
        for link in self.links.values():
            for direction in link.directions:
                direction.observe(by_live[id(direction.live)])

    def _require_ours(self) -> None:
        require_parent(self._pid, "the links run in")

    def _warn(self, sentences: Sequence[str], level: int = logging.WARNING) -> None:
        """Log what the user should know though the run goes on, once, and keep it for the report."""
        for sentence in sentences:
            if sentence not in self._warnings:
                self._warnings.append(sentence)
                _log.log(level, "%s", sentence)

    def _resized(self, port: PortSpec, mtu: int) -> None:
        """Packets that come to a port may be longer or shorter from now on, even without offloads."""
        for direction, (_, ingress, _, _) in zip(self._made, self._directions(), strict=True):
            if ingress == port:
                direction.live.view.wire_length = mtu + FRAMING_BYTES

    def report(self) -> Report:
        """Asked against achieved, now; after close(), as it was at the end.

        Raises:
            UsageError: the links do not run, or this process was forked from the one in which they do.
        """
        if self._last is not None:
            return self._last
        self._require_ours()
        if self._monitor is None:
            raise UsageError("the links do not run, so there is nothing to report")
        snapshots = [worker.snapshot() for worker in self._workers]
        self._monitor.check(snapshots)
        failure = self._monitor.failure or self._watch_ports()
        links = self._link_reports(snapshots)
        report = Report(
            links=links,
            ports=port_reports(self._counts, self.specs, links, over=not any(one.running for one in self._workers)),
            workers=[_worker_report(snapshot) for snapshot in snapshots],
            memory={} if self.plan is None else self.plan.as_dict(),
            duration_ns=monotonic_ns() - self._started_ns,
            warnings=list(self._warnings),
        )
        judge(
            report,
            imbalances=self._monitor.imbalances,
            broken=[*([failure] if failure else []), *self._watch_ports.detached, *self._monitor.stuck()],
            whole=all(snapshot.whole for snapshot in snapshots),
            remedy=self._memory_remedy(),
        )
        return report

    def _link_reports(self, snapshots: Sequence[Snapshot]) -> list[LinkReport]:
        found = {
            id(live): (reading, achieved)
            for worker, snapshot in zip(self._workers, snapshots, strict=True)
            for live, reading, achieved in zip(worker.directions, snapshot.readings, snapshot.achieved, strict=True)
        }
        return [
            LinkReport(name, [way.report(*found[id(way.live)], self._started_ns) for way in link.directions])
            for name, link in self.links.items()
        ]

    def _memory_remedy(self) -> str:
        """What would have kept memory from running out; empty if it did not run out."""
        needs = [direction.need for link in self.links.values() for direction in link.directions]
        needed = [need.memory() for need in needs if need.ran_out]
        return memory_remedy(self.plan, self.engine, max(needed)) if needed and self.plan is not None else ""


def _worker_report(snapshot: Snapshot) -> WorkerReport:
    facts = snapshot.worker
    return WorkerReport(
        cpu=facts.cpu,
        mode="spin" if facts.spin else "adaptive",
        loops=facts.loops,
        busy=facts.busy,
        host_stalls=facts.host_stalls,
        host_stall_ns=facts.stall_ns,
        sleeps=facts.sleeps,
    )


__all__ = ["Emulator", "LinkSpec", "PortSpec", "compile_data_plane"]
