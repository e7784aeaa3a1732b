"""Where the command begins: Ctrl-C while Python still reads the program is an end like any other.

What holds for this process alone is set here: importing xskit changes nothing in a user's own process.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Read the program, and run it."""
    try:
        from xskit._blas import start_no_threads

        start_no_threads()
        from xskit.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
