"""The stage that CONTRIBUTING.md builds works, and so does the test that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_stage_of_the_page(tmp_path):
    stage, test = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "every_nth.py").write_text(stage)
    (tmp_path / "test_every_nth.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "--quiet", "--config-file=/dev/null", "-p", "no:cacheprovider", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
