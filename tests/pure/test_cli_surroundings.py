"""A command whose surroundings lack something says what, and ends with code 1."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys

import pytest

from xskit.cli.surroundings import explained


@pytest.fixture
def limit(monkeypatch):
    """The most bytes of address space that this process may have."""
    found = {"bytes": resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (found["bytes"], resource.RLIM_INFINITY))
    return found


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("x.so: failed to map segment from shared object"),
        OSError("Could not find/load shared object file 'libllvmlite.so'"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_little_address_space(limit, error):
    limit["bytes"] = 256 << 20
    told = explained(error)
    assert told.cause == "the limit of 256 MiB of address space is too low for this command"
    assert told.remedy == "ulimit -v unlimited"


def test_without_a_limit_it_is_the_machine_or_a_defect(limit):
    assert explained(MemoryError()).cause == "this machine is out of memory"
    assert explained(RuntimeError("can't start new thread")).remedy == "ulimit -u unlimited"
    assert explained(OSError(errno.EMFILE, "")).remedy == "ulimit -n 65536"
    for defect in (ImportError("no module"), OSError("?"), RuntimeError("?"), FileNotFoundError(errno.ENOENT, "x")):
        assert explained(defect) is None


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    told = explained(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    assert (told.cause, told.remedy) == ("the current directory has been removed", "cd /")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("before", "command"),
    [("ulimit -v 150000", "run true"), ("mkdir gone && cd gone && rmdir ../gone", "emulate wan.toml")],
)
def test_no_command_ends_in_a_traceback(tmp_path, before, command):
    line = f'{before}; exec "$0" -m xskit {command}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("xskit: ")
    assert "Traceback" not in done.stderr
