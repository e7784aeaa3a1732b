"""Workers of pytest-xdist boot guests side by side, and share what they found.

A test that asks for what the guest of another worker finds waits for it.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.conftest import SHARED
from tests.vm import suites
from xskit.vm import accel, compiled, initramfs, kernels
from xskit.vm import qemu as qemus
from xskit.vm.devices import model


class OneGuestOneWorker(LoadScopeScheduling):
    """The tests of a guest one after the other in one worker; most tests first, which is also the longest."""

    def _split_scope(self, nodeid: str) -> str:
        guests = [f"{kernel}-{nic}" for kernel, nic in suites.PLACES]
        return next((guest for guest in guests if f"[{guest}-" in nodeid), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return OneGuestOneWorker(config, log)


@pytest.fixture(scope="session", autouse=True)
def _results_are_shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.getbasetemp()
    suites.results_folder = own.parent if SHARED else own
    if SHARED:
        with suites.alone(suites.results_folder / "fetched.lock"):
            _fetch_everything()


def _fetch_everything() -> None:
    """What all guests need: two workers would fetch, unpack and compile it twice."""
    with compiled.Preparation() as preparation:
        for version, nic in suites.PLACES:
            qemu, kernel = qemus.qemu(model(nic).qemu, print), kernels.ready(version, print)
            accel.choose("auto", qemu, kernel, initramfs.build(kernel, qemus.busybox(print)), print)
        preparation.wait()
