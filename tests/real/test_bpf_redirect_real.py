"""The fixed programs in the kernel: each run on packets by BPF_PROG_TEST_RUN, no interface needed."""

from __future__ import annotations

import os
import re
import socket
import struct
import time

import pytest

from tests.real.bpf_veth import one_namespace
from xskit.abi.bpf import AttachType, BpfCommand, Helper, ProgramType, TcxAction, XdpAction
from xskit.abi.xdp import AF_XDP
from xskit.bpf import probe, syscall
from xskit.bpf.asm import R0, R1, R2, R10, U32, U64, Assembler, encode
from xskit.bpf.disasm import listing
from xskit.bpf.errors import BpfError, VerifierError
from xskit.bpf.program import Program, ProgramSpec, program_info
from xskit.bpf.redirect import (
    STAMP_BYTES,
    Outcome,
    RedirectProgram,
    drop_program,
    pass_program,
)
from xskit.bpf.stamps import PAYLOAD_OFFSET_BYTES, arrival_stamp_program, egress_stamp_program
from xskit.errors import UsageError

pytestmark = pytest.mark.root

ETHERNET = bytes.fromhex("020000000002 020000000001")
SMALLEST = ETHERNET + bytes.fromhex("88b5")


def udp(port, payload, *, options=b"", fragment=0, protocol=17):
    """A UDP packet over IPv4, without checksums: no program looks at them."""
    header = struct.pack(
        "!BBHHHBBH4s4s",
        0x45 + len(options) // 4,
        0,
        28 + len(options) + len(payload),
        0,
        fragment,
        64,
        protocol,
        0,
        bytes([10, 99, 0, 1]),
        bytes([10, 99, 0, 2]),
    )
    body = struct.pack("!HHHH", 4000, port, 8 + len(payload), 0) + payload
    return ETHERNET + b"\x08\x00" + header + options + body


PACKETS = {
    "smallest": SMALLEST,
    "arp": ETHERNET + bytes.fromhex("0806") + bytes(46),
    "vlan": ETHERNET + bytes.fromhex("8100 0064 0800") + bytes(60),
    "udp": udp(9, bytes(range(64))),
    "large": udp(9, bytes(1472)),
}


@pytest.fixture
def redirect():
    with RedirectProgram.load(queues=4) as program:
        yield program


@pytest.fixture
def xsk():
    """An AF_XDP socket: for a test run it need not be bound."""
    with socket.socket(AF_XDP, socket.SOCK_RAW, 0) as new:
        yield new


def counted(**counts):
    return {outcome: counts.get(outcome.name.lower(), 0) for outcome in Outcome}


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS.keys())
def test_a_registered_queue_gets_the_packet_and_its_arrival_time(redirect, xsk, packet):
    redirect.register(0, xsk.fileno())
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    result = redirect.program.test_run(packet)
    after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert result.action == XdpAction.REDIRECT
    assert result.packet == packet
    assert len(result.metadata) == STAMP_BYTES
    assert before_ns <= int.from_bytes(result.metadata, "little") <= after_ns
    assert redirect.outcomes() == counted(redirected=1)


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS.keys())
def test_without_a_socket_the_stack_gets_the_packet_untouched(redirect, packet):
    result = redirect.program.test_run(packet)
    assert (result.action, result.packet, result.metadata) == (XdpAction.PASS, packet, b"")
    assert redirect.outcomes() == counted(passed=1)


def test_each_queue_has_its_own_socket(redirect, xsk):
    with one_namespace():
        ifindex = socket.if_nametoindex("lo")  # one RX queue
        redirect.register(1, xsk.fileno())
        assert redirect.program.test_run(SMALLEST, ifindex=ifindex, queue=0).action == XdpAction.PASS
        redirect.register(0, xsk.fileno())
        assert redirect.program.test_run(SMALLEST, ifindex=ifindex, queue=0).action == XdpAction.REDIRECT
        with pytest.raises(BpfError, match="EINVAL"):
            redirect.program.test_run(SMALLEST, ifindex=ifindex, queue=1)


