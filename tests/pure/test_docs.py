"""The documentation says what the code does: generated parts are current, snippets and paths exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from xskit.emulator.configuration import parse_configuration
from xskit.emulator.judge import _NOT_ASKED_FOR
from xskit.engine.packets import DropCause
from xskit.memory import layout
from xskit.xsk.path.lines import PacketLine

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [file.read_text() for file in (ROOT / "examples").iterdir() if file.is_file()]


def of(pages: list[Path]) -> pytest.MarkDecorator:
    """A test for each of these pages."""
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


everywhere = of(PAGES)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, without the margin of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return ["\n".join(line.removeprefix(margin) for line in text.splitlines()) for margin, text in found]


@pytest.mark.parametrize("script", ["docs/make_reference.py", "docs/make_experiments.py"])
def test_generated_parts_are_current(script):
    compiled = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    command = [sys.executable, script, "--check"]
    checked = subprocess.run(command, cwd=ROOT, env=compiled, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, f"run python {script}: {checked.stdout}{checked.stderr}"


@of([page for page in PAGES if page.name != "CONTRIBUTING.md"])  # its stage is a test of its own
def test_python_in_a_page_is_part_of_an_example(page):
    for block in blocks(page, "python"):
        assert any(block in example for example in EXAMPLES), f"no file of examples/ has\n{block}"


@everywhere
def test_toml_in_a_page_is_a_file_that_emulate_takes(page):
    for block in blocks(page, "toml"):
        assert parse_configuration(block, page.name).links


def test_the_packet_line_is_laid_out_as_the_page_says():
    page = (ROOT / "docs/architecture.md").read_text().partition("### The packet line")[2].partition("###")[0]
    said = []
    for fields, sizes in re.findall(r"^\| (`\w[^|]*) \| ([\d, ]+) \|", page, re.MULTILINE):
        said += zip(re.findall(r"`(\w+)`", fields), map(int, sizes.split(",")), strict=True)
    fields = layout(PacketLine).fields
    assert said == [(name, kind.itemsize) for name, (kind, _) in fields.items()]


@everywhere
def test_files_that_a_page_names_are_there(page):
    named = re.findall(r"`((?:tests|benchmarks|examples|docs)/[\w./-]*\w)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@everywhere
def test_a_page_names_targets_that_make_has(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)[` ]", page.read_text())) <= targets


def test_every_drop_cause_is_explained():
    section = (ROOT / "docs/reference/report.md").read_text().partition("## Drop causes")[2].partition("\n## ")[0]
    causes = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert causes == [cause.name.lower() for cause in DropCause]
    assert "All but the first two make the run invalid" in section
    assert set(causes[2:]) == set(_NOT_ASKED_FOR)


def test_the_floors_of_the_pages_are_those_that_are_checked():
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    floors = [name.removeprefix("xskit.") for layer in layers for name in layer.split(" : ")]
    said = (ROOT / "CONTRIBUTING.md").read_text().partition("Top to bottom:")[2].partition(". `make")[0]
    assert re.sub(r" (with|and) ", ", ", " ".join(said.split())).split(", ") == floors
    figure = (ROOT / "docs/architecture.md").read_text().partition("src/xskit/\n")[2].partition("```")[0]
    shown = [name for line in figure.splitlines() for name in re.findall(r"[a-z]+(?=/ |\.py )", line[:24])]
    assert shown == floors


def test_the_first_page_leads_to_all_others():
    first = (ROOT / "docs/index.md").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in sorted((ROOT / "docs").rglob("*.md"))]
    assert [page for page in pages if page != "index.md" and f"({page})" not in first] == []
