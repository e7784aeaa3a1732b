"""The thread for compiled loops: its memory may be given back when it has ended, so its end must be certain."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest

from xskit.engine.loop_thread import POLLIN, POLLOUT, LoopThread, fill_pollfds, pin
from xskit.errors import KernelError
from xskit.memory import Region


def test_its_life():
    go, seen = threading.Event(), []
    made = LoopThread("xk-test", lambda: seen.append(go.wait()))
    assert (made.started, made.running, made.ended, made.native_id) == (False, False, False, None)
    made.wait()  # nothing to wait for
    made.start()
    assert (made.started, made.running, made.ended) == (True, True, False)
    assert made.native_id in map(int, os.listdir("/proc/self/task"))
    assert not made.join(0)
    go.set()
    made.wait()
    assert made.join(0)
    assert (made.started, made.running, made.ended, seen) == (True, False, True, [True])


def test_what_it_raises_is_raised_once():
    def fail() -> None:
        raise ValueError("no")

    made = LoopThread("xk-test", fail)
    made.start()
    made.wait()
    with pytest.raises(ValueError, match="no"):
        made.raise_failure()
    made.raise_failure()


class InterruptedEvent(threading.Event):
    """Ctrl-C comes while it is waited for, twice; then what is waited for is let happen."""

    def __init__(self, then: threading.Event) -> None:
        super().__init__()
        self.waits, self._then = 0, then

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self.waits <= 2:
            raise KeyboardInterrupt(self.waits)
        self._then.set()
        return super().wait(timeout)


def test_an_interrupt_while_waiting_comes_after_the_end():
    go = threading.Event()
    made = LoopThread("xk-test", lambda: bool(go.wait()))
    ended = made._ended = InterruptedEvent(go)
    made.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        made.wait()
    assert caught.value.args == (1,)
    assert (made.ended, made.running, ended.waits) == (True, False, 3)


def test_a_forked_child_has_no_such_thread():
    go = threading.Event()
    made = LoopThread("xk-test", lambda: bool(go.wait()))
    made.start()
    child = os.fork()
    if child == 0:
        made.wait()  # returns at once
        os._exit(made.running)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    made.wait()


@pytest.mark.parametrize("cpu", [99_999, -1, 1 << 70])
def test_a_cpu_that_cannot_be(cpu):
    before = os.sched_getaffinity(0)
    with pytest.raises(KernelError, match=f"a worker cannot run on CPU {cpu}: ") as caught:
        pin(cpu)
    assert caught.value.remedy == "lscpu --online --extended"
    pin(None)
    assert os.sched_getaffinity(0) == before


def test_the_table_for_poll_is_as_c_lays_it_out():
    class Pollfd(ctypes.Structure):
        _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]

    with Region(64) as region:
        region.array(64, np.uint8)[:] = 0xFF
        fill_pollfds(region.address, [7, 9], [POLLIN, POLLOUT])
        table = (Pollfd * 2).from_address(region.address)
        assert [(one.fd, one.events) for one in table] == [(7, 1), (9, 4)]
