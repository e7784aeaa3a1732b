"""What stacks leave to their devices, in a guest that other tests boot too."""

from __future__ import annotations

import pytest

from tests.vm.inside import senders
from tests.vm.suites import judge, run_all

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("check", [check.__name__ for check in senders.CHECKS])
@pytest.mark.parametrize(("kernel", "nic"), [("6.12", "e1000e")])
def test_it_crosses_whole(kernel: str, nic: str, check: str) -> None:
    judge(run_all(kernel, nic), check)
