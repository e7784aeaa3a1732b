"""`python -m xskit` is the command `xskit`."""

from __future__ import annotations

from xskit.cli.start import main

if __name__ == "__main__":
    main()
