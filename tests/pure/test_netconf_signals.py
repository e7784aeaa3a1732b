"""Signals that end a process become exceptions, and whoever handled them before handles them again."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from xskit.netconf import signals
from xskit.netconf.signals import Terminated, terminated_by_exception

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_before():
    """The handlers that were there must be there again."""
    before = [signal.getsignal(number) for number in ALL]
    hook = sys.unraisablehook  # stays with a process that a signal ends
    yield
    sys.unraisablehook = hook
    after = [signal.getsignal(number) for number in ALL]
    for number, handler in zip(ALL, before, strict=True):
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, Terminated, 143), (signal.SIGHUP, Terminated, 129)],
)
def test_a_signal_is_an_exception(number, kind, code):
    with pytest.raises(kind) as caught, terminated_by_exception() as asked:
        signal.raise_signal(number)
    assert getattr(caught.value, "code", None) == code
    with pytest.raises(kind):
        asked.check()


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminated_by_exception():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_that_python_does_not_know_is_left_alone(monkeypatch):
    known = signal.getsignal
    monkeypatch.setattr(signals.signal, "getsignal", lambda n: None if n == signal.SIGHUP else known(n))
    with terminated_by_exception() as asked:
        assert known(signal.SIGTERM) is asked
        assert known(signal.SIGHUP) is not asked


def test_a_signal_that_comes_while_handlers_are_set(monkeypatch):
    real = signal.signal

    def interrupted(number, handler):
        real(number, handler)
        if number == signal.SIGTERM and isinstance(handler, signals.Asked):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(signals.signal, "signal", interrupted)
    with pytest.raises(Terminated), terminated_by_exception():
        pytest.fail("it was not raised")


def test_other_threads_handle_no_signals():
    seen = []

    def run():
        with terminated_by_exception() as asked:
            seen.append((asked, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    ((asked, handler),) = seen
    assert handler is not asked
