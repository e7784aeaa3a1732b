"""Generated parts of pages: each stands between <!-- NAME: SCRIPT --> and <!-- end of NAME -->."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

DOCS = Path(__file__).parent


def current(page: str, script: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """The text of a page with its generated parts as they are made now."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, make in parts.items():
        begin, end = f"<!-- {name}: {script} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"docs/{page} has no place for {name}: {begin} ... {end}")
        text = f"{before}{begin}\n\n{make()}\n\n{end}{after}"
    return text


def write(script: str, pages: Mapping[str, Mapping[str, Callable[[], str]]], *, check: bool) -> int:
    """Write every page anew, or with `check` only tell which are not current; returns the exit code."""
    stale = []
    for page, parts in pages.items():
        text = current(page, script, parts)
        if text != (DOCS / page).read_text(encoding="utf-8"):
            stale.append(page)
            if not check:
                (DOCS / page).write_text(text, encoding="utf-8")
    for page in stale:
        print(f"docs/{page}: {f'not current: python {script}' if check else 'written'}")
    return int(bool(stale) and check)
