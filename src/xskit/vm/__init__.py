"""Throw-away guests: this machine's own root under another kernel and with other NICs, gone when the command ends."""
