"""Named network namespaces, compatible with `ip netns`, and threads that go in and come back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from xskit import libc
from xskit.errors import DeviceError
from xskit.netconf.changes import CreateNamespace, Fate
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import (
    FOLDER,
    MissingError,
    Namespace,
    create_namespace,
    find,
    identity,
    inside,
    names,
    remove_namespace,
)

pytestmark = pytest.mark.root

NAME = f"xkn{os.getpid()}"


def interfaces_here() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def namespace():
    yield create_namespace(NAME)
    remove_namespace(NAME)


def test_ip_sees_ours_and_can_delete_it(namespace):
    assert namespace.exists
    assert NAME in names()
    assert NAME in ip("netns", "list").split()
    assert ip("netns", "exec", NAME, "readlink", "/proc/self/ns/net").strip() == f"net:[{identity(namespace.path)}]"
    ip("netns", "delete", NAME)
    assert not namespace.exists
    assert not remove_namespace(NAME)


def test_we_see_those_of_ip():
    ip("netns", "add", NAME)
    with inside(NAME):
        assert interfaces_here() == ["lo"]
    with pytest.raises(DeviceError, match=f"^there is already a network namespace {NAME}\n"):
        create_namespace(NAME)
    assert remove_namespace(NAME)
    assert NAME not in ip("netns", "list").split()


def test_mount_is_seen_in_a_mount_namespace_that_was_there_before():
    """Shared propagation: what is created later is seen there, and what is removed does not live on."""
    ip("netns", "add", f"{NAME}x")  # so that /run/netns is a shared mount before the other mount namespace is made
    remove_namespace(f"{NAME}x")
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", f"echo; read _; stat -fc %T {FOLDER}/{NAME}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        create_namespace(NAME)
        try:
            out, _ = other.communicate("\n")
        finally:
            remove_namespace(NAME)
    assert out.strip() == "nsfs"


def test_the_rest_of_a_half_made_one_is_used_and_removed():
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / NAME).touch()
    assert not Namespace(NAME).exists
    with pytest.raises(MissingError, match=f"there is no network namespace {NAME}"), inside(NAME):
        pass
    create_namespace(NAME)
    assert Namespace(NAME).exists
    assert remove_namespace(NAME)
    (FOLDER / NAME).touch()
    assert remove_namespace(NAME)
    assert not (FOLDER / NAME).exists()


@pytest.mark.parametrize("how", ["handle", "name", "path", "fd"])
def test_inside_by_any_handle(namespace, how):
    home = identity()
    fd = namespace.open()
    try:
        with inside({"handle": namespace, "name": NAME, "path": namespace.path, "fd": fd}[how]):
            assert identity() == identity(namespace.path)
            assert interfaces_here() == ["lo"]
        assert identity() == home
    finally:
        os.close(fd)


def test_only_the_calling_thread_moves(namespace):
    home, seen, entered, looked = identity(), [], threading.Event(), threading.Event()

    def other() -> None:
        entered.wait(5)
        seen.append(identity())
        looked.set()

    thread = threading.Thread(target=other)
    thread.start()
    with inside(namespace):
        entered.set()
        looked.wait(5)
    thread.join()
    assert seen == [home]
    assert os.stat("/proc/self/ns/net").st_ino == home


def test_back_home_after_an_error_and_from_a_nested_one(namespace):
    home = identity()
    second = create_namespace(f"{NAME}b")
    try:
        with suppress(ZeroDivisionError), inside(namespace):
            with inside(second):
                assert identity() == identity(second.path)
            assert identity() == identity(namespace.path)
            raise ZeroDivisionError
    finally:
        remove_namespace(second.name)
    assert identity() == home


def test_no_descriptor_is_left(namespace):
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with inside(namespace):
            pass
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_making_one_leaves_the_thread_at_home_even_if_it_fails(monkeypatch):
    home = identity()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    create_namespace(NAME)
    remove_namespace(NAME)
    real = libc.mount
    monkeypatch.setattr(
        libc, "mount", lambda source, *rest: refuse() if "thread-self" in source else real(source, *rest)
    )
    with pytest.raises(Exception, match=f"the network namespace {NAME} cannot be made: No space left on device"):
        create_namespace(NAME)
    assert identity() == home
    assert not (FOLDER / NAME).exists()


def test_find_by_number(namespace):
    number = identity(namespace.path)
    assert number is not None
    assert find(number) == namespace.path


def test_the_namespace_that_the_only_process_of_a_container_came_from_is_found(namespace):
    code = (
        "import subprocess, sys\n"
        "from xskit.netconf.namespaces import find, identity, inside\n"
        "from xskit.netconf.peers import far_end\n"
        "home, other = identity(), sys.argv[1]\n"
        "subprocess.run(['ip', 'link', 'add', 'xk0', 'type', 'veth', 'peer', 'xk1', 'netns', other], check=True)\n"
        "with inside(other):\n"
        "    assert identity(find(home)) == home\n"
        "    far = far_end('xk1')\n"
        "    with inside(far.namespace):\n"
        "        assert (far.name, identity()) == ('xk0', home)\n"
    )
    subprocess.run(["unshare", "--net", sys.executable, "-c", code, NAME], check=True)


def test_the_change_brings_loopback_up(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path))
    with Journal.open() as journal:
        journal.apply(CreateNamespace(NAME))
        assert "LOOPBACK,UP" in ip("-n", NAME, "link", "show", "lo")
        with pytest.raises(DeviceError, match=f"there is already a network namespace {NAME}"):
            journal.apply(CreateNamespace(NAME))
    assert not (Path("/run/netns") / NAME).exists()


def test_one_of_the_same_name_that_somebody_else_made_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path))
    with Journal.open() as journal:
        journal.apply(CreateNamespace(NAME))
        keeper = Namespace(NAME).open()  # so that the number is not given away again
        ip("netns", "delete", NAME)
        ip("netns", "add", NAME)
        (fate,) = journal.restore()
        os.close(keeper)
    assert fate.fate is Fate.KEPT
    assert Namespace(NAME).exists
    remove_namespace(NAME)
