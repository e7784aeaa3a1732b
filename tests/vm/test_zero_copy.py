"""Zero copy on real drivers: one guest for each NIC model that has it, and each check of its own."""

from __future__ import annotations

import pytest

from tests.vm.inside import queues, stall, zerocopy
from tests.vm.suites import judge, run_all, run_suite

pytestmark = pytest.mark.vm

KERNEL = "7.3"


@pytest.mark.parametrize("check", [check.__name__ for check in zerocopy.CHECKS])
@pytest.mark.parametrize("nic", ["virtio-net", "igb"])
def test_zero_copy(nic: str, check: str) -> None:
    judge(run_all(KERNEL, nic), check)


@pytest.mark.parametrize("check", [check.__name__ for check in queues.CHECKS])
def test_two_queues_of_igb(check: str) -> None:
    judge(run_all(KERNEL, "igb"), check)


@pytest.mark.root
@pytest.mark.parametrize("check", [check.__name__ for check in queues.CHECKS])
def test_two_queues_of_virtio_net(check: str) -> None:
    """Its wires need taps, and so root."""
    judge(run_suite("queues", KERNEL, "virtio-net", queues=2), check)


@pytest.mark.parametrize("check", [check.__name__ for check in stall.CHECKS])
def test_a_driver_that_stalls(check: str) -> None:
    judge(run_all(KERNEL, "igb"), check)
