"""What a command left is brought back whatever it is, and never written through a link that is there already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xskit.errors import UsageError
from xskit.vm.errors import GuestError
from xskit.vm.results import bring_back, require_folder


@pytest.fixture
def left(tmp_path: Path) -> Path:
    folder = tmp_path / "left"
    (folder / "a b,c").mkdir(parents=True)
    (folder / "a b,c" / "x\ny").write_bytes(b"content")
    (folder / "loop").symlink_to(".")
    (folder / "dangling").symlink_to("/nonexistent")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    return folder


def test_files_and_links_come_back_again_and_again_and_pipes_do_not(left: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for _ in range(2):
        found = bring_back(left, target)
        assert found == (target / "a b,c" / "x\ny", target / "dangling", target / "loop")
    assert (target / "a b,c" / "x\ny").read_bytes() == b"content"
    assert os.readlink(target / "loop") == "."
    assert sorted(os.listdir(target)) == ["a b,c", "dangling", "loop"]


def test_nothing_is_written_through_a_link_that_an_earlier_guest_left(left: Path, tmp_path: Path) -> None:
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    (elsewhere / "x\ny").write_bytes(b"mine")
    target.mkdir()
    (target / "a b,c").symlink_to(elsewhere)
    bring_back(left, target)
    assert (elsewhere / "x\ny").read_bytes() == b"mine"
    assert (target / "a b,c" / "x\ny").read_bytes() == b"content"
    (left / "loop").unlink()
    (left / "loop").write_bytes(b"a file now")
    (target / "loop").unlink()
    (target / "loop").symlink_to(elsewhere / "x\ny")
    bring_back(left, target)
    assert (elsewhere / "x\ny").read_bytes() == b"mine"
    assert (target / "loop").read_bytes() == b"a file now"


def test_where_nothing_was_left_no_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "left" / "empty").mkdir(parents=True)
    assert bring_back(tmp_path / "left", tmp_path / "out") == ()
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_brought_is_told(left: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "loop" / "full").mkdir(parents=True)
    with pytest.raises(GuestError, match=r"cannot be brought to .*out: Is a directory"):
        bring_back(left, tmp_path / "out")


def test_a_file_is_no_place_for_results(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UsageError, match="is no folder"):
        require_folder(tmp_path / "out")
    require_folder(tmp_path)
    require_folder(tmp_path / "absent")
