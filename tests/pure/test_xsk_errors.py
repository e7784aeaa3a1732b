"""Every line of the table of explanations is a whole sentence with the facts in it."""

from __future__ import annotations

import errno

import pytest

from xskit.errors import DeviceError, KernelError, PrivilegeError
from xskit.xsk.errors import EXPLANATIONS, Call, PortError, SocketError, explain

FACTS = {
    "interface": "va",
    "queue": 1,
    "queue_range": "0 to 3",
    "needed_queues": 2,
    "entries": 3,
    "nearest": 4,
    "ring": "RX",
    "ring_argument": "rx",
    "frames": 16,
    "frame_size": 2048,
    "headroom": 1500,
    "largest_headroom": 1344,
    "needed": 32768,
    "needed_kib": 32,
    "allowed": 8192,
    "holders": "; AF_XDP sockets are open in x (pid 7)",
    "option": "XDP_X",
    "budget": 9,
}


@pytest.mark.parametrize("key", EXPLANATIONS, ids=lambda key: f"{key[0].name}-{errno.errorcode[key[1]]}-{key[2]}")
def test_every_explanation_can_be_said(key):
    call, number, condition = key
    error = explain(call, number, condition, **FACTS)
    assert "{" not in str(error)
    assert not error.cause.endswith(".")
    assert isinstance(error, PrivilegeError if number == errno.EPERM else (SocketError, PortError))
    if isinstance(error, (SocketError, PortError)):
        assert error.errno == number


def test_busy_names_the_holders():
    error = explain(Call.BIND, errno.EBUSY, **FACTS)
    assert error.cause == "queue 1 of va is in use; AF_XDP sockets are open in x (pid 7)"
    assert isinstance(error, DeviceError)


def test_memlock_says_how_much_is_needed_and_how_much_is_allowed():
    error = explain(Call.REGISTER, OSError(errno.ENOBUFS, ""), **FACTS)
    assert str(error) == (
        "registering the packet memory locks 32768 bytes, and this user may lock 8192 (RLIMIT_MEMLOCK)\n"
        "  try: ulimit -l 32 (systemd: LimitMEMLOCK=32768), or give CAP_IPC_LOCK"
    )


def test_a_condition_without_a_line_falls_back_to_the_plain_case():
    assert explain(Call.BIND, errno.EBUSY, "zero copy", **FACTS).cause == explain(Call.BIND, errno.EBUSY, **FACTS).cause


def test_an_unknown_errno_is_named():
    error = explain(Call.BIND, errno.ELOOP, interface="va")
    assert error.cause == "bind failed on va: ELOOP: Too many levels of symbolic links"
    assert isinstance(error, KernelError)
