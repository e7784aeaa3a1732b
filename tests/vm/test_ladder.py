"""Every kernel and NIC in the best mode it has, and the table in the documentation that says so."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.vm.inside import ladder
from tests.vm.suites import PLACES, ROOT, judge, run_all

pytestmark = pytest.mark.vm

CHECKS = [*(check.__name__ for check in ladder.CHECKS), "check_nothing_was_compiled"]
PAGE = ROOT / "docs" / "reference" / "kernels.md"
BEGIN, END = "<!-- written by tests/vm/test_ladder.py -->\n", "<!-- to here -->\n"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("kernel", "nic"), PLACES)
def test_the_best_mode_there_is_works(kernel: str, nic: str, check: str) -> None:
    judge(run_all(kernel, nic), check)


EXPECTED = {
    ("5.10", "virtio-net"): ("native", False, False),
    ("6.1", "virtio-net"): ("native", False, False),
    ("6.12", "virtio-net"): ("native", False, True),
    ("6.12", "vmxnet3"): ("native", False, True),
    ("6.12", "e1000e"): ("generic", False, True),
    ("7.3", "virtio-net"): ("native", True, False),
    ("7.3", "igb"): ("native", True, False),
}
"""Where the program runs, zero copy, multi-buffer."""


@pytest.mark.parametrize(("kernel", "nic"), PLACES)
def test_the_mode_is_the_one_that_the_driver_has(kernel: str, nic: str) -> None:
    facts = judge(run_all(kernel, nic), "check_mode")
    assert (facts["xdp_mode"], facts["zero_copy"], facts["multi_buffer"]) == EXPECTED[kernel, nic]
    assert facts["zero_copy"] or facts["why"], "why it is not better must be said"
    assert ("XDP_FRAGS" in facts["missing"]) == (kernel == "5.10")


def test_an_old_kernel_says_what_a_large_mtu_would_need() -> None:
    facts = judge(run_all("6.1", "virtio-net"), "check_jumbo")
    assert facts["jumbo"] is False
    assert "multi-buffer came with Linux 6.6" in facts["said"]
    assert "MTU" in facts["said"]


@pytest.mark.parametrize(("kernel", "nic"), PLACES)
def test_packet_memory_ends_where_the_plan_says(kernel: str, nic: str) -> None:
    """EFAULT: the kernel has taken the size, and then found that the memory cannot be touched."""
    facts = judge(run_all(kernel, nic), "check_largest_memory")
    assert facts["largest"][0] == "EFAULT"
    number, said = facts["a page more"]
    assert number == ("ENOMEM" if kernel == "5.10" else "EFAULT")
    assert ("before Linux 5.14 it takes 2 GiB at most" in said) == (kernel == "5.10")


def test_the_table_in_the_documentation_is_what_was_found() -> None:
    """Run with XSKIT_WRITE_TABLE=1 to write it anew."""
    table = BEGIN + "\n" + _table() + "\n" + END
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    if os.environ.get("XSKIT_WRITE_TABLE"):
        PAGE.write_text(before + table + after)
    assert PAGE.read_text() == before + table + after, "XSKIT_WRITE_TABLE=1 make test-vm writes the table anew"


def _table() -> str:
    lines = [
        "| kernel | NIC | driver | program | zero copy | multi-buffer | arrival stamps | a link runs | MTU 9000 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kernel, nic in PLACES:
        ran = run_all(kernel, nic)
        mode, traffic = judge(ran, "check_mode"), judge(ran, "check_traffic")
        jumbo = judge(ran, "check_jumbo")
        cells = (
            kernel,
            nic,
            mode["driver"],
            mode["xdp_mode"],
            _yes(mode["zero_copy"]),
            _yes(mode["multi_buffer"]),
            _yes(traffic["stamps"]),
            _yes(judge(ran, "check_link")["link"]),
            _long_packets(jumbo, zero_copy=mode["zero_copy"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _long_packets(facts: dict[str, Any], *, zero_copy: bool) -> str:
    if facts["jumbo"] is None:
        return "not testable: the emulated NIC loses such packets"
    return "yes, with copies" if zero_copy and facts.get("copied") else _yes(facts["jumbo"])


def _yes(value: bool) -> str:
    return "yes" if value else "no"
