"""Names of interfaces and namespaces: which ones xskit takes, and how any text is shown in a sentence."""

from __future__ import annotations

import errno
import os

from xskit import arguments
from xskit.errors import UsageError

__all__ = ["check_interface_name", "request_name", "shown"]

LONGEST_BYTES = 15
"""IFNAMSIZ (linux/if.h) less the zero at the end."""


def check_interface_name(name: str) -> None:
    """Refuse what no interface can be called (dev_valid_name in net/core/dev.c), and what cannot be printed.

    Raises:
        UsageError: with the name, escaped.
    """
    printable = isinstance(name, str) and name.isprintable()  # a lone surrogate is not
    fits = printable and 1 <= len(os.fsencode(name)) <= LONGEST_BYTES and name not in (".", "..")
    if not fits or any(one in "/:" or one.isspace() for one in name):
        raise UsageError(
            f"{arguments.literal(name)} is not an interface name: a name has 1 to {LONGEST_BYTES} bytes, "
            "without spaces, / and :",
            remedy="ip -brief link",
        )


def request_name(name: str) -> bytes:
    """A name for an ioctl, which would cut a longer one and find another interface.

    Raises:
        OSError: ENODEV, as of every name that is not there.
    """
    encoded = os.fsencode(name)
    if len(encoded) > LONGEST_BYTES or b"\0" in encoded:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    return encoded


def shown(name: str) -> str:
    """As it is where that is harmless; else with quotes, and unprintable characters as escapes."""
    return name if name and name.isprintable() and " " not in name else repr(name)
