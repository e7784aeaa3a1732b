"""However a command ends, nothing of it is left: signals, SIGKILL, exceptions, Ctrl-C on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.e2e.rig import PATIENCE_SECONDS, XSKIT, Outer, wait_until

pytestmark = [pytest.mark.root, pytest.mark.e2e]

TELLS_OF_SIGNALS = """
import os, select, signal, sys
came, comes = os.pipe()
os.set_blocking(comes, False)
signal.set_wakeup_fd(comes)
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: None)
print(os.getpid(), flush=True)
while True:
    ready, _, _ = select.select([0, came], [], [])
    for number in os.read(came, 64) if came in ready else b"":
        print(signal.Signals(number).name, flush=True)
        if number == signal.SIGTERM:
            sys.exit(0)
    if 0 in ready and not os.read(0, 64):
        sys.exit(5)
"""
"""Prints its pid, then every signal, none of which is missed or cuts a line; ends with its input, or by SIGTERM."""

SHOWS_THE_REPORT = "asked against achieved"


def start(machine: Outer, *command: str) -> tuple[subprocess.Popen[str], int]:
    """Start `xskit run` with a command that prints its pid first."""
    process = machine.start(XSKIT, "run", "--owd", "1ms", "--", *command, stdin=subprocess.PIPE)
    return process, int(machine.first_line(process))


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_interrupts_to_xskit_alone_are_the_commands(machine: Outer, number):
    process, pid = start(machine, sys.executable, "-c", TELLS_OF_SIGNALS)
    process.send_signal(number)
    assert machine.first_line(process) == f"{number.name}\n"
    assert running(pid)
    out, err = process.communicate("", timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (5, "")
    assert err.startswith(SHOWS_THE_REPORT)
    machine.nothing_left(process.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_end_ends_the_command_too(machine: Outer, number):
    process, pid = start(machine, sys.executable, "-c", TELLS_OF_SIGNALS)
    process.send_signal(number)
    out, err = machine.output(process)
    assert (process.returncode, out) == (128 + number, "SIGTERM\n")
    assert SHOWS_THE_REPORT in err
    assert not running(pid)
    machine.nothing_left(process.pid)


def test_a_hangup_that_is_ignored_ends_nothing(machine: Outer):
    process = machine.start("nohup", XSKIT, "run", "--", sys.executable, "-c", TELLS_OF_SIGNALS, stdin=subprocess.PIPE)
    pid = int(machine.first_line(process))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    assert machine.first_line(process) == "SIGINT\n"
    assert running(pid)
    process.communicate("", timeout=PATIENCE_SECONDS)
    assert process.returncode == 5


def test_what_the_command_started_ends_with_it(machine: Outer):
    process, pid = start(machine, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    _, err = process.communicate("", timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert SHOWS_THE_REPORT in err
    assert not running(pid)


def test_ctrl_c_on_a_terminal_reaches_the_command_once(machine: Outer):
    terminal, inner = pty.openpty()
    try:
        process = machine.start(
            XSKIT, "run", "--", sys.executable, "-c", TELLS_OF_SIGNALS.replace("os.getpid()", "'ready'"),
            stdin=inner, stdout=inner, stderr=inner, start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(inner)
        screen = _read_until(terminal, b"ready\r\n")  # before it there may be the spinner of the first run
        os.write(terminal, b"\x03")
        screen += _read_until(terminal, b"SIGINT\r\n")
        os.write(terminal, b"\x04")  # end of input
        screen += _read_until(terminal, None)
        assert process.wait(PATIENCE_SECONDS) == 5, screen.decode()
    finally:
        os.close(terminal)
    assert screen.count(b"SIGINT") == 1
    assert SHOWS_THE_REPORT.encode() in screen
    machine.nothing_left(process.pid)


def _take_terminal() -> None:
    """The terminal on stdin becomes the controlling one, and this process group its foreground."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(terminal: int, wanted: bytes | None) -> bytes:
    """What comes from a terminal, up to `wanted` or to its end."""
    data = b""
    while wanted is None or wanted not in data:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # EIO: nobody has the other end any more
            break
        if not piece:
            break
        data += piece
    return data


