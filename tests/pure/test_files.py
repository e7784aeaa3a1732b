"""Reading what a user names: within bounds, from files, pipes and devices, and what is said where that fails."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path

import pytest

from xskit.files import ReadError, quoted, read, shown

MIB = 1 << 20


def failure(path: Path | str, most: int = MIB) -> ReadError:
    with pytest.raises(ReadError) as told:
        read(Path(path), most)
    return told.value


def test_a_file_and_a_pipe_are_read_whole(tmp_path):
    file = tmp_path / "a.toml"
    file.write_bytes(b"x" * MIB)
    assert read(file, MIB) == b"x" * MIB
    receiving, sending = os.pipe()
    with os.fdopen(receiving), os.fdopen(sending, "wb") as writer:
        later = threading.Timer(0.05, lambda: (writer.write(b"y" * 1000), writer.close()))
        later.start()
        assert read(Path(f"/dev/fd/{receiving}"), MIB) == b"y" * 1000
        later.join()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_what_has_no_end_is_too_long(device):
    error = failure(device)
    assert error.cause == f"{device} is longer than 1 MiB"
    assert error.remedy == f"ls -lL {device}"


def test_a_large_file_is_not_read_whole(tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 34)  # more than the memory of most machines, and no disk
    assert failure(large).cause == f"{large} is longer than 1 MiB"


def test_a_pipe_without_a_writer_is_empty(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert read(pipe, MIB) == b""


def test_what_cannot_be_read(tmp_path):
    assert failure(tmp_path).cause == f"{tmp_path} is a folder"
    assert failure(tmp_path).remedy == f"ls {tmp_path}"
    assert failure(tmp_path / ("n" * 300)).cause.endswith(" cannot be read: File name too long")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert failure(loop).cause == f"{loop} cannot be read: Too many levels of symbolic links"
    assert failure("a\0b").cause == "'a\\x00b' cannot be read: no file can have this name"


def test_a_missing_file_is_looked_for(tmp_path):
    (tmp_path / "wan.toml").touch()
    error = failure(tmp_path / "wam.toml")
    assert error.missing
    assert error.cause == f"there is no file {tmp_path}/wam.toml; did you mean {tmp_path}/wan.toml?"
    assert error.remedy == f"ls {tmp_path}"
    assert failure(tmp_path / "no" / "such" / "wan.toml").remedy == f"ls {tmp_path}"
    assert failure(tmp_path / "wan.toml" / "below").remedy == f"ls {tmp_path}"


def test_names_are_shown_so_that_they_can_be_typed():
    assert shown(Path("a b")) == "a b"
    assert shown(Path("a\nb")) == r"'a\nb'"
    assert shlex.split(quoted(Path("a b"))) == ["a b"]
    assert quoted(Path("a\nb")) == r"$'a\nb'"
