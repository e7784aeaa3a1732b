"""What is told where a guest cannot be had: no room, no such cache, too much memory, a QEMU that aborts."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xskit.cli.main import _run
from xskit.errors import UsageError
from xskit.netconf.pids import start_time
from xskit.vm import accel, apt, initramfs, kernels, places, session, taps
from xskit.vm import qemu as qemus
from xskit.vm.accel import Accelerator
from xskit.vm.devices import model
from xskit.vm.errors import FetchError, GuestError, QemuAbortedError, TimeLimitError
from xskit.vm.guest import Guest, Sink
from xskit.vm.hardware import GuestHardware
from xskit.vm.qemu import Qemu
from xskit.vm.session import Request, run_guest

ABORTS = "import os; os.write(2, b'Assertion failed'); os.abort()"
EXITS = "import os, sys; os.write(2, b'warning: hub 0 is not connected to host network'); sys.exit(1)"
KILLED = "import os; os.kill(os.getpid(), 9)"
HANGS = "import time; time.sleep(60)"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XSKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _run_with(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, kvm: bool, console: Sink | None = None
) -> list[str]:
    """Run a guest on a QEMU that is a Python program, and return what was told."""
    told: list[str] = []
    kernel = kernels.Kernel("k", "k", tmp_path, None, "")
    monkeypatch.setattr(kernels, "ready", lambda *_: kernel)
    monkeypatch.setattr(qemus, "qemu", lambda *_: Qemu((sys.executable, "-c", program), (10, 0)))
    monkeypatch.setattr(qemus, "busybox", lambda *_: tmp_path)
    monkeypatch.setattr(initramfs, "build", lambda *_: tmp_path)
    monkeypatch.setattr(accel, "choose", lambda *_: Accelerator(kvm, "of the test"))
    request = Request("k", ["true"], out=tmp_path / "out", data_plane=False)
    try:
        run_guest(request, stdout=_nowhere, stderr=_nowhere, say=told.append, console=console)
    except GuestError as error:
        told.append(f"{type(error).__name__}: {error.cause}")
    assert os.listdir(places.vm_folder("runs")) == []
    return told[1:]


def _nowhere(content: bytes) -> None:
    pass


def test_a_qemu_that_aborts_while_a_guest_boots_is_started_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    again, last = _run_with(ABORTS, monkeypatch, tmp_path, kvm=False)
    assert again.endswith("once more")
    assert last.startswith(f"{QemuAbortedError.__name__}: the guest has died")
    assert "Assertion failed" in last


def test_a_qemu_that_refuses_or_aborts_under_kvm_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (last,) = _run_with(EXITS, monkeypatch, tmp_path, kvm=False)
    assert last == "GuestError: the guest has died, without a word"
    (last,) = _run_with(KILLED, monkeypatch, tmp_path, kvm=False)
    assert last == "GuestError: the guest has died: QEMU was ended by SIGKILL, without a word"
    (last,) = _run_with(ABORTS, monkeypatch, tmp_path, kvm=True)
    assert last.startswith("QemuAbortedError: the guest has died")


@pytest.mark.parametrize("kvm", [False, True])
@pytest.mark.parametrize("program", [HANGS, EXITS])
def test_who_sees_no_guest_come_up_is_told_how_to_see_how_far_it_comes(
    program: str, kvm: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = kernels.Kernel("patched", "6.99", tmp_path, None, "")
    qemu = Qemu((sys.executable, "-c", program), (10, 0))
    with (
        Guest(qemu, kernel, tmp_path, GuestHardware(model=model("igb")), out=tmp_path, kvm=kvm) as guest,
        pytest.raises(GuestError) as told,
    ):
        guest.wait_ready(60.0 if program == EXITS else 0.1)
    said = "has died" if program == EXITS else "did not come up within"
    assert said in told.value.cause
    accelerator = ["--accel", "tcg"] if kvm else []
    words = shlex.split(str(told.value.remedy))
    assert words == [
        "xskit",
        "vm",
        "run",
        "--console",
        *accelerator,
        "--kernel",
        "patched",
        "--nic",
        "igb",
        "--",
        "true",
    ]
    _run([*words[1:-2], "--help"])
    assert "Run COMMAND as root in a throw-away guest" in capfd.readouterr().out


def test_a_console_that_is_looked_at_has_something_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tells = "import sys; sys.stderr.write(' '.join(sys.argv)); sys.exit(1)"
    quiet, talkative = (_run_with(tells, monkeypatch, tmp_path, kvm=False, console=it)[-1] for it in (None, _nowhere))
    assert "quiet" in quiet
    assert "loglevel=7" not in quiet
    assert talkative.index("loglevel=7") > talkative.index("quiet"), "the last one holds"


def test_a_time_limit_is_told_with_a_longer_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def late(*_: object, **__: object) -> None:
        raise TimeLimitError("the time limit of 1800 s is over")

    monkeypatch.setattr(session, "run_guest", late)
    assert _run(["vm", "run", "--time-limit", "30min", "--", "true"]) == 124
    assert capfd.readouterr().err.endswith("try: --time-limit 1h\n")


def test_what_compiles_for_a_guest_ends_with_xskit_however_it_ends(cache: Path) -> None:
    script = (
        "import os, signal\nfrom xskit.vm.compiled import Preparation\n"
        "with Preparation() as made:\n"
        "    print(made._process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    pid = int(done.stdout)
    for _ in range(100):  # it is killed at once, and then has to go
        if start_time(pid) is None:
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("it went on")


@pytest.mark.parametrize(("number", "remedy"), [(errno.EPERM, "--queues 1"), (errno.ENOENT, "ls -l /dev/net/tun")])
def test_who_may_make_no_taps_is_told_what_else_there_is(
    number: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(flags: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(taps, "unshare", refuse)
    with pytest.raises(GuestError, match="no tap can be made") as told, taps.taps(2, 2):
        pass
    assert remedy in str(told.value.remedy)


def test_apt_is_not_begun_where_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    apt._require_room(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=5 << 20))
    with pytest.raises(FetchError, match="has room for 5 MiB"):
        apt._require_room(tmp_path)


def test_a_cache_that_cannot_be_made_is_told(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache.write_text("a file")
    assert _run(["vm", "kernels", "list"]) == 2
    assert "cannot be made: Not a directory" in capfd.readouterr().err


def test_more_memory_than_the_machine_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ready", lambda *_: pytest.fail("fetched"))
    request = Request("k", ["true"], hardware=GuestHardware(memory_bytes=1 << 46))
    with pytest.raises(UsageError, match="a guest cannot have"):
        session.run_guest(request, stdout=_nowhere, stderr=_nowhere)


def test_a_folder_that_was_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert _run(["vm", "run", "--", "true"]) == 2
    assert "has been removed" in capfd.readouterr().err


def test_of_what_apt_says_the_reason_is_told_and_not_the_address() -> None:
    said = "Err:1 http://deb.example x InRelease\n  Could not connect to deb.example:80 (refused)\nE: Failed to fetch\n"
    assert apt.explain_apt(said).cause.endswith("reached: Could not connect to deb.example:80 (refused)")
    said = "W: Some index files failed to download.\nE: Unable to locate package linux-image-9\n"
    assert apt.explain_apt(said).cause == "apt failed: E: Unable to locate package linux-image-9"


def test_what_a_fetch_that_was_broken_off_has_left_is_not_taken_for_what_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(apt, "_KEYRING", tmp_path)
    fetcher = apt.Apt("kernels", [], lambda line: None)
    archives = places.vm_folder("apt") / "kernels" / "archives"

    def download(argv: list[str], cwd: Path | None = None) -> str:
        for name in argv[argv.index("-q") + 1 :]:
            (archives / f"{name}_1_amd64.deb").touch()  # apt leaves what is there already as it is
        return ""

    monkeypatch.setattr(fetcher, "_execute", download)
    for left in ("binary", "other"):
        (archives / f"{left}_1_amd64.deb").touch()
    files = fetcher.download(["binary", "modules"])
    assert [file.name for file in files] == ["binary_1_amd64.deb", "modules_1_amd64.deb"]


def test_of_two_that_build_the_same_archive_one_is_first_and_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernels.Kernel("k", "k", tmp_path, None, "")
    kernel.folder.mkdir(parents=True)
    (tmp_path / "busybox").write_bytes(b"b")
    used, stale = kernel.folder / "boot-used", kernel.folder / "boot-stale"
    for folder in (used, stale):
        folder.mkdir()
    os.utime(stale, (0, 0))
    write, archives = initramfs._write, []

    def second_meanwhile(*arguments: object) -> None:
        monkeypatch.setattr(initramfs, "_write", write)
        archives.append(initramfs.build(kernel, tmp_path / "busybox"))
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(initramfs, "_write", second_meanwhile)
    archives.append(initramfs.build(kernel, tmp_path / "busybox"))
    first, second = archives
    assert first == second
    assert first.is_file()
    os.utime(first.parent, (0, 0))  # as if made long ago: who uses it says so, so that nobody sweeps it
    assert initramfs.build(kernel, tmp_path / "busybox") == first
    assert time.time() - first.parent.stat().st_mtime < 3600
    assert sorted(kernel.folder.iterdir()) == sorted([used, first.parent])
