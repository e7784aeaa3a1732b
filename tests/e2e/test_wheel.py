"""The wheel, in a virtual environment that has what it requires and nothing else: no tool, no checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.e2e.rig import Outer

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is, and without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel in it; what it requires is linked there, not copied."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(home), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    for name in required("xskit"):
        for folder in {path.parts[0] for path in files(name) if path.parts[0] not in ("..", "__pycache__")}:
            (packages / folder).symlink_to(distribution(name).locate_file(folder))  # type: ignore[arg-type]
    return home / "bin"


def required(name: str) -> set[str]:
    """All that a distribution requires, and what that requires."""
    found: set[str] = set()
    asked = [name]
    while asked:
        for requirement in map(Requirement, distribution(asked.pop()).requires or ()):
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in found:
                found.add(requirement.name)
                asked.append(requirement.name)
    return found


def files(name: str) -> list[PackagePath]:
    return distribution(name).files or []


def run(*argv: object, cwd: Path) -> str:
    ran = subprocess.run(list(map(str, argv)), cwd=cwd, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    return ran.stdout


def test_it_has_every_file_of_the_package_and_the_licence(wheel: Path):
    tracked = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/xskit").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"xskit/py.typed", "xskit/vm/first.sh"} <= tracked
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert {name for name in names if name.startswith("xskit/")} == tracked
    assert f"{Path(metadata).parent}/licenses/LICENSE" in names
    asked = {Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)}
    extras = {f"{one}; extra == '{extra}'" for extra, ones in PROJECT["optional-dependencies"].items() for one in ones}
    assert asked == set(map(Requirement, [*PROJECT["dependencies"], *extras]))


def test_it_is_found_where_it_was_installed_and_has_nothing_else(installed: Path, tmp_path: Path):
    where = run(installed / "python", "-c", "import xskit; print(xskit.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    missing = "from importlib.util import find_spec; print(*map(find_spec, ('pytest', 'pyroute2', 'matplotlib')))"
    assert run(installed / "python", "-c", missing, cwd=tmp_path) == "None None None\n"


def test_its_commands_answer(installed: Path, tmp_path: Path):
    assert run(installed / "xskit", "version", cwd=tmp_path) == f"xskit {PROJECT['version']}\n"
    help_text = run(installed / "xskit", "--help", cwd=tmp_path)
    assert help_text.startswith("Usage: xskit [OPTIONS] COMMAND")
    assert run(installed / "python", "-m", "xskit", "--help", cwd=tmp_path) == help_text


@pytest.mark.root
def test_it_moves_packets(installed: Path, machine: Outer, tmp_path: Path):
    command = [installed / "xskit", "run", "--owd", "5ms", "--report", "report.json", "--", "echo", "behind a link"]
    cache = {"XSKIT_CACHE": str(tmp_path / "cache")}  # it compiles anew: that code is of no use to anybody else
    ran = machine.run(*map(str, command), cwd=tmp_path, env=os.environ | cache)
    assert (ran.code, ran.out) == (0, "behind a link\n"), ran.err
    assert (tmp_path / "report.json").exists()
    machine.nothing_left(ran.pid)
