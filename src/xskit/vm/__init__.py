"""Throw-away guests: this machine's own root under another kernel and with other NICs, gone when the command ends."""

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a line that tells the user what happens, when something takes long."""
