"""Which CPUs workers get: the last ones that nobody else has, whoever that is and however it ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from xskit.emulator.cpus import CpuClaim
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.settings import EngineSettings

ELSEWHERE = """
import os
os.sched_getaffinity = lambda pid: {0, 1, 2}
from xskit.emulator.cpus import CpuClaim
from xskit.emulator.settings import EngineSettings
claim = CpuClaim.make(EngineSettings())
print(*claim.cpus, flush=True)
input()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A machine of three CPUs, whose claims lie in a folder of the test."""
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path / "run"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    return tmp_path / "run"


@pytest.fixture
def claim(folder):
    """Claims of this process, given back with the test."""
    made = []

    def make(**engine):
        made.append(CpuClaim.make(EngineSettings(**engine)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_each_link_gets_a_cpu_of_its_own_as_long_as_there_are_some(claim):
    first, second, third, fourth = (claim() for _ in range(4))
    assert [one.cpus for one in (first, second, third, fourth)] == [(2,), (1,), (0,), (2,)]
    second.close()
    second.close()
    assert claim().cpus == (1,)


def test_two_workers(claim):
    assert claim(workers=2).cpus == (2, 1)
    assert claim(workers=2).cpus == (0, 2)


def test_more_workers_than_cpus(claim, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    assert claim(workers=2).cpus == (5, 5)


def test_cpus_that_were_asked_for_are_given_though_somebody_has_them_and_others_keep_off(claim):
    assert claim(cpus=(2,)).cpus == (2,)
    assert claim(cpus=(2,)).cpus == (2,)
    assert claim().cpus == (1,)


def test_other_processes_count_until_they_end(claim):
    other = subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "2\n"
        assert claim().cpus == (1,)
    finally:
        other.kill()
        other.communicate()
    assert claim().cpus == (2,)


def test_where_there_is_no_folder_to_claim_in_the_last_ones_are_taken(claim, folder):
    folder.write_text("not a folder")
    assert [claim().cpus, claim().cpus, claim(workers=2).cpus] == [(2,), (2,), (2, 1)]


def test_a_cpu_that_this_process_may_not_use(folder):
    with pytest.raises(SettingsError) as caught:
        CpuClaim.make(EngineSettings(cpus=(3,)))
    assert caught.value.cause == "a worker cannot run on CPU 3: this process may use 0, 1, 2"
    assert caught.value.remedy == "cpus=[2]"
