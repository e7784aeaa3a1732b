"""The cache of compiled code saves time, and does nothing else: whatever is wrong with it, code is compiled anew."""

from __future__ import annotations

import errno
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from xskit import _cache, jit
from xskit._cache import load, save
from xskit.jit.kept import Kept

NAME = "module.function-0123.code"
CONTENT = bytes(range(64))
OTHER = "module.other-4567.code"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has not complained yet."""
    monkeypatch.setattr(_cache, "_reported", [])
    monkeypatch.setenv("XSKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept() -> Path:
    """The file of one entry, saved."""
    save(NAME, CONTENT)
    return _cache.cache_folder() / NAME


# --- damage -----------------------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    assert _cache.is_empty()
    assert load(NAME) is None
    path = kept()
    assert load(NAME) == CONTENT
    assert not _cache.is_empty()
    assert os.listdir(path.parent) == [NAME], "no draft is left"
    assert caplog.messages == []


def test_no_part_of_a_file_is_taken_for_the_whole(caplog: pytest.LogCaptureFixture) -> None:
    path = kept()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert load(NAME) is None
    path.write_bytes(whole + b"\0")
    assert load(NAME) is None
    assert caplog.messages == []


def test_no_flipped_bit_goes_unnoticed() -> None:
    path = kept()
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert load(NAME) is None, place


def test_the_file_of_another_entry_is_not_taken() -> None:
    path = kept()
    path.rename(path.with_name(OTHER))
    assert load(OTHER) is None


def as_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()


def as_huge_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


OBSTACLES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.touch(),
    "a folder": as_folder,
    "a FIFO": os.mkfifo,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a huge file": as_huge_file,
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_stands_in_a_files_place_is_replaced(obstacle: str, caplog: pytest.LogCaptureFixture) -> None:
    path = kept()
    path.unlink()
    OBSTACLES[obstacle](path)
    assert load(NAME) is None
    save(NAME, CONTENT)
    assert load(NAME) == CONTENT
    assert os.listdir(path.parent) == [NAME]
    assert caplog.messages == []


@pytest.mark.parametrize("obstacle", ["nothing", "a link to nowhere", "a FIFO"])
def test_what_stands_in_the_folders_place_is_replaced(obstacle: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = kept().parent
    (folder / NAME).unlink()
    folder.rmdir()
    OBSTACLES[obstacle](folder)
    assert load(NAME) is None
    assert _cache.is_empty()
    save(NAME, CONTENT)
    assert load(NAME) == CONTENT
    assert caplog.messages == []


def test_a_folder_that_disappears_while_running_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    path = kept()
    path.unlink()
    path.parent.rmdir()
    assert load(NAME) is None
    save(NAME, CONTENT)
    assert load(NAME) == CONTENT
    assert caplog.messages == []


def test_two_writers_at_once_leave_a_whole_file(caplog: pytest.LogCaptureFixture) -> None:
    contents = [bytes([number]) * 100_000 for number in range(2)]
    ready = threading.Barrier(3)

    def write(content: bytes) -> None:
        ready.wait()
        for _ in range(50):
            save(NAME, content)

    kept()
    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    ready.wait()
    seen = {load(NAME) for _ in range(100)}
    for writer in writers:
        writer.join()
    assert load(NAME) in contents
    assert seen <= {CONTENT, *contents}
    assert os.listdir(_cache.cache_folder()) == [NAME]
    assert caplog.messages == []


# --- what cannot be written -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["open", "replace", "mkdir"])
def test_what_cannot_be_kept_is_reported_once(
    number: int, call: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object, **options: object) -> int:
        raise OSError(number, os.strerror(number))

    if call != "mkdir":
        kept()
    with monkeypatch.context() as patched:
        patched.setattr(os, call, refused)
        save(OTHER, CONTENT)
        save(OTHER, CONTENT)
    (warning,) = caplog.messages
    assert f": {os.strerror(number)}, so every start compiles again; set XSKIT_CACHE to" in warning


def test_a_root_that_is_a_file_is_reported_and_left(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    root.write_text("mine")
    save(NAME, CONTENT)
    assert load(NAME) is None
    assert _cache.is_empty()
    assert root.read_text() == "mine"
    assert caplog.messages == [
        f"compiled code cannot be kept in {root}: File exists, so every start compiles again; "
        "set XSKIT_CACHE to a folder of your own"
    ]


def test_a_user_without_a_home_folder_compiles_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XSKIT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    save(NAME, CONTENT)
    assert load(NAME) is None
    assert _cache.is_empty()
    assert len(caplog.messages) == 1


# --- whose it is ------------------------------------------------------------------------------------------------


def test_who_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(_cache, "_owner_of_xskit", lambda: 1001)
    monkeypatch.setenv(_cache.OWNER, "1002")

    def trusted(owner: int, mode: int = 0o100644) -> bool:
        return _cache._trusted(os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0)))

    assert all(trusted(owner) for owner in (0, 1000, 1001, 1002))
    assert not trusted(1003)
    assert not trusted(1000, 0o100664)
    assert not trusted(1000, 0o100646)
    monkeypatch.delenv(_cache.OWNER)
    assert not trusted(1002)


def test_a_file_that_others_can_write_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    path = kept()
    path.chmod(0o666)
    assert load(NAME) is None
    save(NAME, CONTENT)
    assert path.stat().st_mode & 0o777 == 0o644
    assert load(NAME) == CONTENT
    assert caplog.messages == []


def test_a_folder_that_others_can_write_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    path = kept()
    path.parent.chmod(0o777)
    assert load(NAME) is None
    save(OTHER, CONTENT)
    assert os.listdir(path.parent) == [NAME]
    assert caplog.messages == [
        f"the compiled code in {path.parent} is not used: other users can write there, so every start compiles again; "
        "set XSKIT_CACHE to a folder of your own"
    ]


def test_a_lax_umask_makes_no_folder_that_others_can_write() -> None:
    before = os.umask(0)
    try:
        kept()
    finally:
        os.umask(before)
    assert load(NAME) == CONTENT


# --- the folders ------------------------------------------------------------------------------------------------


def test_old_folders_go_when_a_new_one_is_made(root: Path) -> None:
    for age in range(12):
        folder = root / f"code-{age}"
        folder.mkdir(parents=True)
        os.utime(folder, (1000 - age, 1000 - age))
    made = kept().parent
    assert set(os.listdir(root)) == {made.name, *(f"code-{age}" for age in range(_cache.KEPT_FOLDERS - 1))}


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.delenv("XSKIT_CACHE")
    assert _cache.cache_root() == Path("/somewhere/xskit")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _cache.cache_root() == Path.home() / ".cache" / "xskit"
    monkeypatch.setenv("XSKIT_CACHE", "/elsewhere")
    assert _cache.cache_root() == Path("/elsewhere")


# --- machine code -----------------------------------------------------------------------------------------------


def double(value: int) -> int:
    """What is compiled here."""
    return 2 * value


@pytest.mark.compiled
def test_code_is_compiled_anew_where_the_cache_is_of_no_use(caplog: pytest.LogCaptureFixture) -> None:
    def loaded() -> bool:
        """Compile or load; whether it was loaded."""
        entry = jit.compiled("int64(int64)")(double)
        assert entry(21) == 42
        return bool(entry.compiled._cache_hits)

    assert not loaded()
    (path,) = _cache.cache_folder().iterdir()
    assert path.name.startswith("test_code_cache.double-")
    assert loaded()
    content = load(path.name)
    assert content is not None
    damage: list[Callable[[], object]] = [
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(path.read_bytes()[:-1]),
        lambda: save(path.name, pickle.dumps(["not", "a", "compile", "result"])),
        lambda: save(path.name, content[: len(content) // 2]),
        path.unlink,
    ]
    for damaged in damage:
        damaged()
        assert not loaded()
        assert loaded()
    assert caplog.messages == []


def test_each_cpu_and_each_version_of_a_function_has_a_file_of_its_own(tmp_path: Path) -> None:
    def named(*cpu: str) -> str:
        return Kept(double)._name("int64(int64)", SimpleNamespace(magic_tuple=lambda: cpu))

    names = {named("x86-64", "skylake", "+avx2"), named("x86-64", "skylake", ""), named("x86-64", "haswell", "+avx2")}
    assert len(names) == 3
    assert named("x86-64", "haswell", "+avx2") in names


def test_code_whose_text_is_unknown_is_not_kept() -> None:
    scope: dict[str, Callable[[int], int]] = {}
    exec("def nameless(value): return value", scope)
    assert Kept(scope["nameless"]).load_overload("int64(int64)", None) is None
