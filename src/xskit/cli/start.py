"""Where the command begins. Ctrl-C ends it cleanly even while Python still reads the program.

Settings for this process alone are made here, so that importing xskit changes nothing in a user's own process.
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
