"""What the user reads when the network set-up cannot be changed."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from xskit.errors import DeviceError, PrivilegeError, UsageError
from xskit.netconf import interfaces, privileges
from xskit.netconf.changes import AddRoute, CreateNamespace, SetAddress, SetNeighbour, SetSysctl, VethEnd
from xskit.netconf.namespaces import MissingError, Namespace, create_namespace, find, identity, inside
from xskit.netconf.processes import spawn_in


def test_no_interface(monkeypatch):
    monkeypatch.setattr(interfaces.socket, "if_nameindex", lambda: [(1, "lo"), (2, "vab"), (3, "eth0")])
    with pytest.raises(MissingError) as caught:
        interfaces.look("va")
    assert isinstance(caught.value, DeviceError)
    assert caught.value.cause == "there is no interface va in this network namespace; did you mean vab?"
    assert caught.value.remedy == "ip -brief link"


@pytest.mark.parametrize("ask", [interfaces.index, interfaces.is_up, interfaces.mtu, interfaces.look])
def test_no_interface_whoever_asks(ask):
    with pytest.raises(MissingError, match="there is no interface xk-qqq in this network namespace\n"):
        ask("xk-qqq")


def test_no_namespace():
    for missing in ("xk-none", "/run/netns/xk-none", Namespace("xk-none")):
        with pytest.raises(MissingError) as caught, inside(missing):
            pass
        assert str(caught.value) == "there is no network namespace xk-none\n  try: ip netns list"
    assert not Namespace("xk-none").exists


@pytest.mark.parametrize("name", ["lab", "", "xk/..", "xk a", "xk" + "a" * 62])
def test_a_namespace_of_xskit_is_named_so(name):
    with pytest.raises(UsageError, match="is named xk"):
        create_namespace(name)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: VethEnd("a b", "xka"), "an interface name has 1 to 15 letters, digits or .-_, not 'a b'"),
        (lambda: VethEnd("xk" + "a" * 14), "an interface name has 1 to 15 letters"),
        (lambda: VethEnd("veth0"), "a veth of xskit outside its own namespaces is named xk..., not 'veth0'"),
        (lambda: VethEnd("veth0", "other"), "a veth of xskit outside its own namespaces is named xk..., not 'veth0'"),
        (lambda: VethEnd("a", "xka", mac="02:00"), "'02:00' is not a MAC address such as 02:00:00:00:00:01"),
        (lambda: VethEnd("a", "xka", queues=0), "a veth end has at least one queue"),
        (lambda: SetAddress("a", "10.0.0"), "'10.0.0' is not an address with a prefix length such as 10.0.0.1/24"),
        (lambda: SetAddress("a", "10.0.0.1"), "'10.0.0.1' is not an address with a prefix length such as 10.0.0.1/24"),
        (lambda: SetSysctl("kernel.panic", "1"), "'kernel.panic' is not a network parameter"),
        (lambda: SetSysctl("net/../kernel/panic", "1"), "is not a network parameter"),
        (lambda: AddRoute("10.0.0.1/8", via="10.1.1.1"), "the route to 10.0.0.1/8 via 10.1.1.1 cannot be meant"),
        (lambda: AddRoute("default"), "the route to default names neither a router nor an interface"),
        (lambda: SetNeighbour("a", "10.0.0.1/24", "02:00:00:00:00:01"), "'10.0.0.1/24' is not an IP address"),
        (lambda: SetNeighbour("a", "10.0.0.1", "02:00"), "'02:00' is not a MAC address such as 02:00:00:00:00:01"),
        (
            lambda: AddRoute("10.0.0.0/8", None, "a", source="fd00::1"),
            "the route to 10.0.0.0/8 out of a mixes IPv4 and",
        ),
        (lambda: AddRoute("default", via="fe80::1"), "the route to default via fe80::1 mixes IPv4 and IPv6"),
    ],
)
def test_what_cannot_be_meant(make, sentence):
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.cause.startswith(sentence) or sentence in caught.value.cause


def test_missing_capabilities(monkeypatch):
    status = "Name:\tx\nCapEff:\t0000000000001000\nCapBnd:\t000001ffffffffff\n"  # CAP_NET_ADMIN alone
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: status)
    assert privileges.missing(["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]) == ["CAP_NET_RAW", "CAP_BPF"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/xskit", "run", "--owd", "30ms"])
    with pytest.raises(PrivilegeError) as caught:
        privileges.require(["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"], "opening va")
    assert str(caught.value) == "opening va needs CAP_NET_RAW and CAP_BPF\n  try: sudo xskit run --owd 30ms"
    with pytest.raises(PrivilegeError, match="opening va needs CAP_SYS_ADMIN, CAP_NET_RAW and CAP_BPF"):
        privileges.require(["CAP_SYS_ADMIN", "CAP_NET_RAW", "CAP_BPF"], "opening va")
    privileges.require("CAP_NET_ADMIN", "changing the MTU")


def test_what_the_status_file_says():
    effective = int(Path("/proc/self/status").read_text().partition("CapEff:\t")[2].split()[0], 16)
    expected = [name for name, bit in privileges.CAPABILITIES.items() if not effective & 1 << bit]
    assert privileges.missing(privileges.CAPABILITIES) == expected


@pytest.mark.parametrize(
    ("argv", "typed", "remedy"),
    [
        (["/usr/bin/xskit", "restore"], "", "sudo xskit restore"),
        (["/home/me/venv/bin/xskit", "run", "--", "ls", "a b"], "", "sudo /home/me/venv/bin/xskit run -- ls 'a b'"),
        (["/home/me/venv/bin/pytest", "-x"], "", "sudo /home/me/venv/bin/pytest -x"),
        (["/x/site-packages/xskit/__main__.py", "restore"], "-m xskit restore", "sudo {python} -m xskit restore"),
        (["script.py", "5"], "script.py 5", "sudo {python} script.py 5"),
        (["/x/pytest/__main__.py", "-x"], "-X dev -m pytest -x", "sudo {python} -X dev -m pytest -x"),
        (["-c", "a"], "-c 'import xskit; xskit.Lab()' a", "sudo {python} -c 'import xskit; xskit.Lab()' a"),
        ([""], "", "sudo {python}"),
        ([], "", "sudo xskit"),
    ],
)
def test_the_command_that_has_the_capability(monkeypatch, argv, typed, remedy):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", ["python3", *shlex.split(typed)])
    assert privileges._with_sudo() == remedy.format(python=sys.executable)


def test_a_refusal_without_the_capability_says_which(monkeypatch):
    monkeypatch.setattr(privileges, "missing", list)
    error = OSError(errno.EPERM, "Operation not permitted")
    with pytest.raises(PrivilegeError, match="changing the network set-up needs CAP_NET_ADMIN"):
        interfaces.refusal("the MTU of va cannot be 9", error, "va")
    monkeypatch.setattr(privileges, "missing", lambda names: [])
    refused = interfaces.refusal("the MTU of va cannot be 9", error, "va")
    assert refused.cause == "the MTU of va cannot be 9: Operation not permitted"
    monkeypatch.setattr(privileges, "missing", list)
    with pytest.raises(PrivilegeError):
        spawn_in("xka", ["true"])


def test_no_command():
    with pytest.raises(UsageError, match="there is no command to start"):
        spawn_in("xka", [])


def test_the_namespace_where_one_is_needs_no_entering():
    with inside("/proc/self/ns/net"):
        assert identity() == os.stat("/proc/self/ns/net").st_ino
    own = identity()
    assert own is not None
    assert find(own) == Path("/proc/thread-self/ns/net")
    assert find(1) is None


def test_a_namespace_change_needs_no_root_to_be_described():
    assert str(CreateNamespace("xka")) == "network namespace xka"


def test_importing_netconf_is_cheap():
    """Neither pyroute2, NumPy nor Numba: commands that move no packets answer at once."""
    code = "import sys, xskit.netconf.journal, xskit.netconf.processes; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"pyroute2", "numba", "numpy", "asyncio", "xskit.jit", "xskit.memory"} & set(loaded)
