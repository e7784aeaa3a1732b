"""Where the command begins: Ctrl-C while Python still reads the program is an end like any other."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Read the program, and run it."""
    try:
        from xskit.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
