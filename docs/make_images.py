"""Runs `xskit demo` as root and puts what it prints into the documentation: as a picture, and as text in the README.

    python docs/make_images.py               run the demo (20 s) and write docs/images/demo.svg and the README's text
    python docs/make_images.py FILE          the same from what the demo printed before, colours included

Do it on a quiet machine: what the demo says is shown, OUTSIDE and INVALID included. The exit code is the demo's.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
PAGES = (DOCS.parent / "README.md",)
PICTURE = DOCS / "images" / "demo.svg"
BEGIN, END = "<!-- demo: docs/make_images.py -->", "<!-- end of demo -->"
WIDTH = 110
FONT_FROM_ELSEWHERE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def run_demo() -> tuple[str, int]:
    """What it prints on a terminal, and its exit code."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-m", "xskit", "demo"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if not ended.stdout:
        print(ended.stderr, file=sys.stderr)
    return ended.stdout, ended.returncode


def picture(printed: str) -> str:
    """An SVG that fetches nothing: the reader's own monospace font."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(printed.rstrip()))
    return FONT_FROM_ELSEWHERE.sub("", console.export_svg(title="make demo", unique_id="demo"))


def plain(printed: str) -> str:
    """The same without colours."""
    return "\n".join(line.rstrip() for line in Text.from_ansi(printed).plain.rstrip().splitlines())


def main(arguments: list[str]) -> int:
    """Write the picture and the text."""
    printed, code = (Path(arguments[0]).read_text(encoding="utf-8"), 0) if arguments else run_demo()
    if not printed.strip():
        return code
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(printed), encoding="utf-8")
    for page in PAGES:
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{BEGIN}\n```text\n{plain(printed)}\n```\n{END}{after}", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
