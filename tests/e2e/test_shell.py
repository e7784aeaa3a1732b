"""From a shell: xskit on the PATH, as `python -m xskit`, and completed where Tab is pressed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.rig import XSKIT

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
BIN = Path(XSKIT).parent


def shell(script: str, *, name: str = "bash", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script; what follows it keeps the shell there, as the parent of what it runs."""
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"} | variables
    command = [name, "-c", f"{script}\nexit $?"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")


# -- where it is found -----------------------------------------------------------------------------------------------


def make_install(prefix: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "--silent", "install", f"PREFIX={prefix}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_installed_it_is_found_everywhere_and_again(tmp_path):
    for _ in range(2):
        assert make_install(tmp_path).returncode == 0
    found = shell("command -v xskit; xskit version", PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert found.stdout.splitlines() == [f"{tmp_path}/bin/xskit", shell("xskit version").stdout.strip()]


def test_another_program_of_that_name_stays(tmp_path):
    other = tmp_path / "bin/xskit"
    other.parent.mkdir()
    other.write_text("somebody else's")
    refused = make_install(tmp_path)
    assert refused.returncode != 0
    assert refused.stderr.startswith(f"{other} exists and is not a link: rm {other}\n")
    assert other.read_text() == "somebody else's"


@pytest.mark.parametrize("arguments", ["--help", "run --bogus"])
def test_as_a_module_it_says_the_same(arguments):
    module, command = shell(f"{sys.executable} -m xskit {arguments}"), shell(f"xskit {arguments}")
    assert (module.returncode, module.stdout, module.stderr) == (command.returncode, command.stdout, command.stderr)


# -- completion ------------------------------------------------------------------------------------------------------

PRESS_TAB = """
COMP_WORDS=({line}); COMP_CWORD=$(({count} - 1))
_xskit_completion xskit
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
LINES = [
    ("xskit ru", ["run"]),
    ("xskit re", ["restore"]),
    ("xskit run --ow", ["--owd"]),
    ("xskit run --jitter-distribution u", ["uniform"]),
    ("xskit bench rxd", ["rxdrop"]),
    ("xskit vm kernels li", ["list"]),
    ("xskit run -- xskit-has-no-such-word", []),
]


@pytest.mark.parametrize(("line", "words"), LINES)
def test_bash_completes(line, words):
    press = PRESS_TAB.format(line=line, count=len(line.split()))
    done = shell(f'eval "$(xskit --show-completion)"\n{press}')
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, words, "")


@pytest.mark.parametrize(("line", "words"), [LINES[0], LINES[3], LINES[-1]])
def test_zsh_and_fish_are_answered(line, words):
    zsh = shell("xskit", _XSKIT_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
    assert (zsh.returncode, zsh.stderr) == (0, "")
    assert [word in zsh.stdout for word in words] == [True for _ in words]
    assert words or zsh.stdout == "_files\n"
    asked = {"_XSKIT_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": line}
    fish = shell("xskit", _TYPER_COMPLETE_FISH_ACTION="get-args", **asked)
    assert [answer.split("\t")[0] for answer in fish.stdout.split("\n") if answer] == words
    anything = shell("xskit", _TYPER_COMPLETE_FISH_ACTION="is-args", **asked)
    assert (anything.returncode == 0) == bool(words)


def test_installed_completion_is_there_in_the_next_shell(tmp_path):
    for _ in range(2):
        made = shell("xskit --install-completion", HOME=str(tmp_path))
        assert (made.returncode, made.stderr) == (0, "")
        assert f"installed in {tmp_path}/" in made.stdout
    press = PRESS_TAB.format(line="xskit emu", count=2)
    assert shell(f". ~/.bashrc\n{press}", HOME=str(tmp_path)).stdout == "emulate\n"


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_a_shell_without_completion(option):
    failed = shell(f"xskit {option}", name="sh")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == (
        "xskit: completion works in bash, zsh and fish, but none of them started xskit\ntry: bash\n"
    )


def test_a_home_that_cannot_be_written():
    failed = shell("xskit --install-completion", HOME="/dev/null/home")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("xskit: completion cannot be installed: ")
    assert failed.stderr.endswith("try: xskit --show-completion\n")


@pytest.mark.parametrize("line", ["xskit ", "xskit run --", "xskit bench rxdrop --"])
def test_nothing_heavy_is_loaded_to_complete(line):
    asked = {
        "_XSKIT_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = shell(f"{sys.executable} -X importtime -m xskit", **asked)
    assert len(done.stdout.splitlines()) > 1
    loaded = {entry.rpartition("|")[2].strip() for entry in done.stderr.splitlines()}
    assert "typer" in loaded
    assert loaded.isdisjoint({"numba", "llvmlite", "numpy", "scipy", "asyncio"})
