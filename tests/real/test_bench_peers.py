"""xdpsock beside `xskit bench`: how it is started, waited for and read. The one here is a script with its words."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from xskit.bench.bed import Bed
from xskit.bench.settings import Case

pytestmark = pytest.mark.root

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

XDPSOCK = """#!/bin/sh
echo "$@" >> "$0.calls"
if [ "$(wc -l < "$0.calls")" = 1 ]; then
  echo 'xdpsock_user.c:xsk_configure_socket:868: errno: 16/"Device or resource busy"' >&2
  exit 1
fi
grep -q "^ *$3:" /proc/net/dev || exit 1
cat <<'END'

 sock0@xknear0:0 rxdrop xdp-drv
                   pps            pkts           1.02
rx                 476439         485760
tx                 7              7

 sock0@xknear0:0 rxdrop xdp-drv
                   pps            pkts           0.00
rx                 7917           485792
tx                 8              8
END
"""
"""Busy at first, as after the process before it; then what xdpsock of Linux 5.10 prints. It looks for its interface."""


@pytest.fixture
def peers(tmp_path, monkeypatch):
    """The module, with the script on the PATH."""
    script = tmp_path / "xdpsock"
    script.write_text(XDPSOCK)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("peers")
    monkeypatch.setattr(module, "timed", _with_a_time(module.timed))
    return module


def _with_a_time(timed):
    def called(*arguments):
        _, text = timed(*arguments)
        return 1_000_000, text

    return called


@pytest.mark.parametrize(
    ("mode", "letter", "packets"), [("rxdrop", "-r", 485792), ("l2fwd", "-l", 485792), ("txonly", "-t", 8)]
)
def test_cpu_time_of_a_packet(peers, tmp_path, mode, letter, packets):
    with Bed() as bed:
        case = Case(mode, packet_size=64, xdp="native")
        place = bed.place(case)
        assert peers.xdpsock(case, place, max(os.sched_getaffinity(0))) == 1_000_000 / packets
    calls = (tmp_path / "xdpsock.calls").read_text().splitlines()
    assert calls == [f"{letter} -i {place.near[0]} -q 0 -N -c -s 64 -d {peers.XDPSOCK_SECONDS}"] * 2


def test_one_that_moves_nothing_is_no_result(peers, tmp_path):
    (tmp_path / "xdpsock").write_text("#!/bin/sh\necho out of order\n")
    case = Case("txonly", packet_size=64, xdp="native")
    with Bed() as bed:
        place = bed.place(case)
        with pytest.raises(SystemExit, match=r"(?s)^xdpsock moved no packet: xdpsock -t .*out of order"):
            peers.xdpsock(case, place, max(os.sched_getaffinity(0)))
