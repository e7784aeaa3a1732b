"""What the pages tell to type works as it stands, and a report has the fields that its page lists."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.e2e]

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 180
TYPED = [
    "README.md",
    "docs/tutorial/first-link.md",
    "docs/how-to/use-in-tests.md",
    "docs/how-to/join-interfaces.md",
    "docs/how-to/jumbo-packets.md",
    "docs/how-to/plan-memory.md",
    "docs/how-to/what-went-wrong.md",
    "docs/how-to/raw-sockets.md",
]


LEFT_BY_A_PAGE = [
    *(["ip", "netns", "del", name] for name in ("xk-left", "xk-right")),
    *(["ip", "link", "del", name] for name in ("xk0", "xkleft", "xkright")),
]
"""What a page that failed half-way did not come to remove."""


@pytest.fixture(scope="module")
def compiled() -> None:
    """As after `make demo`, which comes first for every reader."""
    command = [sys.executable, "-m", "xskit", "run", "--", "true"]
    subprocess.run(command, check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("page", TYPED)
def test_commands_of_a_page(page, compiled, tmp_path):
    """All that is marked `sh`, in one shell, in the clone, with the virtual environment active."""
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL))
    assert commands
    uses_ip = re.search(r"\bip ", commands) is not None
    if uses_ip and shutil.which("ip") is None:
        pytest.skip(f"{page} uses ip, which is not installed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = tmp_path / "printed"
    with printed.open("w") as out:  # a file, not a pipe: what a page leaves in the background would keep that open
        shell = subprocess.Popen(
            ["bash", "-c", f"set -euo pipefail\n{commands}\nwait\n"],
            cwd=ROOT, env=os.environ | {"PATH": path}, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait(timeout=PATIENCE_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            for command in LEFT_BY_A_PAGE if uses_ip else ():
                subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE_SECONDS)
    output = printed.read_text()
    assert code == 0, output
    assert "round_trip.py" not in commands or re.search(r"^[0-9.]+ ms$", output, re.MULTILINE), output


def test_every_page_that_tells_to_type_is_among_them():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    assert {str(page.relative_to(ROOT)) for page in pages if "\n```sh\n" in page.read_text()} == set(TYPED)


def fields(value: Any, path: str = "") -> Iterator[str]:
    """The path of every leaf, in the notation of the page."""
    if isinstance(value, list):
        if not value or not isinstance(value[0], dict):
            yield f"{path}[]"
        for one in value:
            if isinstance(one, dict):
                yield from fields(one, f"{path}[]")
    elif path.endswith(".dropped") and isinstance(value, dict):
        yield f"{path}.CAUSE"
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from fields(one, f"{path}.{name}" if path else name)
    else:
        yield path


def test_a_report_has_the_fields_of_its_page(tmp_path):
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "xskit", "run", "--report", os.fspath(file), "--", "true"]
    subprocess.run(command, check=True, timeout=PATIENCE_SECONDS)
    before, _, rest = (ROOT / "docs/reference/report.md").read_text().partition("## Drop causes")
    page = before + rest.partition("\n## ")[2]
    listed = re.findall(r"^\| `([\w.\[\]]+)`", page, re.MULTILINE)
    assert len(listed) == len(set(listed))
    found = set(fields(json.loads(file.read_text())))
    waiting = "links[].directions[].update_waiting"  # null here: nothing updates a link of `xskit run`
    assert waiting in found
    assert set(listed) == found | {f"{waiting}.at_ns", f"{waiting}.asked"}
