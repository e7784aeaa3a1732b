"""What the kernel refuses, provoked, and the exact sentence that is shown for it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading

import pytest

from tests.real.xsk_veth import collect, handle, ip, numbered, two_sockets, veth
from xskit.abi.xdp import SOL_XDP, MmapOffsets, PageOffset, SocketOption
from xskit.bpf.redirect import RedirectProgram
from xskit.errors import PrivilegeError, UsageError
from xskit.memory import RecordBlock
from xskit.netconf.namespaces import MissingError
from xskit.netconf.privileges import CAPABILITIES
from xskit.xsk import opening, umem
from xskit.xsk.attachment import Attachment
from xskit.xsk.errors import PortError, SocketError
from xskit.xsk.mapping import MappedRing
from xskit.xsk.path.owner import Owner
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

BARE = {"program": None}


@pytest.fixture
def pair():
    with veth() as name:
        yield name


@pytest.fixture
def memory():
    with Umem(frames=64) as memory:
        yield memory


def refusal(kind, make):
    with pytest.raises(kind) as caught:
        make()
    return str(caught.value)


@pytest.mark.usefixtures("pair")
class TestBind:
    def test_no_such_interface(self, memory):
        assert refusal(MissingError, lambda: Socket("vx0", umem=memory)) == (
            "there is no interface vx0 in this network namespace\n  try: ip -brief link"
        )

    def test_no_such_queue(self, memory):
        assert refusal(PortError, lambda: Socket("va", 1, umem=memory, **BARE)) == (
            "va has no queue 1: its queues are 0\n  try: ethtool -L va combined 2"
        )

    def test_what_can_be_known_before_leaves_the_interface_alone(self, memory, monkeypatch):
        monkeypatch.setattr(Attachment, "make", lambda *_: pytest.fail("a program was attached"))
        first = Socket("va", umem=memory, **BARE)
        first.close()
        assert refusal(UsageError, lambda: Socket("va", -1, umem=memory)) == (
            "queue must be between 0 and 4294967295, not -1\n  try: queue=0"
        )
        assert refusal(PortError, lambda: Socket("va", 1 << 20, umem=memory)).startswith("va has no queue 1048576")
        assert refusal(UsageError, lambda: Socket("va", umem=memory, rx=100)).startswith("the RX ring cannot have 100")
        assert refusal(SocketError, lambda: Socket("va", umem=memory, shared=first)).endswith("is not bound")
        assert refusal(UsageError, lambda: Port.open("va", memory, queues=[])) == (
            "a port has at least one queue\n  try: queues=None, for all of them"
        )

    def test_zero_copy_where_there_is_none(self, memory):
        sentence = "the driver of va has no zero copy on queue 0"
        assert refusal(PortError, lambda: Socket("va", umem=memory, mode="zero-copy")) == (
            f"{sentence}\n  try: mode='native'"
        )
        with Socket("va", umem=memory) as sock:
            assert sock.why == [f"zero copy: {sentence}"]
            assert (sock.zero_copy, sock.xdp_mode) == (False, "native")

    def test_a_queue_in_use_names_who_may_have_it(self, memory, monkeypatch):
        monkeypatch.setattr(opening, "BUSY_SECONDS", 0.05)
        with Umem(frames=64) as other, Socket("va", umem=other, **BARE):
            said = refusal(PortError, lambda: Socket("va", umem=memory, **BARE))
        assert said.startswith("queue 0 of va is in use; AF_XDP sockets are open in ")
        assert f"this process (pid {os.getpid()})" in said
        assert said.endswith("\n  try: end that process, or use another queue")

    def test_a_queue_is_busy_for_as_long_as_a_ring_is_mapped(self, memory, monkeypatch):
        with Umem(frames=64) as other:
            sock = Socket("va", umem=other, **BARE)
            with handle(sock.receiver) as bound:
                offsets = MmapOffsets.unpack(bound.getsockopt(SOL_XDP, SocketOption.MMAP_OFFSETS, 128))
            ring = MappedRing.map(sock.fd, PageOffset.RX_RING, offsets.rx, 2048, RecordBlock(64).view)
            sock.close()
            with monkeypatch.context() as patch:
                patch.setattr(opening, "BUSY_SECONDS", 0.3)
                said = refusal(PortError, lambda: Socket("va", umem=memory, **BARE))
            assert said.startswith("queue 0 of va is in use")
            ring.close()
            Socket("va", umem=memory, **BARE).close()

    def test_a_queue_just_closed_is_waited_for(self, memory):
        for _ in range(5):
            Socket("va", umem=memory, **BARE).close()

    def test_another_queue_without_rings_of_its_own(self, memory):
        with veth_queue_pair() as (first, make):
            assert refusal(SocketError, lambda: make(fill=0, completion=0)) == (
                "queue 1 of xkq0 cannot share the packet memory of the other socket: sockets of one queue share FILL "
                "and COMPLETION, others bring their own"
            )
            assert first.primary.completion_ring is not None

    def test_packets_of_one_memory_do_not_go_out_from_another(self, memory):
        with veth_queue_pair() as (first, make):
            for queue in (0, 1):
                assert refusal(
                    UsageError, lambda queue=queue: Socket("xkq0", queue, umem=memory, shared=first, **BARE)
                ) == (
                    "umem must be the packet memory of the socket that shares it, queue 0 of xkq0\n"
                    "  try: umem=shared.umem"
                )
            make().close()
        assert refusal(UsageError, lambda: Socket("va", umem=memory, shared=memory, **BARE)).startswith(
            "shared must be a Socket, not <Umem of 64 frames"
        )

    def test_closed_memory(self, monkeypatch):
        monkeypatch.setattr(Attachment, "make", lambda *_, **__: pytest.fail("a program was attached"))
        memory = Umem(frames=64)
        memory.close()
        for use in (lambda: Socket("va", umem=memory), lambda: Port.open("va", memory)):
            assert refusal(UsageError, use) == "the packet memory is closed"
        assert refusal(UsageError, lambda: Port.open("va", None)) == (
            "umem must be a Umem, not None\n  try: umem=xskit.Umem()"
        )

    def test_programs_that_cannot_give_packets_to_a_socket(self, memory):
        assert refusal(UsageError, lambda: RedirectProgram.load(1.5)).startswith("queues must be a whole number")
        program = RedirectProgram.load(1)
        with Socket("va", umem=memory, program=program) as sock:
            assert refusal(UsageError, lambda: sock.register("x")) == "program must be a RedirectProgram, not 'x'"
            with Umem(frames=64) as other, Socket("vb", umem=other, **BARE) as second:
                assert refusal(UsageError, lambda: second.register(program)).startswith("RX queue 0 has a socket")
            program.close()
            assert refusal(UsageError, lambda: sock.register(program)) == "the redirect program is closed"
        assert refusal(UsageError, lambda: sock.register(program)) == "the socket of queue 0 of va is closed"

    def test_what_cannot_be_sent(self, memory):
        released = memoryview(bytes(64))
        released.release()
        with Socket("va", umem=memory, **BARE) as sock:
            for packet, words in ((released, "<released memory"), ("abc", "'abc'"), (7, "7"), (None, "None")):
                assert refusal(UsageError, lambda packet=packet: sock.send([bytes(64), packet])).startswith(
                    f"a packet must be bytes or a Packet, not {words}"
                )
            for given, words in (("abc", "'abc'"), (7, "7"), (None, "None")):
                assert refusal(UsageError, lambda given=given: sock.send(given)) == (
                    f"send takes packets, not {words}\n  try: send([packet])"
                )
            sock.flush()
            assert memory.check()[Owner.FREE] + memory.check()[Owner.FILL] == memory.frames

    def test_memory_of_a_closed_socket(self, memory):
        first = Socket("va", umem=memory, **BARE)
        first.close()
        assert refusal(SocketError, lambda: Socket("vb", umem=memory, shared=first, **BARE)) == (
            "the socket whose packet memory is to be shared is not bound"
        )

    def test_a_tx_ring_on_a_queue_without_one(self, memory):
        ip("link", "add", "xkr0", "numrxqueues", "2", "numtxqueues", "1", "type", "veth", "peer", "name", "xkr1")
        assert refusal(UsageError, lambda: Socket("xkr0", 1, umem=memory, **BARE)) == (
            "xkr0 has no TX queue 1: what is sent there would vanish\n"
            "  try: tx=0, or ethtool -L for as many TX as RX queues"
        )
        with Socket("xkr0", 1, umem=memory, tx=0, **BARE) as sock:
            assert sock.transmitter is None
        with Port.open("xkr0", memory) as port:
            assert [queue.transmitter is None for queue in port.queues] == [False, True]

    def test_loopback(self, memory):
        assert refusal(PortError, lambda: Port.open("lo", memory)) == (
            "lo is a loopback interface, which gives no packets to AF_XDP\n"
            "  try: ip link add xk0 type veth peer name xk1"
        )


class veth_queue_pair:  # noqa: N801
    """A socket on queue 0 of a two-queue veth, and a way to share its memory on queue 1."""

    def __enter__(self):
        queues = ("numrxqueues", "2", "numtxqueues", "2")
        ip("link", "add", "xkq0", *queues, "type", "veth", "peer", "name", "xkq1", *queues)
        self.memory = Umem(frames=64)
        self.first = Socket("xkq0", umem=self.memory, **BARE)
        return self.first, lambda **rings: Socket("xkq0", 1, umem=self.memory, shared=self.first, **BARE, **rings)

    def __exit__(self, *_):
        self.memory.close()
        assert self.first.fd == -1


@pytest.mark.parametrize(
    ("rings", "sentence"),
    [
        ({"rx": 100}, "the RX ring cannot have 100 entries: the kernel takes powers of two\n  try: rx=128"),
        ({"fill": -1}, "fill must be between 0 and 1073741824, not -1\n  try: fill=0"),
        ({"rx": 0, "tx": 0}, "a socket needs an RX or a TX ring\n  try: rx=2048"),
    ],
)
def test_impossible_rings(pair, memory, rings, sentence):
    assert refusal(UsageError, lambda: Socket("va", umem=memory, **BARE, **rings)) == sentence


def test_a_missing_completion_ring(pair, memory):
    assert refusal(PortError, lambda: Socket("va", umem=memory, completion=0, mode="native", **BARE)) == (
        "queue 0 of va cannot be bound: a ring is missing, or the driver refuses the MTU, the frame size (4096 bytes) "
        "or the queue\n  try: ip -details link show va"
    )


def test_a_headroom_that_this_kernel_refuses(pair):
    with Umem(frames=4, headroom=3392) as largest, Socket("va", umem=largest, **BARE):
        pass
    with Umem(frames=4, headroom=3393) as memory:
        assert refusal(SocketError, lambda: Socket("va", umem=memory, **BARE)) == (
            "this kernel refuses a headroom of 3393 bytes in frames of 4096: it keeps 256 bytes before the packet and "
            "up to 448 behind it\n  try: headroom=3392 or less"
        )


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def without(capability, action):
    """Do something in a thread that lacks a capability (capset(2) is a thread's own affair)."""
    caught = []

    def run():
        libc = ctypes.CDLL(None, use_errno=True)
        header, sets = _Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert libc.capget(ctypes.byref(header), sets) == 0
        number = CAPABILITIES[capability]
        sets[3 * (number // 32)] &= ~(1 << number % 32)
        assert libc.capset(ctypes.byref(header), sets) == 0
        try:
            action()
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return caught[0]


def test_no_right_to_open_a_socket(memory):
    with socket.socket(44, socket.SOCK_RAW, 0):
        pass
    error = without("CAP_NET_RAW", lambda: Socket("lo", umem=memory, **BARE))
    assert isinstance(error, PrivilegeError)
    assert str(error) == (
        "opening an AF_XDP socket needs CAP_NET_RAW\n"
        "  try: sudo, or setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep on the interpreter"
    )


def test_no_right_to_lock_so_much_memory(monkeypatch):
    monkeypatch.setattr(umem.resource, "getrlimit", lambda _: (limit, limit))
    limit = os.sysconf("SC_PAGE_SIZE") * 2048
    with Umem(frames=1 << 15, frame_size=2048) as memory:  # 64 MiB
        error = without("CAP_IPC_LOCK", lambda: Socket("lo", umem=memory, **BARE))
    assert isinstance(error, SocketError)
    assert error.errno == errno.ENOBUFS
    assert str(error) == (
        f"registering the packet memory locks 67108864 bytes, and this user may lock {limit} (RLIMIT_MEMLOCK)\n"
        "  try: ulimit -l 65536 (systemd: LimitMEMLOCK=67108864), or give CAP_IPC_LOCK"
    )


def test_an_interface_that_is_down_and_up_again(pair):
    with two_sockets() as (sender, receiver):
        ip("-n", pair, "link", "set", "dev", "va", "down")
        assert refusal(PortError, lambda: sender.send(numbered(1))) == "va is down\n  try: ip link set va up"
        ip("-n", pair, "link", "set", "dev", "va", "up")
        sender.flush()
        assert collect(receiver, 1) == numbered(1)
        assert sender.refused == 0


def test_an_interface_that_is_deleted(pair):
    with two_sockets() as (sender, receiver):
        ip("-n", pair, "link", "del", "dev", "va")
        assert refusal(PortError, lambda: sender.send(numbered(1))) == (
            "va is gone, or its driver has ended zero copy\n  try: ip -brief link; then open the socket again"
        )
        assert refusal(PortError, lambda: receiver.receive(timeout=None)).startswith("vb is gone")
        sender.close()
        receiver.close()
        sender.close()
        assert refusal(UsageError, lambda: sender.send(numbered(1))) == "the socket of queue 0 of va is closed"


def test_frames_that_do_not_come_back(pair):
    with two_sockets({"rx": 0, "program": None}) as (sender, _):
        sender.flush()
        sender._sending.transmitter.outstanding += 1
        assert refusal(PortError, lambda: sender.flush(timeout=0.02)) == (
            "1 frames sent on queue 0 of va did not come back within 0.02 s\n  try: ip -details link show va"
        )


def test_sockets_of_one_kind_only(pair, memory):
    with (
        Socket("va", umem=memory, rx=0, **BARE) as sender,
        Umem(frames=8) as other,
        Socket("vb", umem=other, tx=0) as sink,
    ):
        assert refusal(UsageError, lambda: sender.receive(timeout=0)).startswith(
            "this socket has no RX ring: it only sends"
        )
        assert refusal(UsageError, lambda: sink.send([])).startswith("this socket has no TX ring: it only receives")
        assert refusal(UsageError, lambda: sender.send([b""])) == "a packet of no bytes cannot be sent"
        assert refusal(UsageError, lambda: sink.receive(timeout=0, limit=0)).startswith("limit must be between 1")
