"""`xskit bench`: AF_XDP measured, in the modes and with the options of xdpsock and more, and results compared."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from xskit.arguments import whole
from xskit.bench.in_guest import DURATION_S, REPEAT, counted_instructions
from xskit.cli.bench_compare import compare, load
from xskit.cli.bench_options import (
    AskedGuests,
    CaseOptions,
    as_cases,
    as_count,
    as_fraction,
    as_numbers,
    as_priority,
    as_seconds,
    far_names,
    interface_names,
    read_clock_name,
)
from xskit.cli.bench_show import Display, show
from xskit.cli.nic import Nic
from xskit.cli.output import check_file, compiling
from xskit.errors import UsageError

if TYPE_CHECKING:
    from xskit.bench.results import Session
    from xskit.bench.settings import Case, Conditions

_HELP = {"help_option_names": ["-h", "--help"]}
_LETTERS = {
    "-r": "rxdrop",
    "--rxdrop": "rxdrop",
    "-t": "txonly",
    "--txonly": "txonly",
    "-l": "l2fwd",
    "--l2fwd": "l2fwd",
}
_INTERRUPTED = 130
_FOR_EVER_S = 1e6

_MODES = {
    "rxdrop": "Receive, count, and give the frames back.",
    "txonly": "Send one packet over and over; counted when its sending is completed.",
    "l2fwd": "Receive, swap the MAC addresses, and send out of the same port.",
    "forward": "Receive on either of two ports and send out of the other one, over one packet memory, without a copy.",
    "latency": "Send a packet, wait until it is back, and again: quantiles of the round trip.",
    "loss": "Send numbered packets and look at every byte that arrives: lost, doubled, reordered, changed.",
}


class _Group(TyperGroup):
    """Also takes xdpsock's way: `xskit bench -t -i eth0 -s 1500`, the mode being a letter, or rxdrop."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            words = [part for word in args for part in _apart(word)]
            modes = [_LETTERS[word] for word in words if word in _LETTERS]
            args = [modes[-1] if modes else "rxdrop", *(word for word in words if word not in _LETTERS)]
        return super().parse_args(ctx, args)


def _apart(word: str) -> list[str]:
    """`-tSx` is `-t -S -x`, where all of them are letters without a value."""
    return [f"-{letter}" for letter in word[1:]] if re.fullmatch(r"-[rtlpSNzcmuMFVyxQaBR]{2,}", word) else [word]


bench = typer.Typer(cls=_Group, context_settings=_HELP, rich_markup_mode=None)


@bench.callback()
def _bench() -> None:
    """Benchmarks of AF_XDP: repeated, interleaved, with intervals, and compared.

    Without --interface a veth pair is made in a namespace, and its other end is driven too: every mode runs on any
    machine. Options that take a LIST sweep over it; --kernel does it all in guests with other kernels.

    \b
    Examples:
      xskit bench rxdrop
      xskit bench txonly --mode skb --packet-size 64,512,1024,1500
      xskit bench l2fwd -i eth0 --cpu 3 --json > base.json
      xskit bench txonly --kernel 6.1,7.3 --nic virtio-net --mode zero-copy,skb
      xskit bench compare base.json new.json
    """


