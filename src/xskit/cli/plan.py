"""`xskit plan`: what memory links will need, before they are made."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xskit.cli.options import read_engine, read_link, with_settings
from xskit.errors import UsageError

if TYPE_CHECKING:
    from xskit.emulator.packet_mix import PacketMix


@with_settings
def plan(
    mtu: Annotated[int, typer.Option(help="of every port")] = 1500,
    ports: Annotated[int, typer.Option(help="in all; two make a link")] = 2,
    queues: Annotated[int, typer.Option(help="of each port")] = 1,
    packet_size: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="what will come, with Ethernet header: 1518, or a mix of sizes and weights, 64:7,576:4,1518:1",
        ),
    ] = None,
    capture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="what will come: as in this pcap or pcapng file")
    ] = None,
    hardware_ring: Annotated[
        int, typer.Option(metavar="ENTRIES", help="of the NIC's RX ring (ethtool -g), for zero copy")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    link: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
) -> None:
    """Plan the memory of links: frames, bytes, huge pages, rings, and which kernels can do it.

    It is the emulator's own sizing. Without --packet-size or --capture the plan is for full-size packets, and for
    shorter ones as far as a modest memory holds them.

    \b
    Examples:
      xskit plan --rate 10Gbit --owd 100ms --mtu 9000 --queues 4
      xskit plan --rate 1Gbit --owd 40ms --packet-size 64:7,576:4,1518:1
      xskit plan --rate 100Mbit --owd 300ms --capture office.pcapng --json
    """
    from xskit.emulator.plan import plan as make_plan

    found = make_plan(
        read_link(link or {}),
        read_engine(engine or {}),
        mtu=mtu,
        ports=ports,
        queues=queues,
        hardware_ring=hardware_ring,
        mix=_mix(packet_size, capture),
    )
    print(json_module.dumps(found.as_dict(), indent=2) if json else found)


def _mix(sizes: str | None, capture: Path | None) -> PacketMix | None:
    from xskit.emulator.packet_mix import PacketMix

    if sizes is not None and capture is not None:
        raise UsageError("--packet-size and --capture both say what will come: one of them is enough")
    if capture is not None:
        return PacketMix.read(capture)
    try:
        return None if sizes is None else PacketMix.parse(sizes)
    except UsageError as error:
        raise UsageError(f"--packet-size: {error.cause}", remedy="--packet-size 64:7,1518:1") from None
