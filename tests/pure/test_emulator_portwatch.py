"""What the watch over ports reports, and what it must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from xskit.emulator import portwatch
from xskit.emulator.ports import PortSpec
from xskit.emulator.portwatch import PortWatch
from xskit.netconf import ending
from xskit.netconf.interfaces import Glance, LinkState
from xskit.xsk.port import Port

SPEC = PortSpec("xk0")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A port that is as it should be; its fields may be changed."""
    monkeypatch.setattr(portwatch, "_origin", lambda spec: ("02:00:00:00:00:01", 1))
    monkeypatch.setattr(portwatch, "moved_to", lambda *origin: None)
    glance = Glance("xk0", LinkState.UP, 1500)
    return SimpleNamespace(mtu=1500, ifindex=2, attached=True, glance=lambda: glance)


def watch(port: Any, warnings: list[str]) -> PortWatch:
    return PortWatch({SPEC: cast(Port, port)}, {SPEC: 1518}, warnings.extend, lambda spec, mtu: None)


def test_a_detached_program_and_a_deleted_port_are_reported(port: Any) -> None:
    warnings: list[str] = []
    look = watch(port, warnings)
    assert look() is None
    assert not warnings
    port.attached = False
    assert look() is None
    assert warnings == look.detached == [f"port xk0: {portwatch._DETACHED}"]
    port.glance = lambda: None
    assert look() == "port xk0 was deleted while the link was running"


def test_what_an_ending_process_takes_down_itself_is_not_reported(port: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    look = watch(port, warnings)
    monkeypatch.setattr(ending, "is_begun", lambda: True)
    port.attached = False
    assert look() is None
    port.glance = lambda: None
    assert look() is None
    assert not warnings
