"""A machine of its own for each test of the command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import rig


@pytest.fixture
def machine() -> Iterator[rig.Outer]:
    """A network namespace with nothing but loopback, in which xskit is started."""
    with rig.outer() as made:
        yield made


@pytest.fixture
def bridge(machine: rig.Outer) -> Iterator[rig.Bridge]:
    """The machine with two interfaces, xka and xkb, each with a host behind it."""
    with rig.bridge(machine) as made:
        yield made
