"""What can go wrong with a guest before, while and after it runs."""

from __future__ import annotations

from xskit.errors import XskitError

__all__ = ["FetchError", "GuestError", "QemuAbortedError", "TimeLimitError"]


class FetchError(XskitError):
    """A kernel, QEMU or busybox could not be fetched or unpacked."""


class GuestError(XskitError):
    """The guest did not boot, or died before its command had ended."""


class QemuAbortedError(GuestError):
    """QEMU itself gave up (SIGABRT, SIGSEGV).

    Seen with QEMU 10.0 emulating two CPUs, while a guest booted ("iotlb_to_section: Assertion"); it looks like a race.
    """


class TimeLimitError(GuestError):
    """The guest ran into its time limit and was ended."""

    exit_code = 124  # as timeout(1) has it
