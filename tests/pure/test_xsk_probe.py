"""What probing concludes from the answers of kernels that are not at hand."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.pure.support_registration import Kernel
from xskit.xsk import probe
from xskit.xsk.probe import SocketFeature


@pytest.mark.parametrize(
    ("version", "there"), [((5, 15), False), ((6, 7), False), ((6, 8), True), ((6, 10), True), ((6, 11), True)]
)
def test_tx_metadata_came_before_its_flag(monkeypatch, version, there):
    monkeypatch.setattr(probe.socket, "socket", lambda *_: nullcontext(Kernel(version)))
    support = probe._probe(SocketFeature.TX_METADATA)
    assert (support.available, bool(support.detail)) == (there, not there)
