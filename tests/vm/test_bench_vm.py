"""`xskit bench --kernel` as users type it: counts that are the same again, and zero copy on a guest's NICs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

LIMIT_S = 900.0
NEAR = 0.005
"""A fraction of a percent: what two guests may differ by."""


def bench(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "xskit", "bench", *arguments, "--accel", "tcg", "--json", "--quiet"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def median(case: dict[str, Any], metric: str) -> float:
    found: float = case["summary"][metric]["median"]
    return found


@pytest.mark.vm_bench
def test_two_guests_count_the_same() -> None:
    once, again = (bench("l2fwd", "--kernel", "6.12", "--repeat", "2") for _ in range(2))
    for found in (once, again):
        assert found["guests"]["6.12"]["counted"] is True
        assert found["guests"]["6.12"]["machine"]["kernel"]["release"].startswith("6.12.")
    (first,), (second,) = once["cases"], again["cases"]
    assert (first["case"]["kernel"], first["case"]["nic"]) == ("6.12", "")
    assert "tx_pps" not in first["summary"]
    for metric in ("instructions_per_packet", "guest_instructions_per_packet"):
        assert median(second, metric) == pytest.approx(median(first, metric), rel=NEAR)
    assert 0 < median(first, "instructions_per_packet") < median(first, "guest_instructions_per_packet")
    assert median(first, "copied_bytes_per_packet") == 120  # 60 into the frame, and 60 out of it


@pytest.mark.vm
def test_ports_of_zero_copy_on_a_guest_s_nics() -> None:
    found = bench("forward", "--kernel", "7.3", "--nic", "virtio-net", "--mode", "zero-copy,skb", "--repeat", "2")
    zero_copy, generic = found["cases"]
    assert zero_copy["mode_in_use"]["zero_copy"] is True
    assert [one["driver"] for one in zero_copy["interfaces"]] == ["virtio_net"] * 2
    assert median(zero_copy, "copied_bytes_per_packet") == 0
    assert median(generic, "copied_bytes_per_packet") >= 120
    for case in (zero_copy, generic):
        assert "instructions_per_packet" not in case["summary"]  # a NIC's interrupts come where they come
        for run in case["runs"]:
            assert run["counts"]["received"] >= run["counts"]["sent"] > 0
            assert run["far"]["received"] >= run["counts"]["sent"]
    less = median(zero_copy, "guest_instructions_per_packet") / median(generic, "guest_instructions_per_packet")
    assert less < 0.9
