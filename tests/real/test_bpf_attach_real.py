"""Attaching on a veth pair: both modes, what is refused and in which words, and real packets through the stamps."""

from __future__ import annotations

import errno
import socket
import struct
import subprocess
import sys
import time

import pytest

from tests.real.bpf_veth import entered, ip, one_namespace, two_hosts
from xskit.abi.netlink import XdpAttachFlag
from xskit.bpf import netlink
from xskit.bpf.attach import XdpMode, attach, attach_tcx_egress
from xskit.bpf.errors import AttachError
from xskit.bpf.occupants import occupants
from xskit.bpf.program import Program
from xskit.bpf.redirect import Outcome, RedirectProgram, drop_program, pass_program
from xskit.bpf.stamps import arrival_stamp_program, egress_stamp_program

pytestmark = pytest.mark.root

SO_NO_CHECK = 11  # asm-generic/socket.h
PORT = 4790


@pytest.fixture
def va():
    """A veth pair in a namespace of its own; the number of its one end."""
    with one_namespace():
        yield socket.if_nametoindex("va")


@pytest.fixture
def jumbo():
    with one_namespace(mtu=9000):
        yield socket.if_nametoindex("va")


@pytest.fixture
def program():
    with Program.load(pass_program()) as loaded:
        yield loaded


def refusal(program, ifindex, mode):
    with pytest.raises(AttachError) as caught:
        attach(program, ifindex, mode)
    return caught.value


@pytest.mark.parametrize("mode", XdpMode)
def test_attached_until_closed(va, program, mode):
    with attach(program, va, mode) as link:
        (occupant,) = occupants(va)
        assert (occupant.mode, occupant.program_id, occupant.program_name) == (str(mode), program.id, "xk_pass")
        assert occupant.link_id == link.id
        assert [name for _, name in occupant.holders] == ["this process"]
        assert repr(link) == f"<BpfLink xk_pass on {va}, {mode}>"
    assert occupants(va) == ()
    assert repr(link).endswith("closed>")


def test_a_program_on_two_interfaces_has_a_link_on_each(va, program):
    vb = socket.if_nametoindex("vb")
    with attach(program, va, XdpMode.NATIVE) as first, attach(program, vb, XdpMode.NATIVE) as second:
        assert [occupant.link_id for ifindex in (va, vb) for occupant in occupants(ifindex)] == [first.id, second.id]
        second.close()
        netlink.set_xdp(vb, program.fd, XdpAttachFlag.DRV_MODE)
        assert refusal(program, vb, XdpMode.NATIVE).remedy == "ip link set dev vb xdpdrv off"


def test_the_link_outlives_the_program_object(va):
    with Program.load(pass_program()) as program:
        link = attach(program, va, XdpMode.NATIVE)
    with link:
        assert [occupant.program_name for occupant in occupants(va)] == ["xk_pass"]


def test_a_second_link_is_told_who_holds_the_first(va, program):
    with attach(program, va, XdpMode.NATIVE):
        error = refusal(program, va, XdpMode.NATIVE)
    assert error.errno == errno.EBUSY
    assert error.cause == (
        f'cannot attach program "xk_pass" to va (native): EBUSY: another XDP program (id {program.id}, name xk_pass, '
        "native) is attached to va, held there by this process itself "
        '(the kernel: "Can\'t replace active BPF XDP link")'
    )
    assert error.remedy == "close the link of that program first"


def test_the_other_mode_is_refused_while_one_is_attached(va, program):
    with attach(program, va, XdpMode.GENERIC) as link:
        error = refusal(program, va, XdpMode.NATIVE)
        assert link.id
    assert error.errno == errno.EEXIST
    assert error.cause == (
        f'cannot attach program "xk_pass" to va (native): EEXIST: another XDP program (id {program.id}, name xk_pass, '
        "generic) is attached to va, and native and generic XDP exclude each other, held there by this process itself "
        '(the kernel: "Native and generic XDP can\'t be active at the same time")'
    )


