"""The cache of kernels, the monitor, the choice of accelerator, and what the command says to mistakes."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xskit.cli.main import _run
from xskit.errors import UsageError
from xskit.netconf.signals import Terminated
from xskit.vm import accel, initramfs, kernels, places, qemu
from xskit.vm.errors import FetchError, GuestError
from xskit.vm.qemu import Qemu
from xskit.vm.qmp import QmpClient

RELEASE = b"6.99.0-mine (me@here) #1 SMP"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XSKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The parts of an x86 boot header that are read (Documentation/arch/x86/boot.rst)."""
    content = bytearray(0x800)
    content[0x202:0x206] = b"HdrS"
    content[0x20E:0x210] = (0x400).to_bytes(2, "little")
    content[0x600 : 0x600 + len(RELEASE)] = RELEASE
    path = tmp_path / "bzImage"
    path.write_bytes(content)
    return path


def test_a_kernel_of_ones_own_is_copied_and_found_by_name(image: Path, tmp_path: Path) -> None:
    modules = tmp_path / "lib"
    modules.mkdir()
    (modules / "veth.ko").write_bytes(b"m")
    (modules / "build").symlink_to("/nowhere")
    added = kernels.add(image, modules, "patched")
    image.unlink()
    assert (added.version, added.release) == ("patched", "6.99.0-mine")
    assert added.modules is not None
    assert [path.name for path in added.modules.iterdir()] == ["veth.ko"]
    assert kernels.find("patched") == kernels.find("6.99.0-mine") == added
    assert kernels.cached() == [added]
    assert kernels.ready("patched", lambda line: pytest.fail(line)) == added
    assert os.listdir(added.folder.parent) == ["patched"]


def test_adding_again_replaces(image: Path) -> None:
    kernels.add(image, None)
    again = kernels.add(image, None)
    assert kernels.cached() == [again]
    assert again.modules is None


def test_what_is_no_kernel_is_refused(image: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="no x86 kernel image"):
        kernels.add(tmp_path / "text", None)
    with pytest.raises(UsageError, match="^there is no file "):
        kernels.add(tmp_path / "absent", None)
    with pytest.raises(UsageError, match="no folder of modules"):
        kernels.add(image, tmp_path / "absent")
    for name in ("6.12", "../x", ".hidden", "a b"):
        with pytest.raises(UsageError, match="cannot be named"):
            kernels.add(image, None, name)
    assert kernels.cached() == []


def test_modules_that_do_not_fit_are_refused(image: Path, tmp_path: Path) -> None:
    modules = tmp_path / "lib"
    modules.mkdir()
    with pytest.raises(UsageError, match="holds no modules"):
        kernels.add(image, modules)
    (modules / "veth.ko").write_bytes(b"\x7fELF\0vermagic=6.1.0-other SMP mod_unload \0")
    with pytest.raises(UsageError, match=r"those of 6\.1\.0-other, and the kernel is 6\.99\.0-mine"):
        kernels.add(image, modules)
    (modules / "veth.ko").rename(modules / "veth.ko.xz")
    with pytest.raises(FetchError, match=r"veth\.ko\.xz cannot be read"):
        kernels.add(image, modules)
    assert kernels.cached() == []
    (modules / "veth.ko.xz").rename(modules / "veth.ko")
    (modules / "veth.ko").write_bytes(b"\x7fELF\0vermagic=6.99.0-mine SMP mod_unload \0")
    assert kernels.add(image, modules).release == "6.99.0-mine"


def test_a_kernel_that_finds_no_room_is_told_and_leaves_nothing(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FetchError, match="No space left"):
        kernels.add(image, None)
    assert os.listdir(places.vm_folder("kernels")) == []


def test_kernels_are_sorted_by_their_numbers(image: Path) -> None:
    for name in ("k6.12", "k6.1", "k10.0", "k5.10"):
        kernels.add(image, None, name)
    assert [kernel.version for kernel in kernels.cached()] == ["k5.10", "k6.1", "k6.12", "k10.0"]


