"""What a kernel refuses to send, counted on those that do not say at once what they have taken: a test of this machine,
run in a guest."""

from __future__ import annotations

from tests.real import test_engine_faults as faults


def check_refused_packets() -> None:
    """Each of them is counted, once, and none as sent."""
    faults.test_packets_to_a_host_whose_end_is_down_are_refused_by_the_kernel()


CHECKS = (check_refused_packets,)
