"""Impairments, one file each. What is said here of all of them needs no compiler."""

from xskit.units import QueueLimit

DEFAULT_QUEUE = QueueLimit(unit="ns", value=50_000_000)
"""What a bottleneck holds unless told: never packets, whose time depends on the rate."""
