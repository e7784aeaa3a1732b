"""A driver that takes packets and completes none: igb in zero copy under a generic program. xskit never asks for that
by itself, so the port is deceived here; what counts is that a run on such a driver says so and ends."""

from __future__ import annotations

import time
from dataclasses import replace
from unittest.mock import patch

from tests.vm.inside.wire import FAR, NEAR, ends, packets
from tests.vm.inside.zerocopy import emulator
from xskit.bpf.attach import XdpMode
from xskit.xsk.attachment import Attachment

_make = Attachment.make


def _generic_under_another_name(ifindex: int, queues: int, _: str, **options: bool) -> Attachment:
    """The program in the stack, and a port that believes it to be in the driver, so that it binds in zero copy."""
    return replace(_make(ifindex, queues, "generic", **options), mode=XdpMode.NATIVE)


def check_a_stall_is_told() -> dict[str, object]:
    """Packets in flight and no completion for a second: the report says so, and close() neither hangs nor leaks."""
    with (
        ends(NEAR, FAR) as (near, _),
        patch.object(Attachment, "make", _generic_under_another_name),
        emulator() as running,
    ):
        assert all(port.zero_copy for port in running.ports.values())
        near.send(packets(40))
        deadline = time.monotonic() + 20
        while not _told(running.report().invalid_because) and time.monotonic() < deadline:
            time.sleep(0.2)
        report = running.close()
    assert report is not None
    assert _told(report.invalid_because), (report.invalid_because, report.links[0].directions[0].packets)
    for direction in report.links[0].directions:
        books = direction.packets
        assert books["received"] == books["sent"] + sum(books["dropped"].values()) + books["in_flight"], books
    return {"said": report.invalid_because}


def _told(reasons: list[str]) -> bool:
    return any("completed nothing" in reason for reason in reasons)


CHECKS = (check_a_stall_is_told,)
