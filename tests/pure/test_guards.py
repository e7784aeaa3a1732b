"""The guard of the test session sees what stays open, and says after which test."""

from __future__ import annotations

import os

from tests.guards import Watch


def test_a_descriptor_that_stays_open_is_found():
    watch = Watch(whole_host=False)
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        watch.note("test_a")
        watch.note("test_b")
        assert watch.leaked("test_z", grace_s=0) == [f"file descriptor {fd} (/dev/null), first seen after test_a"]
    finally:
        os.close(fd)
    assert watch.leaked("test_z", grace_s=0) == []


def test_what_no_test_noted_belongs_to_the_last():
    watch = Watch(whole_host=False)
    with open("/dev/null") as file:
        expected = f"file descriptor {file.fileno()} (/dev/null), first seen after test_z"
        assert watch.leaked("test_z", grace_s=0) == [expected]
