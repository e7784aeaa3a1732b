"""Where reports go: what a file's name says is what is written into it."""

from __future__ import annotations

import os

import pytest

from xskit.cli.output import REPORTS, check_file
from xskit.errors import UsageError


@pytest.mark.parametrize("name", ["report", "r.json", "r.JSON", "r.txt", "folder.d/r"])
def test_names_that_say_what_is_written_or_nothing(tmp_path, name):
    (tmp_path / "folder.d").mkdir()
    check_file("--report", tmp_path / name, REPORTS)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["r.html", "r.pdf", "r.json.gz", "a file.xml"])
def test_a_name_that_says_something_else_is_refused(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(UsageError) as refused:
        check_file("--report", path, REPORTS)
    ending = path.suffix
    assert refused.value.cause == (
        f"--report {path}: no report can be written as {ending}, only as .json (JSON), .txt (text)"
    )
    assert refused.value.remedy in (f"--report {path.with_suffix('.json')}", f"--report '{path.with_suffix('.json')}'")
    assert not path.exists()


def test_a_pipe_has_any_name(tmp_path):
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    check_file("--report", pipe, REPORTS)


def test_without_a_file_there_is_nothing_to_check():
    check_file("--report", None, REPORTS)
