"""`xskit demo`: what it needs; and however it is ended, nothing of it is left."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.rig import PATIENCE_SECONDS, XSKIT, Outer, wait_until

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def test_no_privilege(machine: Outer):
    result = machine.xskit_without_privileges("demo")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "xskit: a lab of network namespaces needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF\n"
        f"try: sudo {XSKIT} demo\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_leaves_nothing(machine: Outer, number):
    process = machine.start(XSKIT, "demo", start_new_session=True)
    wait_until(lambda: machine.left(process.pid), "the first change was made")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode in (128 + number, -number)  # the latter is Python's own where exec() was interrupted
    assert out == ""
    assert "Traceback" not in err
    machine.nothing_left(process.pid)
