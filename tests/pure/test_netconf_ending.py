"""A script that a signal ends puts the host back first, and still dies by the signal; each script is a forked child."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pure.support_journal import (
    MACHINE,
    Camera,
    Poke,
    journal_folder,  # noqa: F401  a fixture
    journals,
)
from xskit.netconf import ending
from xskit.netconf.journal import Journal
from xskit.netconf.signals import DEADLY

SOME = [
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGRTMIN + 1,
]
"""None that might write a core file."""

BEFORE = {"old": 1}


def send(number: int) -> None:
    """As somebody else would."""
    os.kill(os.getpid(), number)


def ends(folder: Path, script: Callable[[], object]) -> tuple[int, dict[str, int]]:
    """How a process ends that runs `script`: its exit code, minus the signal; and the machine that it leaves."""
    state = folder.with_name("state")

    def record() -> None:
        state.write_text(json.dumps(MACHINE))

    record()
    if (child := os.fork()) == 0:
        code = 99
        try:
            for number in DEADLY:
                signal.signal(number, signal.SIG_DFL)
            faulthandler.disable()
            Camera.look = staticmethod(record)
            script()
            code = 0
        except SystemExit as error:
            code = error.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(state.read_text())


def changed() -> Journal:
    """A journal with two changes."""
    journal = Journal.open()
    journal.apply(Poke("old", 2))
    journal.apply(Poke("new", 3))
    return journal


@pytest.mark.parametrize("number", SOME, ids=str)
def test_all_is_put_back_and_the_signal_ends_the_process(folder: Path, number: int) -> None:
    def script() -> None:
        changed(), changed()
        send(number)
        time.sleep(60)

    assert ends(folder, script) == (-number, BEFORE)
    assert journals(folder) == []


def in_another_thread() -> None:
    changed()
    sender = threading.Thread(target=send, args=(signal.SIGTERM,))
    sender.start()
    sender.join()
    threading.Event().wait()


def while_the_machine_is_changed() -> None:
    record = Camera.look

    def look() -> None:
        record()
        send(signal.SIGTERM)

    Camera.look = look
    changed()


def while_the_machine_is_put_back() -> None:
    journal = changed()
    changed()
    record = Camera.look

    def look() -> None:
        record()
        send(signal.SIGTERM)

    Camera.look = look
    journal.close()


def again_and_again() -> None:
    changed(), changed()
    record = Camera.look

    def look() -> None:
        record()
        send(signal.SIGHUP)
        send(signal.SIGINT)

    Camera.look = look
    signal.signal(signal.SIGINT, signal.default_int_handler)
    send(signal.SIGTERM)


def with_the_signal_blocked_here() -> None:
    changed()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    blocks = threading.Barrier(2)

    def take() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        blocks.wait()
        time.sleep(60)

    threading.Thread(target=take, daemon=True).start()
    blocks.wait()
    send(signal.SIGTERM)
    while True:
        time.sleep(0.01)  # a signal that another thread takes does not wake this one


def after_asyncio_gave_its_handler_back() -> None:
    async def borrow() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, loop.stop)
        loop.remove_signal_handler(signal.SIGTERM)

    journal = changed()
    asyncio.run(borrow())
    journal.apply(Poke("more", 4))
    send(signal.SIGTERM)
    time.sleep(60)


@pytest.mark.parametrize(
    "script",
    [
        in_another_thread,
        while_the_machine_is_changed,
        while_the_machine_is_put_back,
        again_and_again,
        with_the_signal_blocked_here,
        after_asyncio_gave_its_handler_back,
    ],
)
def test_whenever_it_comes(folder: Path, script: Callable[[], object]) -> None:
    assert ends(folder, script) == (-signal.SIGTERM, BEFORE)
    assert journals(folder) == []


def test_a_thread_that_changes_more_meanwhile_waits_for_the_end(folder: Path) -> None:
    def script() -> None:
        record, journal = Camera.look, changed()
        late = threading.Thread(target=lambda: (Journal.open().apply(Poke("late", 5)), journal.apply(Poke("x", 6))))

        def look() -> None:
            record()
            if not late.is_alive():
                late.start()
            time.sleep(0.05)

        Camera.look = look
        send(signal.SIGTERM)

    assert ends(folder, script) == (-signal.SIGTERM, BEFORE)
    assert journals(folder) == []


# --- whose the handlers are -------------------------------------------------------------------------------------


def test_the_users_handlers_stay(folder: Path) -> None:
    def script() -> None:
        seen: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
        with changed():
            signal.signal(signal.SIGHUP, lambda number, frame: seen.append(number))
            send(signal.SIGTERM), send(signal.SIGHUP)
        send(signal.SIGTERM), send(signal.SIGHUP)
        assert seen == [signal.SIGTERM, signal.SIGHUP] * 2

    assert ends(folder, script) == (0, BEFORE)


def test_the_users_handler_may_end_the_script_its_own_way(folder: Path) -> None:
    def script() -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        with changed():
            send(signal.SIGTERM)

    assert ends(folder, script) == (7, BEFORE)
    assert journals(folder) == []


def test_what_is_ignored_stays_ignored(folder: Path) -> None:
    def script() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with changed():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send(signal.SIGHUP), send(signal.SIGTERM)
        send(signal.SIGHUP), send(signal.SIGTERM)

    assert ends(folder, script) == (0, BEFORE)


def test_handlers_in_c_stay(folder: Path) -> None:
    def script() -> None:
        with open(os.devnull, "w") as nowhere:
            faulthandler.register(signal.SIGUSR1, file=nowhere)
            with changed():
                faulthandler.register(signal.SIGUSR2, file=nowhere)
                send(signal.SIGUSR1), send(signal.SIGUSR2)
            send(signal.SIGUSR1), send(signal.SIGUSR2)

    assert ends(folder, script) == (0, BEFORE)


def test_defaults_are_there_again_when_nothing_is_changed_any_more(folder: Path) -> None:
    def handlers() -> list[object]:
        return [ending._c_handler(number) for number in sorted(DEADLY)]

    def script() -> None:
        before = handlers()
        with changed(), changed():
            assert None not in handlers()
        assert handlers() == before == [None] * len(DEADLY)
        send(signal.SIGTERM)

    assert ends(folder, script) == (-signal.SIGTERM, BEFORE)


def test_a_handler_that_was_put_aside_and_comes_back_too_late_ends_the_process(folder: Path) -> None:
    def script() -> None:
        with changed():
            aside = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, aside)
        send(signal.SIGTERM)

    assert ends(folder, script) == (-signal.SIGTERM, BEFORE)


def test_process_1_ignores_what_it_has_no_handler_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_INIT", os.getpid())
    with changed():
        assert not [number for number in DEADLY if signal.getsignal(number) is ending._ending]


# --- children and threads ---------------------------------------------------------------------------------------


def test_threads_can_know_that_the_process_ends(folder: Path) -> None:
    def script() -> None:
        record = Camera.look

        def look() -> None:
            record()
            if not ending.is_begun():
                os._exit(98)

        changed()
        assert not ending.is_begun()
        Camera.look = staticmethod(look)
        send(signal.SIGTERM)
        time.sleep(60)

    assert ends(folder, script) == (-signal.SIGTERM, BEFORE)


def test_a_forked_child_dies_alone(folder: Path) -> None:
    def script() -> None:
        with changed():
            child = os.fork()
            if child == 0:
                send(signal.SIGTERM)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
            assert MACHINE == {"old": 2, "new": 3}
            assert len(journals(folder)) == 1

    assert ends(folder, script) == (0, BEFORE)


def test_other_threads_set_no_handlers(folder: Path) -> None:
    def script() -> None:
        journal: list[Journal] = []
        thread = threading.Thread(target=lambda: journal.append(changed()))
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        journal[0].apply(Poke("more", 4))  # by the main thread
        send(signal.SIGTERM)
        time.sleep(60)

    assert ends(folder, script) == (-signal.SIGTERM, BEFORE)