@pytest.mark.parametrize(
    ("mode", "flag", "word"),
    [(XdpMode.NATIVE, XdpAttachFlag.DRV_MODE, "xdpdrv"), (XdpMode.GENERIC, XdpAttachFlag.SKB_MODE, "xdpgeneric")],
)
def test_a_program_attached_by_netlink_is_taken_off_by_the_remedy(va, program, mode, flag, word):
    netlink.set_xdp(va, program.fd, flag)
    error = refusal(program, va, mode)
    assert error.cause == (
        f'cannot attach program "xk_pass" to va ({mode}): EBUSY: another XDP program (id {program.id}, name xk_pass, '
        f'{mode}) is attached to va (the kernel: "XDP program already attached")'
    )
    assert error.remedy == f"ip link set dev va {word} off"
    subprocess.run(error.remedy.split(), check=True, timeout=30)
    with attach(program, va, mode):
        assert [occupant.mode for occupant in occupants(va)] == [str(mode)]


HOLDER = """
import sys
from xskit.bpf.attach import XdpMode, attach
from xskit.bpf.program import Program
from xskit.bpf.redirect import drop_program
with Program.load(drop_program()) as program, attach(program, int(sys.argv[1]), XdpMode.NATIVE):
    print("attached", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_named_and_its_end_frees_the_interface(va, program):
    command = [sys.executable, "-c", HOLDER, str(va)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "attached\n"
            error = refusal(program, va, XdpMode.NATIVE)
        finally:
            holder.kill()
    assert f"name xk_drop, native) is attached to va, held there by process {holder.pid} (python" in error.cause
    assert error.remedy == f"kill {holder.pid}"
    _until(lambda: occupants(va) == ())
    attach(program, va, XdpMode.NATIVE).close()


def test_a_large_mtu_needs_frags_in_native_mode(jumbo, program):
    error = refusal(program, jumbo, XdpMode.NATIVE)
    assert error.errno == errno.ERANGE
    assert error.cause == (
        'cannot attach program "xk_pass" to va (native): ERANGE: the MTU of vb is above the 3506 bytes that fit into '
        "one page, and the program does not take multi-buffer packets "
        '(the kernel: "veth: Peer MTU is too large to set XDP")'
    )
    assert error.remedy == "ip link set dev vb mtu 3506, or load the program with frags"
    assert occupants(jumbo) == ()
    attach(program, jumbo, XdpMode.GENERIC).close()
    with Program.load(pass_program(frags=True)) as with_frags:
        attach(with_frags, jumbo, XdpMode.NATIVE).close()
    ip("link", "set", "dev", "vb", "mtu", "3506")
    attach(program, jumbo, XdpMode.NATIVE).close()


def test_more_queues_at_the_peer(program):
    with one_namespace():
        one, four = ("numrxqueues", "1", "numtxqueues", "1"), ("numrxqueues", "4", "numtxqueues", "4")
        ip("link", "add", "vc", *one, "type", "veth", "peer", "name", "vd", *four)
        error = refusal(program, socket.if_nametoindex("vc"), XdpMode.NATIVE)
    assert error.errno == errno.ENOSPC
    assert error.cause == (
        'cannot attach program "xk_pass" to vc (native): ENOSPC: the peer of vc has more TX queues than vc has RX '
        'queues (the kernel: "veth: XDP expects number of rx queues not less than peer tx queues")'
    )
    assert error.remedy == "ethtool -L vd tx 1"


def test_loopback_has_no_native_mode(va, program):
    error = refusal(program, socket.if_nametoindex("lo"), XdpMode.NATIVE)
    assert error.cause == (
        'cannot attach program "xk_pass" to lo (native): EOPNOTSUPP: the driver of lo has no native XDP, or not with '
        'the present settings (the kernel: "Underlying driver does not support XDP in native mode")'
    )
    assert error.remedy == "mode='generic'"


@pytest.mark.parametrize("mode", XdpMode)
def test_a_missing_interface(va, program, mode):
    error = refusal(program, 4711, mode)
    assert error.cause == "there is no interface with index 4711 in this network namespace"


def test_trying_again_by_netlink_leaves_nothing_behind(va, program, monkeypatch):
    """The second try is for its words only: should the kernel accept it, the program comes off again."""

    def refuse(*_):
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr("xskit.bpf.attach.syscall.link_create", refuse)
    error = refusal(program, va, XdpMode.NATIVE)
    assert error.cause == (
        'cannot attach program "xk_pass" to va (native): EBUSY: another XDP program was attached, and is gone by now'
    )
    assert occupants(va) == ()


@pytest.mark.parametrize("mode", XdpMode)
def test_packets_without_a_socket_reach_the_stack_and_are_counted(mode):
    with two_hosts() as (a, b), RedirectProgram.load() as redirect:
        with entered(b):
            link = redirect.attach(socket.if_nametoindex("vb"), mode)
        with link, _udp(b, bind=True) as receiver, _udp(a) as sender:
            for number in range(10):
                sender.sendto(bytes([number]) * 100, ("10.99.0.2", PORT))
            assert [receiver.recv(2048)[0] for _ in range(10)] == list(range(10))
            outcomes = redirect.outcomes()
    assert outcomes[Outcome.PASSED] >= 10
    assert outcomes[Outcome.REDIRECTED] == outcomes[Outcome.UNSTAMPED] == 0


def test_drop_lets_nothing_through():
    with two_hosts() as (a, b), Program.load(drop_program()) as program:
        with entered(b):
            link = attach(program, socket.if_nametoindex("vb"), XdpMode.NATIVE)
        with _udp(b, bind=True) as receiver, _udp(a) as sender:
            with link:
                sender.sendto(b"dropped", ("10.99.0.2", PORT))
            sender.sendto(b"after", ("10.99.0.2", PORT))
            assert receiver.recv(2048) == b"after"


@pytest.mark.parametrize("mode", XdpMode)
def test_a_packet_carries_the_time_it_left_and_the_time_it_came(mode):
    with (
        two_hosts() as (a, b),
        Program.load(egress_stamp_program(PORT, 0)) as leaving,
        Program.load(arrival_stamp_program(PORT, 8)) as coming,
    ):
        with entered(a):
            out = attach_tcx_egress(leaving, socket.if_nametoindex("va"))
        with entered(b):
            into = attach(coming, socket.if_nametoindex("vb"), mode)
        with out, into, _udp(b, bind=True) as receiver, _udp(a) as sender:
            for size in (16, 100, 1400):
                before_ns = time.monotonic_ns()
                sender.sendto(bytes(size), ("10.99.0.2", PORT))
                payload = receiver.recv(2048)
                after_ns = time.monotonic_ns()
                left_ns, came_ns = struct.unpack_from("<QQ", payload)
                assert before_ns <= left_ns <= came_ns <= after_ns
                assert payload[16:] == bytes(size - 16)
        with _udp(b, bind=True) as receiver, _udp(a) as sender:
            sender.sendto(bytes(100), ("10.99.0.2", PORT))
            assert receiver.recv(2048) == bytes(100)  # closed links stamp nothing


def test_tcx_on_a_missing_interface(va):
    with Program.load(egress_stamp_program(PORT, 0)) as program, pytest.raises(AttachError) as caught:
        attach_tcx_egress(program, 4711)
    assert caught.value.cause == "there is no interface with index 4711 in this network namespace"


def _udp(namespace, *, bind=False):
    """A UDP socket in a namespace, without checksums, that gives up after a while instead of hanging."""
    with entered(namespace):
        new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    new.settimeout(10)
    new.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    if bind:
        new.bind(("10.99.0.2", PORT))
    return new


def _until(condition):
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)
