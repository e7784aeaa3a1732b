"""The checks of `inside`, run in one guest a suite: what came of each, kept for the tests that ask one by one."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xskit.vm.devices import model
from xskit.vm.errors import GuestError
from xskit.vm.hardware import GuestHardware
from xskit.vm.session import Request, run_guest

ROOT = Path(__file__).parents[2]
LIMIT_S = 420.0

SUITES = {
    ("5.10", "virtio-net"): "ladder refusals",
    ("6.12", "virtio-net"): "ladder refusals",
    ("6.12", "e1000e"): "ladder vlans senders",
    ("7.3", "virtio-net"): "ladder zerocopy",
    ("7.3", "igb"): "ladder queues stall zerocopy",
}
"""All that is checked in one boot besides the ladder: kernels before 6.17 say late what they have taken from TX, e1000e
takes tags out of packets, igb has several queues by itself, and on 7.3 there is zero copy."""


@dataclass(frozen=True)
class Ran:
    """One suite in one guest."""

    failures: dict[str, str | None]
    facts: dict[str, dict[str, Any]]
    printed: str
    ended: str


@functools.cache
def run_suite(suite: str, kernel: str, nic: str, *, nics: int = 4, queues: int = 1, cpus: int = 2) -> Ran:
    """Boot a guest, run the suites that are named, and read what they found."""
    printed: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            kernel,
            [sys.executable, "-m", "tests.vm.inside", *suite.split()],
            hardware=GuestHardware(nics=nics, model=model(nic), queues=queues, cpus=cpus),
            time_limit_s=LIMIT_S,
            out=Path(folder),
            cwd=ROOT,
        )
        try:
            ended = f"exit code {run_guest(request, stdout=printed.append, stderr=printed.append).outcome.exit_code}"
        except GuestError as error:
            ended = error.cause
        path = Path(folder) / "results.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return Ran(
        {line["check"]: line["failure"] for line in lines},
        {line["check"]: line["facts"] or {} for line in lines},
        b"".join(printed).decode(errors="replace"),
        ended,
    )


def run_all(kernel: str, nic: str) -> Ran:
    """All that is checked on this kernel with these NICs."""
    return run_suite(SUITES.get((kernel, nic), "ladder"), kernel, nic)


def judge(ran: Ran, check: str) -> dict[str, Any]:
    """The facts of a check; fails as it did, or with what the guest printed where it never came to it."""
    if check not in ran.failures:
        pytest.fail(f"the guest never came to it: {ran.ended}\n{ran.printed[-3000:]}", pytrace=False)
    if (failure := ran.failures[check]) is not None:
        pytest.fail(failure, pytrace=False)
    return ran.facts[check]
