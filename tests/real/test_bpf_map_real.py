"""Every kind of map that xskit uses, in the kernel."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import subprocess
import sys

import pytest

from xskit.abi.bpf import MapType, UpdateFlag
from xskit.abi.xdp import AF_XDP
from xskit.bpf.errors import BpfError
from xskit.bpf.map import Map, MapSpec, possible_cpus

pytestmark = pytest.mark.root


def test_array():
    with Map.create(MapSpec("xk_test", MapType.ARRAY, 4, 8, 4)) as array:
        assert array.get(3) == bytes(8)
        array.set(3, 2**40)
        assert array.get(3) == struct.pack("=Q", 2**40)
        assert array.get(4) is None
        with pytest.raises(BpfError, match="E2BIG: its keys end at 3"):
            array.set(4, 0)


def test_hash():
    with Map.create(MapSpec("xk_test", MapType.HASH, 6, 4, 2)) as table:
        mac = bytes.fromhex("020000000001")
        assert table.get(mac) is None
        table.set(mac, 7)
        assert table.get(mac) == struct.pack("=I", 7)
        with pytest.raises(BpfError) as caught:
            table.set(mac, 8, UpdateFlag.NOEXIST)
        assert caught.value.errno == errno.EEXIST
        assert table.delete(mac) is True
        assert table.delete(mac) is False
        table.set(bytes(6), 1)
        table.set(b"\1" * 6, 1)
        with pytest.raises(BpfError, match="E2BIG: it is full, it has room for 2 entries"):
            table.set(b"\2" * 6, 1)


def test_lpm_trie_finds_the_longest_prefix():
    def prefix(length, address):
        return struct.pack("=I", length) + socket.inet_aton(address)

    with Map.create(MapSpec("xk_test", MapType.LPM_TRIE, 8, 4, 16)) as routes:
        routes.set(prefix(8, "10.0.0.0"), 1)
        routes.set(prefix(24, "10.1.2.0"), 2)
        assert routes.get(prefix(32, "10.1.2.3")) == struct.pack("=I", 2)
        assert routes.get(prefix(32, "10.9.9.9")) == struct.pack("=I", 1)
        assert routes.get(prefix(32, "192.0.2.1")) is None


@pytest.mark.parametrize("value_bytes", [4, 8, 12])
def test_per_cpu_array(value_bytes):
    with Map.create(MapSpec("xk_test", MapType.PERCPU_ARRAY, 4, value_bytes, 2)) as counters:
        assert counters.get_per_cpu(1) == [bytes(value_bytes)] * possible_cpus()
        counters.set(1, 77)
        assert counters.get_per_cpu(1) == [(77).to_bytes(value_bytes, "little")] * possible_cpus()
        assert counters.get_per_cpu(2) is None


def test_xskmap_takes_af_xdp_sockets_only():
    with (
        Map.create(MapSpec("xk_test", MapType.XSKMAP, 4, 4, 2)) as sockets,
        socket.socket(AF_XDP, socket.SOCK_RAW, 0) as xsk,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        open("/dev/null") as null,
    ):
        sockets.set(1, xsk.fileno())
        assert sockets.delete(1) is True
        for other, number, why in [
            (udp.fileno(), errno.EOPNOTSUPP, "only AF_XDP sockets go into it"),
            (null.fileno(), errno.ENOTSOCK, "this file descriptor is no socket"),
        ]:
            with pytest.raises(BpfError, match=why) as caught:
                sockets.set(1, other)
            assert caught.value.errno == number
        with pytest.raises(BpfError, match="E2BIG: its keys end at 1"):
            sockets.set(2, xsk.fileno())
        with pytest.raises(BpfError, match="nothing can be read back"):
            sockets.get(1)


def test_impossible_maps_are_refused_with_a_reason():
    with pytest.raises(BpfError) as caught:
        Map.create(MapSpec("xk_test", MapType.XSKMAP, 4, 8, 2))
    assert caught.value.cause == (
        'creating map "xk_test" (XSKMAP) failed: EINVAL: '
        "this kernel does not know the type, or a size does not fit the type"
    )


def test_file_descriptors_do_not_survive_exec():
    with Map.create(MapSpec("xk_test", MapType.ARRAY, 4, 4, 1)) as array:
        assert fcntl.fcntl(array.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


UNPRIVILEGED = """
import os
from xskit.abi.bpf import MapType
from xskit.bpf.map import Map, MapSpec
from xskit.bpf.probe import BpfFeature, probe
from xskit.errors import PrivilegeError
os.setuid(65534)
try:
    Map.create(MapSpec("xk_test", MapType.XSKMAP, 4, 4, 1))
except PrivilegeError as error:
    print(error.cause)
print(probe(BpfFeature.XDP_PROGRAM).available)
"""


def test_without_rights_nothing_is_claimed():
    said = subprocess.check_output([sys.executable, "-c", UNPRIVILEGED], text=True, timeout=60).splitlines()
    assert said == [
        'creating map "xk_test" (XSKMAP) needs CAP_BPF and CAP_NET_ADMIN in the initial user namespace, '
        "and this process lacks them",
        "None",
    ]