def _measure(
    ctx: typer.Context,
    interface: Annotated[
        str | None,
        typer.Option("--interface", "-i", metavar="NAME[,NAME]", help="to measure on; none: a veth pair is made"),
    ] = None,
    far: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="what the interfaces are wired to, to be driven from there"),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="LIST", help="in guests with these kernels, one after another: 6.1,7.3")
    ] = None,
    nic: Annotated[
        Nic | None, typer.Option(help="with --kernel: on the guests' NICs, of that model and wired to each other")
    ] = None,
    accel: Annotated[
        Literal["auto", "kvm", "tcg"],
        typer.Option(help="with --kernel: KVM, or emulation, which counts instructions; auto: KVM where it works"),
    ] = "auto",
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="LIST", help="numbers, or all: one worker each")] = "0",
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="LIST", help="auto, native, skb (or generic), zero-copy", show_default="auto"),
    ] = None,
    skb: Annotated[bool, typer.Option("--xdp-skb", "-S", help="--mode skb")] = False,
    native: Annotated[bool, typer.Option("--xdp-native", "-N", help="--mode native")] = False,
    zero_copy: Annotated[bool, typer.Option("--zero-copy", "-z", help="--mode zero-copy")] = False,
    copy: Annotated[bool, typer.Option("--copy", "-c", help="native mode, with copies")] = False,
    packet_size: Annotated[
        str,
        typer.Option(
            "--packet-size", "--tx-pkt-size", "-s", metavar="LIST", help="bytes, with 4 of the NIC's checksum"
        ),
    ] = "64",
    frame_size: Annotated[str, typer.Option("--frame-size", "-f", metavar="LIST", help="bytes")] = "4096",
    frames: Annotated[int, typer.Option("--frames", help="of each queue")] = 4096,
    ring: Annotated[str, typer.Option("--ring", metavar="LIST", help="entries of RX, TX and COMPLETION")] = "2048",
    batch: Annotated[str, typer.Option("--batch", "--batch-size", "-b", metavar="LIST", help="packets")] = "64",
    poll: Annotated[bool, typer.Option("--poll", "-p", help="sleep in poll(2) instead of spinning")] = False,
    busy_poll: Annotated[bool, typer.Option("--busy-poll", "-B", help="the kernel polls from our calls")] = False,
    no_need_wakeup: Annotated[
        bool, typer.Option("--no-need-wakeup", "-m", help="bind without XDP_USE_NEED_WAKEUP, and call always")
    ] = False,
    unaligned: Annotated[bool, typer.Option("--unaligned", "-u", help="frames may lie anywhere")] = False,
    hugetlb: Annotated[bool, typer.Option("--hugetlb", help="packet memory of 2 MiB pages (vm.nr_hugepages)")] = False,
    frags: Annotated[bool, typer.Option("--frags", "-F", help="packets may take several frames (Linux 6.6)")] = False,
    shared_umem: Annotated[bool, typer.Option("--shared-umem", "-M", help="--sockets 4")] = False,
    sockets: Annotated[int, typer.Option("--sockets", help="on each queue, which get its packets in turn")] = 1,
    drive: Annotated[
        Literal["auto", "live", "af-xdp", "none"],
        typer.Option("--drive", help="what works at the other end of a veth pair that is made"),
    ] = "auto",
    both_ways: Annotated[bool, typer.Option("--both-ways", help="of forward: packets come from both ends")] = False,
    count: Annotated[
        str, typer.Option("--count", "--tx-pkt-count", "-C", metavar="N", help="packets; 0: until the time is over")
    ] = "0",
    cycle: Annotated[
        str, typer.Option("--tx-cycle", "-T", metavar="TIME", help="one batch each so often: 100 (us), 1ms")
    ] = "0",
    vlan: Annotated[bool, typer.Option("--tx-vlan", "-V", help="send with an 802.1Q tag")] = False,
    vlan_id: Annotated[int, typer.Option("--tx-vlan-id", "-J", help="of the tag")] = 1,
    vlan_priority: Annotated[int, typer.Option("--tx-vlan-pri", "-K", help="of the tag")] = 0,
    destination_mac: Annotated[
        str | None, typer.Option("--tx-dmac", "-G", metavar="MAC", help="of what is sent")
    ] = None,
    source_mac: Annotated[str | None, typer.Option("--tx-smac", "-H", metavar="MAC", help="of what is sent")] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", "--tx-pkt-pattern", "-P", metavar="HEX", help="four bytes that fill a packet")
    ] = "0x12345678",
    stamps: Annotated[bool, typer.Option("--tstamp", "-y", help="send with a pktgen header: number and time")] = False,
    clock: Annotated[
        str, typer.Option("--clock", "-w", metavar="CLOCK", help="of the stamps: MONOTONIC, REALTIME, TAI, BOOTTIME")
    ] = "MONOTONIC",
    duration: Annotated[
        str | None, typer.Option("--duration", "-d", metavar="TIME", help="of a run: 5 (s), 200ms", show_default="1s")
    ] = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", help="runs of each case, in turns", show_default="8")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="FRACTION", help="repeat until the median is known so well: 1%"),
    ] = None,
    cpu: Annotated[
        str | None, typer.Option("--cpu", metavar="LIST", help="for the workers", show_default="the last")
    ] = None,
    drive_cpu: Annotated[
        int | None, typer.Option("--drive-cpu", help="for what drives the other end", show_default="the first")
    ] = None,
    policy: Annotated[str, typer.Option("--policy", "-W", metavar="OTHER|FIFO", help="of the workers")] = "OTHER",
    priority: Annotated[int, typer.Option("--schpri", "-U", help="of the workers, with FIFO")] = 0,
    reduce_cap: Annotated[
        bool, typer.Option("--reduce-cap", "-R", help="the workers give up all capabilities before the first packet")
    ] = False,
    retries: Annotated[int, typer.Option("--retries", "-O", help="seconds to wait for the last packets")] = 3,
    irq: Annotated[
        str | None, typer.Option("--irq-string", "-I", metavar="TEXT", help="count interrupts: a line with that text")
    ] = None,
    interval: Annotated[str, typer.Option("--interval", "-n", metavar="TIME", help="of the statistics: 1 (s)")] = "1",
    extra: Annotated[bool, typer.Option("--extra-stats", "-x", help="show XDP_STATISTICS too")] = False,
    calls: Annotated[bool, typer.Option("--app-stats", "-a", help="show system calls too")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-Q", help="show nothing while it runs")] = False,
    format: Annotated[
        Literal["table", "xdpsock"], typer.Option("--format", help="xdpsock: its columns, one run")
    ] = "table",
    json: Annotated[bool, typer.Option("--json", help="print everything as JSON")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="write everything there too, as JSON")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="write a page; with charts, if xskit[plots] is there")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="FILE", help="compare with results that --json wrote")
    ] = None,
    least: Annotated[
        str, typer.Option("--least", metavar="FRACTION", help="differences below that are within noise")
    ] = "1%",
) -> None:
    asked = AskedGuests.read(kernel, nic, accel, interface=interface, far=far)
    numbered = whole("--tx-vlan-id", vlan_id, 1, 4095, remedy="--tx-vlan-id {}")
    options = CaseOptions(
        mode=str(ctx.info_name),
        interfaces=interface_names(interface, "--interface"),
        queues=queue,
        xdp=mode if mode is not None else _chosen(skb=skb, native=native, zero_copy=zero_copy, copy=copy),
        packet_size=packet_size,
        frame_size=frame_size,
        ring=ring,
        batch=batch,
        cycle=cycle,
        pattern=pattern,
        fields={
            "frames": frames,
            "poll": poll,
            "busy_poll": busy_poll,
            "need_wakeup": not no_need_wakeup,
            "unaligned": unaligned,
            "hugetlb": hugetlb,
            "multi_buffer": frags,
            "sharers": 4 if shared_umem and sockets == 1 else sockets,
            "drive": drive,
            "both_ways": both_ways,
            "count": as_count(count),
            "vlan": numbered if vlan else None,
            "vlan_priority": vlan_priority,
            **({} if destination_mac is None else {"destination_mac": destination_mac}),
            **({} if source_mac is None else {"source_mac": source_mac}),
            "stamped": stamps,
            "clock": read_clock_name(clock),
        },
    )
    check_file("--report", report, {".json": "JSON"})
    check_file("--html", html, {".html": "HTML", ".htm": "HTML"})
    cases = as_cases(asked.without_queues(options) if asked else options)
    wired = far_names(far, options.interfaces)
    from xskit.bench.settings import Conditions

    counted = counted_instructions()
    endless = duration is None and (format == "xdpsock" or as_count(count) > 0)
    usual_s, often = (DURATION_S, REPEAT) if counted else (1.0, 8)
    given_s = usual_s if duration is None else as_seconds(duration, "--duration")
    conditions = Conditions(
        duration=_FOR_EVER_S if endless else given_s,
        repeat=(1 if format == "xdpsock" or endless else often) if repeat is None else repeat,
        until=None if until is None else as_fraction(until, "--until"),
        cpus=() if cpu is None else as_numbers(cpu, "--cpu"),
        drive_cpu=drive_cpu,
        priority=as_priority(policy, priority),
        reduce_capabilities=reduce_cap,
        retries=retries,
        interval=as_seconds(interval, "--interval"),
        interrupts=irq,
    )
    before, smallest = load(compare) if compare else None, as_fraction(least, "--least")
    if before is not None and not any(one.case.mode == ctx.info_name for one in before.outcomes):
        raise UsageError(
            f"{compare} has no results of {ctx.info_name}: there would be nothing to compare",
            remedy=f"xskit bench {ctx.info_name} --report {compare}, and compare with that later",
        )
    if asked:
        from xskit.cli.bench_guests import in_guests

        session = in_guests(asked, ctx, cases, endless=endless, columns=format == "xdpsock", quiet=quiet)
    else:
        view = Display(format=format, quiet=quiet or json, extra=extra, calls=calls, conditions=conditions)
        session = _run(cases, conditions, view, wired)
    show(session, json=json, format=format, extra=extra, calls=calls, report=report, html=html)
    if before is not None:
        assert compare is not None
        from xskit.bench import compare as comparing
        from xskit.bench.compare_report import as_mail

        found = comparing.sessions(before, session, (str(compare), "now"), least=smallest)
        print(f"\n{as_mail(found)}", file=sys.stderr if json else sys.stdout)
    if session.interrupted:
        raise typer.Exit(_INTERRUPTED)


for _name, _text in _MODES.items():
    bench.command(_name, short_help=_text, help=_text, context_settings=_HELP)(_measure)


bench.command("compare", context_settings=_HELP, short_help="Say what changed between results, if anything did.")(
    compare
)


def _chosen(*, skb: bool, native: bool, zero_copy: bool, copy: bool) -> str:
    """xdpsock's letters: -S wins, because it implies copies."""
    if skb:
        return "generic"
    if zero_copy:
        return "zero-copy"
    return "native" if native or copy else "auto"


def _run(cases: list[Case], conditions: Conditions, view: Display, far: tuple[str, ...]) -> Session:
    from xskit.netconf.privileges import require
    from xskit.netconf.signals import terminated_by_exception

    require(("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"), "xskit bench")
    with terminated_by_exception():
        with compiling():
            from xskit.bench.session import measure
        with view:
            return measure(
                cases, conditions, observe=view.observe, on_run=view.note, command=["xskit", *sys.argv[1:]], far=far
            )
