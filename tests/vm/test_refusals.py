"""Packets that kernels before 6.17 refuse to send, in guests that other tests boot too."""

from __future__ import annotations

import pytest

from tests.vm.inside import refusals
from tests.vm.suites import judge, run_all

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("check", [check.__name__ for check in refusals.CHECKS])
@pytest.mark.parametrize(("kernel", "nic"), [("5.10", "virtio-net"), ("6.12", "virtio-net")])
def test_what_is_refused_is_counted(kernel: str, nic: str, check: str) -> None:
    judge(run_all(kernel, nic), check)
