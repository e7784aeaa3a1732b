"""Zero copy on real drivers: one guest for each NIC model that has it, and each check of its own."""

from __future__ import annotations

import pytest

from tests.vm.inside import queues, stall, zerocopy
from tests.vm.suites import judge, run_all, run_suite

pytestmark = pytest.mark.vm

VIRTIO_NET, IGB = ("7.3", "virtio-net"), ("7.3", "igb")


@pytest.mark.parametrize("check", [check.__name__ for check in zerocopy.CHECKS])
@pytest.mark.parametrize(("kernel", "nic"), [VIRTIO_NET, IGB])
def test_zero_copy(kernel: str, nic: str, check: str) -> None:
    judge(run_all(kernel, nic), check)


@pytest.mark.parametrize("check", [check.__name__ for check in queues.CHECKS])
@pytest.mark.parametrize(("kernel", "nic"), [IGB])
def test_two_queues(kernel: str, nic: str, check: str) -> None:
    judge(run_all(kernel, nic), check)


@pytest.mark.root
@pytest.mark.parametrize("check", [check.__name__ for check in queues.CHECKS])
def test_two_queues_of_virtio_net(check: str) -> None:
    """Its wires need taps, and so root."""
    judge(run_suite("queues", *VIRTIO_NET, queues=2), check)


@pytest.mark.parametrize("check", [check.__name__ for check in stall.CHECKS])
@pytest.mark.parametrize(("kernel", "nic"), [IGB])
def test_a_driver_that_stalls(kernel: str, nic: str, check: str) -> None:
    judge(run_all(kernel, nic), check)