@pytest.mark.parametrize("metadata", [b"four", b"twelve bytes", bytes(208)])
def test_a_stamp_that_does_not_fit_before_the_packet_is_left_out(redirect, xsk, metadata):
    """4 and 12: the driver's own metadata lies where the stamp belongs.  208: adjust_meta refuses."""
    redirect.register(0, xsk.fileno())
    result = redirect.program.test_run(SMALLEST, metadata=metadata)
    assert (result.action, result.packet) == (XdpAction.REDIRECT, SMALLEST)
    assert result.metadata.endswith(metadata)
    assert redirect.outcomes() == counted(unstamped=1)


def test_outcomes_add_up_over_many_runs(redirect, xsk):
    redirect.program.test_run(SMALLEST, repeat=1000)
    redirect.register(0, xsk.fileno())
    redirect.program.test_run(SMALLEST, repeat=1)
    redirect.unregister(0)
    redirect.program.test_run(SMALLEST, repeat=10)
    assert redirect.outcomes() == counted(redirected=1, passed=1010)


def test_registering_says_what_is_wrong(redirect, xsk):
    redirect.register(3, xsk.fileno())
    with (
        socket.socket(AF_XDP, socket.SOCK_RAW, 0) as second,
        pytest.raises(UsageError, match=r"^RX queue 3 has a socket already: unregister it first$"),
    ):
        redirect.register(3, second.fileno())
    with pytest.raises(UsageError, match=r"^RX queue 4 is not among the 4 queues the program was loaded for$"):
        redirect.register(4, xsk.fileno())
    with pytest.raises(BpfError, match="only AF_XDP sockets go into it"), socket.socket() as tcp:
        redirect.register(2, tcp.fileno())
    redirect.unregister(3)
    redirect.unregister(3)
    redirect.unregister(99)
    redirect.register(3, xsk.fileno())


def test_a_closed_socket_is_forgotten(redirect):
    with socket.socket(AF_XDP, socket.SOCK_RAW, 0) as short_lived:
        redirect.register(0, short_lived.fileno())
        assert redirect.program.test_run(SMALLEST).action == XdpAction.REDIRECT
    assert redirect.program.test_run(SMALLEST).action == XdpAction.PASS


def test_frags_are_taken_where_the_kernel_can(xsk):
    with RedirectProgram.load() as program:
        assert program.program.spec.frags is probe.available(probe.BpfFeature.XDP_FRAGS)
        assert program.queues == 64
    with RedirectProgram.load(frags=False) as program:
        assert program.program.spec.frags is False


def test_a_multi_buffer_packet_is_stamped_in_front_of_its_first_buffer(xsk):
    with RedirectProgram.load(frags=True) as redirect:
        redirect.register(0, xsk.fileno())
        packet = udp(9, bytes(9000))
        result = redirect.program.test_run(packet)
    assert result.action == XdpAction.REDIRECT
    assert len(result.metadata) == STAMP_BYTES
    assert result.packet == packet


@pytest.mark.parametrize(("spec", "action"), [(pass_program(), XdpAction.PASS), (drop_program(), XdpAction.DROP)])
def test_pass_and_drop(spec, action):
    with Program.load(spec) as program:
        result = program.test_run(PACKETS["udp"])
    assert (result.action, result.packet) == (action, PACKETS["udp"])


def test_arrival_stamp_is_written_into_the_payload():
    packet = udp(9, bytes(64))
    with Program.load(arrival_stamp_program(9, 8)) as program:
        before_ns = time.monotonic_ns()
        result = program.test_run(packet)
        after_ns = time.monotonic_ns()
    assert result.action == XdpAction.PASS
    at = PAYLOAD_OFFSET_BYTES + 8
    assert before_ns <= int.from_bytes(result.packet[at : at + 8], "little") <= after_ns
    assert result.packet[:at] + bytes(8) + result.packet[at + 8 :] == packet


