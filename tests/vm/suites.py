"""The checks of `inside`, run in one guest a suite: what came of each, kept for the tests that ask one by one."""

from __future__ import annotations

import fcntl
import functools
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from xskit.vm.devices import model
from xskit.vm.errors import GuestError
from xskit.vm.hardware import GuestHardware
from xskit.vm.session import Request, run_guest

ROOT = Path(__file__).parents[2]
LIMIT_S = 900.0

PLACES = [
    ("5.10", "virtio-net"),
    ("6.1", "virtio-net"),
    ("6.12", "virtio-net"),
    ("6.12", "vmxnet3"),
    ("6.12", "e1000e"),
    ("7.3", "virtio-net"),
    ("7.3", "igb"),
]
"""The kernels, and the NICs under them, that are checked."""

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
    """What came of suites in one guest."""

    failures: dict[str, str | None]
    facts: dict[str, dict[str, Any]]
    printed: str
    ended: str


results_folder = Path()
"""Where the workers of a session keep what came of suites; conftest.py sets it."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """In the block no other worker is in one of this lock file."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def run_suite(suite: str, kernel: str, nic: str, *, nics: int = 4, queues: int = 1, cpus: int = 2) -> Ran:
    """Boot a guest, run the suites that are named, and read what they found: once, whichever worker comes first."""
    path = results_folder / f"{suite} {kernel} {nic} {nics} {queues} {cpus}.json"
    with alone(path.with_suffix(".lock")):
        if not path.exists():
            ran = _boot(suite, kernel, GuestHardware(nics=nics, model=model(nic), queues=queues, cpus=cpus))
            path.write_text(json.dumps(asdict(ran)))
    return Ran(**json.loads(path.read_text()))


def _boot(suite: str, kernel: str, hardware: GuestHardware) -> Ran:
    printed: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            kernel,
            [sys.executable, "-m", "tests.vm.inside", *suite.split()],
            hardware=hardware,
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
