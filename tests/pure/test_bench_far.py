"""What waits at the far ends of a benchmark, with a program that counts as it is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from xskit.bench import far


def test_a_program_is_drained_when_it_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NICs the last packets are counted after they have left the sender."""
    monkeypatch.setattr(far, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    counted = iter([(1, 60), (2, 120), (3, 180), (3, 180)])
    program = object.__new__(far.FarProgram)
    program._program = SimpleNamespace(counts=lambda: next(counted))
    program.drain()
    assert next(counted, None) is None


def test_a_program_that_counts_for_ever_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, counted = iter(range(1000)), iter(range(1000))
    monkeypatch.setattr(far, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10, sleep=lambda seconds: None))
    program = object.__new__(far.FarProgram)
    program._program = SimpleNamespace(counts=lambda: (next(counted), 0))
    program.drain()
    assert next(counted) < 20