def test_egress_stamp_is_written_into_the_payload():
    packet = udp(9, bytes(64))
    with Program.load(egress_stamp_program(9, 0)) as program:
        before_ns = time.monotonic_ns()
        result = program.test_run(packet)
        after_ns = time.monotonic_ns()
    assert result.action == TcxAction.NEXT & 0xFFFF_FFFF
    at = PAYLOAD_OFFSET_BYTES
    assert before_ns <= int.from_bytes(result.packet[at : at + 8], "little") <= after_ns
    assert result.packet[:at] + bytes(8) + result.packet[at + 8 :] == packet


OTHERS = {
    "another port": udp(10, bytes(64)),
    "too short": udp(9, bytes(15)),
    "tcp": udp(9, bytes(64), protocol=6),
    "options": udp(9, bytes(64), options=bytes(4)),
    "later fragment": udp(9, bytes(64), fragment=0x0001),
    "arp": PACKETS["arp"],
    "smallest": SMALLEST,
    "port in swapped bytes": udp(9 << 8, bytes(64)),
}


@pytest.mark.parametrize("packet", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("make", [egress_stamp_program, arrival_stamp_program])
def test_other_packets_are_not_stamped(make, packet):
    with Program.load(make(9, 8)) as program:
        assert program.test_run(packet).packet == packet


@pytest.mark.parametrize("make", [egress_stamp_program, arrival_stamp_program])
def test_a_first_fragment_and_the_shortest_payload_are_stamped(make):
    packet = udp(9, bytes(16), fragment=0x2000)
    with Program.load(make(9, 8)) as program:
        assert program.test_run(packet).packet != packet


def test_the_error_of_a_bad_program_has_the_verifiers_words():
    bad = Assembler().load(R2, R1, 0, U32).load(R0, R2, 0, U32).exit()  # reads the packet without a length check
    with pytest.raises(VerifierError) as caught:
        Program.load(ProgramSpec("xk_bad", bad.assemble()))
    assert caught.value.cause == (
        'loading program "xk_bad" (XDP) failed: EACCES: the verifier refused it: R2 offset is outside of the packet'
    )
    assert "1: (61) r0 = *(u32 *)(r2 +0)" in caught.value.log
    assert caught.value.log.rstrip() in str(caught.value)


def test_an_empty_program_does_not_reach_the_verifier():
    with pytest.raises(BpfError) as caught:
        Program.load(ProgramSpec("xk_empty", ()))
    assert not isinstance(caught.value, VerifierError)
    assert caught.value.cause == (
        'loading program "xk_empty" (XDP) failed: E2BIG: it has no instructions, or more than the kernel allows'
    )


def test_a_program_has_an_id_and_its_name():
    with Program.load(pass_program()) as program:
        assert program_info(program.fd).name == "xk_pass"
        fd = syscall.fd_by_id(BpfCommand.PROG_GET_FD_BY_ID, program.id)
        try:
            assert program_info(fd).id == program.id
        finally:
            os.close(fd)


def test_our_listing_is_the_kernels():
    """A last instruction that the verifier refuses makes it write down all those before, with its findings behind."""
    a = Assembler()
    a.mov(R0, 0).mov(R2, -8).alu(R2, "+=", 8).alu32(R2, "&=", 0x1FFF).big_endian(R2, 16)
    a.store(R10, -8, 7, U32).store(R10, -16, R1, U64).atomic_add(R10, -8, R0, U32)
    a.load(R2, R1, 16, U32).jump_if(R2, ">", 5, "end").jump_if(R2, "!=", R0, "end").mov(R2, R1).call(
        Helper.KTIME_GET_NS
    )
    a.label("end").load(R0, R2, 4096, U32).exit()
    code = a.assemble()
    _, error, log = syscall.program_load(ProgramType.XDP, encode(code, {}), "GPL", 0, "xk_bad", AttachType.XDP)
    assert error is not None
    ours = dict(line.split(": ", 1) for line in listing(code))
    kernels = dict(re.findall(r"^(\d+): (\([0-9a-f]{2}\) .*)", log, re.MULTILINE))
    assert len(kernels) >= 12
    for at, line in kernels.items():
        assert line.startswith(ours[at])


def test_everything_is_available_here():
    """On the kernels that the tests run on; each of these is what makes another test of this file possible."""
    for support in probe.probe_all():
        assert (support.available, support.detail) == (True, ""), support.feature