def test_folders_of_dead_processes_are_swept_and_those_of_the_living_stay() -> None:
    mine = places.new_run_folder()
    second = places.new_run_folder()
    dead = mine.with_name(f"{os.getpid()}-1-0")  # the pid again, but another start
    dead.mkdir()
    stranger = mine.with_name("notes")
    stranger.mkdir()
    assert mine != second
    places.sweep_runs()
    assert sorted(mine.parent.iterdir()) == sorted([mine, second, stranger])


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(image: Path, tmp_path: Path) -> kernels.Kernel:
    """A kernel with one module."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "veth.ko").write_bytes(b"\x7fELF\0vermagic=6.99.0-mine SMP mod_unload \0")
    return kernels.add(image, modules, "mine")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an emptied note": lambda kernel: (kernel / "kernel.json").write_bytes(b""),
    "half a note": lambda kernel: os.truncate(kernel / "kernel.json", 20),
    "another note": lambda kernel: (kernel / "kernel.json").write_text("[]"),
    "no text": lambda kernel: (kernel / "kernel.json").write_bytes(b"\xff\xfe"),
    "an emptied image": lambda kernel: (kernel / "vmlinuz").write_bytes(b""),
    "a flipped bit": lambda kernel: _flip(kernel / "vmlinuz"),
    "no image": lambda kernel: (kernel / "vmlinuz").unlink(),
    "an emptied module": lambda kernel: (kernel / "modules/veth.ko").write_bytes(b""),
    "no module": lambda kernel: (kernel / "modules/veth.ko").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_kernel_is_none(damage: str, own: kernels.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.find("mine") == own
    DAMAGE[damage](own.folder)
    assert kernels.find("mine") is None
    with pytest.raises(FetchError, match="the kernel mine in the cache is damaged") as refused:
        kernels.ready("mine", lambda line: None)
    assert refused.value.remedy == "xskit vm kernels add BZIMAGE --modules DIR --name mine"
    own.folder.rename(own.folder.with_name("6.99"))
    said: list[str] = []
    monkeypatch.setattr(kernels, "fetch", lambda version, say: version)
    assert kernels.ready("6.99", said.append) == "6.99"  # type: ignore[comparison-overlap]
    assert said == ["the kernel 6.99 in the cache is damaged"]


def test_a_damaged_first_root_is_built_again(own: kernels.Kernel, tmp_path: Path) -> None:
    (tmp_path / "busybox").write_bytes(b"b")
    archive = initramfs.build(own, tmp_path / "busybox")
    whole = archive.read_bytes()
    for name in ("initramfs.cpio", "aliases", "footprint"):
        (archive.parent / name).write_bytes(b"")
        assert initramfs.build(own, tmp_path / "busybox") == archive
        assert archive.read_bytes() == whole
        assert sorted(os.listdir(archive.parent)) == ["aliases", "footprint", "initramfs.cpio", "veth.ko"]


def test_a_damaged_qemu_and_a_damaged_busybox_are_none(tmp_path: Path) -> None:
    program = tmp_path / "usr/bin" / qemu.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho version 9.1\n")
    program.chmod(0o755)
    (tmp_path / "bios.bin").write_bytes(b"bios")
    assert qemu._unpacked(tmp_path) is None
    places.seal(tmp_path)
    found = qemu._unpacked(tmp_path)
    assert found is not None
    assert found.version == (9, 1)
    (tmp_path / "bios.bin").write_bytes(b"")
    assert qemu._unpacked(tmp_path) is None
    assert qemu._runs(program)
    program.write_bytes(b"")
    assert not qemu._runs(program)
    assert not qemu._runs(tmp_path / "absent")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"kvm": true}'])
def test_a_damaged_verdict_on_kvm_is_found_anew(
    content: bytes, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(accel, "_KVM", tmp_path / "kvm")
    monkeypatch.setattr(accel, "_probe", lambda *_: accel.Accelerator(True, "tried"))
    assert _choose("auto", image) == accel.Accelerator(True, "tried")
    kernel = kernels.find(image.name)
    assert kernel is not None
    (verdict,) = kernel.folder.glob("accel-*")
    verdict.write_bytes(content)
    monkeypatch.setattr(accel, "_probe", lambda *_: accel.Accelerator(False, "tried again"))
    assert _choose("auto", image) == accel.Accelerator(False, "tried again")
    assert json.loads(verdict.read_bytes())["reason"] == "tried again"


# --- accelerator --------------------------------------------------------------------------------------------------


def _choose(wanted: accel.Wanted, image: Path) -> accel.Accelerator:
    kernel = kernels.find(image.name) or kernels.add(image, None)
    return accel.choose(wanted, Qemu(("false",), (10, 0)), kernel, image, lambda line: None)


def test_emulation_is_taken_when_asked_for_or_when_there_is_no_kvm(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accel, "_KVM", tmp_path / "absent")
    assert not _choose("tcg", image).kvm
    found = _choose("auto", image)
    assert not found.kvm
    assert "absent is missing" in found.reason
    with pytest.raises(UsageError, match="missing or not accessible"):
        _choose("kvm", image)


def test_kvm_is_tried_once_and_its_verdict_kept(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(accel, "_KVM", tmp_path / "kvm")
    found = _choose("auto", image)  # the QEMU here is false(1): it ends at once
    assert not found.kvm
    assert found.reason.startswith("under KVM a guest has died")
    monkeypatch.setattr(accel, "_probe", lambda *_: pytest.fail("tried twice"))
    assert _choose("auto", image) == found
    assert _choose("kvm", image).kvm
    kernels.add(image, None)  # mended, perhaps, and of the same release
    monkeypatch.setattr(accel, "_probe", lambda *_: accel.Accelerator(True, "tried again"))
    assert _choose("auto", image).kvm


# --- the monitor --------------------------------------------------------------------------------------------------


class _FakeQemu:
    """Answers commands by a table, and sends events before the answer or after it."""

    def __init__(self, answers: dict[str, list[dict[str, object]]]) -> None:
        self.ours, self._theirs = socket.socketpair()
        self.heard: list[dict[str, object]] = []
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._theirs, self._theirs.makefile("rwb") as stream:
            stream.write(b'{"QMP": {"version": {}}}\r\n')
            stream.flush()
            for line in stream:
                command = json.loads(line)
                self.heard.append(command)
                for answer in self._answers.get(command["execute"], [{"return": {}}]):
                    stream.write(json.dumps(answer).encode() + b"\r\n")
                stream.flush()

    def close(self) -> None:
        self.ours.close()
        self._thread.join()


@pytest.fixture
def fake() -> Iterator[type[_FakeQemu]]:
    made: list[_FakeQemu] = []

    def make(answers: dict[str, list[dict[str, object]]]) -> _FakeQemu:
        made.append(_FakeQemu(answers))
        return made[-1]

    yield make  # type: ignore[misc]
    for each in made:
        each.close()


def _deleted(device: str) -> dict[str, object]:
    return {"event": "DEVICE_DELETED", "data": {"device": device}}


@pytest.mark.parametrize(
    "answers",
    [
        [_deleted("nic1"), {"return": {}}],
        [{"return": {}}, _deleted("nic1")],
        [{"event": "RESUME"}, {"return": {}}, {"event": "X"}, _deleted("nic0"), _deleted("nic1")],
    ],
)
def test_unplugging_waits_for_the_guest_to_let_go(fake: type[_FakeQemu], answers: list[dict[str, object]]) -> None:
    qemu = fake({"device_del": answers})
    monitor = QmpClient(qemu.ours)
    monitor.unplug("nic1")
    monitor.set_link("nic0", up=False)
    assert [command["execute"] for command in qemu.heard] == ["qmp_capabilities", "device_del", "set_link"]
    assert qemu.heard[2]["arguments"] == {"name": "nic0", "up": False}


def test_what_qemu_refuses_is_told_with_its_reason(fake: type[_FakeQemu]) -> None:
    qemu = fake({"device_add": [{"error": {"class": "GenericError", "desc": "Duplicate device ID 'nic0'"}}]})
    with pytest.raises(GuestError, match="refused device_add: Duplicate device ID"):
        QmpClient(qemu.ours).plug({"driver": "igb", "id": "nic0"})


def test_a_qemu_that_has_ended_is_told() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(GuestError, match="QEMU has ended"):
        QmpClient(ours).execute("query-status")


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vm", "run", "--nics", "3", "--", "true"], "--nics must be even, two on each wire, not 3"),
        (["vm", "run", "--nic", "ixgbe", "--", "true"], "'ixgbe'"),
        (["vm", "run", "--memory", "1G", "--", "true"], "1G"),
        (["vm", "run", "--time-limit", "5", "--", "true"], "5"),
        (["vm", "run", "--time-limit", "0s", "--", "true"], "a time limit of 0"),
        (["vm", "run"], "COMMAND"),
        (["vm", "kernels", "add", "/proc/kernel"], "there is no file /proc/kernel"),
        (["vm", "kernels", "fetch"], "VERSION"),
        (["vm", "kernel"], "kernel"),
        (["vm", "run", "--nics", "3", "--", "true", "--json"], "--nics must be even, two on each wire, not 3"),
    ],
)
def test_mistakes_are_told_before_anything_is_fetched(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _run(arguments) == 2
    out, err = capfd.readouterr()
    assert out == "", "it is COMMAND's"
    assert err.startswith("xskit: ")
    assert said in err


@pytest.mark.parametrize(
    ("does", "arguments"), [("fetch", ["fetch", "6.12"]), ("add", ["add", "bzImage"])], ids=["fetch", "add"]
)
def test_a_kernel_that_is_not_finished_when_a_signal_comes_is_no_litter(
    does: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(*_: object) -> None:
        with tempfile.TemporaryDirectory(dir=places.vm_folder("kernels"), prefix=".new-"):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(kernels, does, half)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # else it would be this process's end
    try:
        with pytest.raises(Terminated):
            _run(["vm", "kernels", *arguments])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert os.listdir(places.vm_folder("kernels")) == []


def test_without_apt_a_kernel_of_ones_own_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _run(["vm", "kernels", "fetch", "6.12"]) == 1
    out, err = capfd.readouterr()
    assert "apt-get is missing" in err
    assert "try: xskit vm kernels add BZIMAGE" in err
    assert _run(["vm", "kernels", "add", str(image), "--name", "patched"]) == 0
    assert capfd.readouterr().out == "patched 6.99.0-mine\n"
    assert _run(["vm", "kernels", "list", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["cached"][0]["version"] == "patched"
    assert "apt-get is missing" in err