def test_after_sigkill_restore_puts_everything_back(machine: Outer):
    process, pid = start(machine, sys.executable, "-c", TELLS_OF_SIGNALS)
    process.kill()
    process.wait()
    left = machine.left(process.pid)
    assert {name for name in left if name.startswith("xkpeer")} == {"xkpeer1"}
    assert sum(name.startswith("/run/netns/") for name in left) == 2
    restored = machine.run(XSKIT, "restore")
    assert restored.code == 0
    lines = restored.out.splitlines()
    tag = f"xk{process.pid:x}x"
    for start_of_line in (
        f"process {sys.executable} in {tag}",
        f"network namespace {tag}",
        "veth pair xkpeer1 and xk1b in ",
    ):
        matching = [line for line in lines if line.startswith(start_of_line)]
        assert matching, lines
        assert all(line.endswith(": put back") for line in matching), lines
    assert not running(pid)
    machine.nothing_left(process.pid)
    assert tag not in machine.run(XSKIT, "restore").out


def test_after_sigkill_the_next_start_puts_everything_back(machine: Outer):
    process, pid = start(machine, sys.executable, "-c", TELLS_OF_SIGNALS)
    process.kill()
    process.wait()
    assert machine.left(process.pid)
    assert machine.xskit("run", "--", "grep", "-w", "peer", "/etc/hosts").out.startswith("198.18.1.2\tpeer\n")
    assert not running(pid)
    machine.nothing_left(process.pid)


def test_what_a_running_xskit_has_is_not_touched(machine: Outer):
    process, pid = start(machine, sys.executable, "-c", TELLS_OF_SIGNALS)
    assert f"xk{process.pid:x}x" not in machine.run(XSKIT, "restore").out
    assert running(pid)
    process.communicate("", timeout=PATIENCE_SECONDS)
    assert process.returncode == 5
    machine.nothing_left(process.pid)


def test_a_lab_that_is_never_closed_leaves_nothing(machine: Outer):
    code = "import xskit; lab = xskit.Lab(); link = lab.link(lab.host('a'), lab.machine(), owd='1ms'); exit(3)"
    result = machine.run(sys.executable, "-c", code)
    assert (result.code, result.err) == (3, "")
    machine.nothing_left(result.pid)


def test_an_exception_in_user_code_leaves_nothing(machine: Outer):
    code = (
        "import xskit\n"
        "with xskit.Lab() as lab:\n"
        "    link = lab.link(lab.host('a'), lab.machine(), owd='1ms')\n"
        "    lab.hosts['a'].spawn('sleep', '600')\n"
        "    raise ZeroDivisionError('mine')\n"
    )
    result = machine.run(sys.executable, "-c", code)
    assert result.code == 1
    assert result.err.endswith("ZeroDivisionError: mine\n")
    machine.nothing_left(result.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_a_script_leaves_nothing(machine: Outer, number):
    code = (
        "import os, sys, xskit\n"
        "lab = xskit.Lab()\n"
        "link = lab.link(lab.host('a'), lab.machine(), owd='1ms')\n"
        "print(lab.hosts['a'].spawn('sleep', '600').pid, flush=True)\n"
        "os.kill(os.getpid(), int(sys.argv[1]))\n"
    )
    result = machine.run(sys.executable, "-c", code, str(number))
    assert (result.code, result.err) == (-number, "")
    assert not running(int(result.out))
    machine.nothing_left(result.pid)


def test_an_interrupt_while_everything_is_made_leaves_nothing(machine: Outer):
    process = machine.start(XSKIT, "run", "--", "sleep", "600", start_new_session=True)
    wait_until(lambda: machine.left(process.pid), "the first change was made")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in err
    machine.nothing_left(process.pid)


def test_a_peer_interface_that_is_deleted_makes_the_run_invalid(machine: Outer):
    process, _ = start(machine, sys.executable, "-c", TELLS_OF_SIGNALS)
    machine.run("ip", "link", "delete", "xkpeer1")
    wait_until(lambda: "xkpeer1" not in machine.interfaces(), "the interface is gone")
    _, err = process.communicate("", timeout=PATIENCE_SECONDS)
    assert process.returncode == 5
    assert f"INVALID: port xk{process.pid:x}x1-lab/xk1b was deleted while the link was running" in " ".join(err.split())
    machine.nothing_left(process.pid)
