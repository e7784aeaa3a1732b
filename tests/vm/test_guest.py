"""Guests from outside: exit code, both streams, files that come back, NICs told what to do, and every way to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from xskit.vm import places
from xskit.vm.session import GuestResult, Request, run_guest

pytestmark = pytest.mark.vm

KERNELS = ("6.1", "7.3")
XSKIT = [sys.executable, "-m", "xskit"]

SCRIPT = """
import os, pathlib, sys
print(os.getcwd(), os.environ["CHOSEN"], os.geteuid(), sorted(os.listdir("/sys/class/net")), flush=True)
print("to stderr", file=sys.stderr)
pathlib.Path(os.environ["XSKIT_OUT"], "deep").mkdir()
pathlib.Path(os.environ["XSKIT_OUT"], "deep", "file").write_bytes(bytes(range(256)) * 1000)
pathlib.Path("scribble").write_text("not to be seen")
sys.stdout.buffer.write(bytes(range(256)))
sys.exit(7)
"""


def _guests(*pids: int) -> list[str]:
    """The guests of these processes: QEMU is told the folder for results, which has the pid in its name."""
    marks = [f"{places.vm_folder('runs')}/{pid}-" for pid in pids]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if "qemu-system-x86_64" in words.split("\0")[0] and any(mark in words for mark in marks):
                    found.append(entry.name)
    return found


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    assert not _guests(os.getpid())
    assert not list(places.vm_folder("runs").glob(f"{os.getpid()}-*"))


@contextmanager
def _started(argv: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running process; killed where the test fails before it has ended, or `with` would wait for it for ever."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


class Heard:
    """What a guest said."""

    def __init__(self) -> None:
        self.out, self.err, self.told = b"", b"", list[str]()

    def run(self, request: Request) -> GuestResult:
        def out(content: bytes) -> None:
            self.out += content

        def err(content: bytes) -> None:
            self.err += content

        return run_guest(request, stdout=out, stderr=err, say=self.told.append)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_command_runs_on_the_kernel_asked_for_and_leaves_only_what_it_was_to_leave(
    kernel: str, tmp_path: Path
) -> None:
    ip_version = subprocess.run(["ip", "-V"], capture_output=True, check=True).stdout
    heard, out = Heard(), tmp_path / "results"
    argv = ["sh", "-c", 'ip -V; exec "$@"', "sh", sys.executable, "-c", SCRIPT]
    request = Request(kernel, argv, out=out, cwd=tmp_path, environment={"CHOSEN": "it's"}, data_plane=False)
    result = heard.run(request)
    assert result.outcome.exit_code == 7
    assert result.outcome.release.startswith(f"{kernel}.")
    version, first, rest = heard.out.split(b"\n", 2)
    assert version + b"\n" == ip_version, "busybox has an ip too, and it is not to be the one that runs"
    assert first.decode() == f"{tmp_path} it's 0 ['eth0', 'eth1', 'lo']"
    assert rest == bytes(range(256))
    assert heard.err == b"to stderr\n"
    assert result.files == (out / "deep" / "file",)
    assert (out / "deep" / "file").read_bytes() == bytes(range(256)) * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]
    assert any(f"Linux {result.outcome.release} on {result.accelerator.name}" in line for line in heard.told)


NIC_SCRIPT = """
set -e
carrier() { cat /sys/class/net/eth1/carrier; }
until_is() {
  for _ in $(seq 100); do
    if [ "$(carrier 2>/dev/null || echo gone)" = "$1" ]; then return; fi
    sleep 0.1
  done
  exit 9
}
until_is 1; xskit-vm nic down 1; until_is 0; xskit-vm nic up 1; until_is 1
xskit-vm nic unplug 1; [ ! -e /sys/class/net/eth1 ]; echo unplugged
xskit-vm nic unplug 1 || echo refused
xskit-vm nic plug 1; for _ in $(seq 100); do [ -e /sys/class/net/eth1 ] && break; sleep 0.1; done; ip link set eth1 up
until_is 1; echo back
xskit-vm nic unplug 2 || echo no such NIC
xskit-vm halt || echo not understood
(sleep 1000 & )
kill -TERM $$
"""


def test_a_command_has_its_nics_unplugged_plugged_and_their_carrier_taken(tmp_path: Path) -> None:
    heard = Heard()
    result = heard.run(Request("6.12", ["sh", "-c", NIC_SCRIPT], out=tmp_path / "out", data_plane=False))
    assert heard.out.decode().split("\n") == ["unplugged", "refused", "back", "no such NIC", "not understood", ""]
    assert "Device 'nic1' not found" in heard.err.decode()
    assert "N from 0 to 1" in heard.err.decode()
    assert result.outcome.exit_code == 128 + signal.SIGTERM
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_guest_ends_with_the_xskit_that_runs_it(number: signal.Signals, tmp_path: Path) -> None:
    argv = [*XSKIT, "vm", "run", "--kernel", "6.1", "--no-data-plane", "--", "sh", "-c", "echo first; exec sleep 1000"]
    with _started(argv, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"  # streamed: the command goes on
        assert len(_guests(process.pid)) == 1
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    for _ in range(100):  # the kernel kills it with xskit, and then takes its memory apart
        if number != signal.SIGKILL or not _guests(process.pid):
            break
        time.sleep(0.1)
    assert not _guests(process.pid)
    places.sweep_runs()
    assert not list(places.vm_folder("runs").glob(f"{process.pid}-*"))


def test_the_time_limit_ends_a_guest_and_what_it_has_left_comes_back(tmp_path: Path) -> None:
    argv = [*XSKIT, "vm", "run", "--kernel", "6.1", "--no-data-plane", "--time-limit", "8s", "--"]
    command = ["sh", "-c", "echo half >$XSKIT_OUT/half; sleep 1000"]
    done = subprocess.run([*argv, *command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 124
    assert "the time limit of 8 s is over" in done.stderr
    assert (tmp_path / "vm-out" / "half").read_text() == "half\n"
