"""Calls from several threads and from signal handlers: who may, who is refused, and how a close ends them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress

import pytest

from tests.real.xsk_veth import collect, eventually, numbered, two_sockets, veth
from xskit.abi.xdp import Statistics
from xskit.errors import UsageError
from xskit.xsk.path.owner import Owner
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

WINDOW = 128
PATIENCE_S = 60.0
RECEIVING = (
    "another call is receiving on queue 0 of vb, and only one can at a time\n  try: threading.Lock() around the calls"
)
SENDING = (
    "another call is sending on queue 0 of vb, and only one can at a time\n  try: threading.Lock() around the calls"
)


@pytest.fixture
def pair():
    with veth() as name:
        yield name


@contextmanager
def running(*works: Callable[[], object]):
    """Threads that do these; what one of them raises is raised at the end."""
    troubles: list[BaseException] = []

    def run(work):
        try:
            work()
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if troubles:
        raise troubles[0]


def warm_up(left: Socket, right: Socket) -> None:
    """All is compiled before time counts."""
    for sender, receiver in ((left, right), (right, left)):
        sender.send(numbered(1))
        sender.flush()
        assert collect(receiver, 1) == numbered(1)


class Way:
    """Packets from one socket to another, each in a thread of its own, so many at most on their way."""

    def __init__(self, sender: Socket, receiver: Socket, packets: list[bytes]) -> None:
        self._sender, self._receiver, self._packets = sender, receiver, packets
        self.got: list[bytes] = []
        self.sent = 0
        self.ended = False

    def send(self) -> None:
        while self.sent < len(self._packets) and not self.ended:
            room = WINDOW - (self.sent - len(self.got))
            if room > 0:
                self.sent += self._sender.send(self._packets[self.sent : self.sent + min(room, 40)])
            else:
                time.sleep(0)
        self._sender.flush(timeout=PATIENCE_S)

    def receive(self) -> None:
        try:
            while len(self.got) < len(self._packets):
                batch = self._receiver.receive_batch(timeout=PATIENCE_S)
                assert len(batch), f"only {len(self.got)} packets of {self.sent} came"
                self.got += map(bytes, batch)
        finally:
            self.ended = True


@pytest.mark.parametrize("mode", ["native", "generic"])
@pytest.mark.parametrize("memory", [{}, {"frame_size": 2048}, {"frame_size": 3000, "unaligned": True}])
def test_one_thread_receives_and_one_sends_on_the_same_socket(pair, mode, memory):
    """Both sockets do both at once, a thread each, while others look at them."""
    options = {"mode": mode}
    with two_sockets(options, options, frames=1024, **memory) as (left, right):
        warm_up(left, right)
        there = Way(left, right, numbered(3000, 80))
        back = Way(right, left, numbered(3000, 100, first=5000))
        over = threading.Event()
        looked = []

        def look():
            while not over.wait(0.001):
                for sock in (left, right):
                    found = sock.statistics()
                    assert isinstance(found, Statistics)
                    assert found.rx_dropped == found.tx_invalid_descriptors == 0
                    counts = sock.umem.check()
                    assert sum(counts.values()) == 1024
                    looked.append(counts)

        with running(look):
            try:
                with running(there.send, there.receive, back.send, back.receive):
                    pass
            finally:
                over.set()
        assert there.got == numbered(3000, 80)
        assert back.got == numbered(3000, 100, first=5000)
        assert looked
        for sock in (left, right):
            sock.receive(timeout=0)
            counts = sock.umem.check()
            assert counts[Owner.FREE] + counts[Owner.FILL] == 1024


def test_packets_of_several_frames_both_ways_at_once():
    with veth(mtu=9000), two_sockets(frames=1024, frame_size=2048) as (left, right):
        warm_up(left, right)
        there = Way(left, right, numbered(300, 4000))
        back = Way(right, left, numbered(300, 9000, first=5000))
        for way in (there, back):
            way.send = lambda way=way: _in_steps(way)
        with running(there.send, there.receive, back.send, back.receive):
            pass
        assert there.got == numbered(300, 4000)
        assert back.got == numbered(300, 9000, first=5000)


def _in_steps(way: Way) -> None:
    """Fewer on their way: FILL has 512 frames."""
    while way.sent < len(way._packets) and not way.ended:
        if way.sent - len(way.got) < 32:
            way.sent += way._sender.send(way._packets[way.sent : way.sent + 8])
        else:
            time.sleep(0)


def test_two_threads_forward_between_two_ports():
    """Each port receives in one thread and sends in another."""
    with (
        veth(),
        Umem(frames=512) as outer,
        Umem(frames=512, debug=True) as umem,
        Port.open("va", outer) as left,
        Port.open("vb", umem) as right,
    ):
        assert left.receive(timeout=0) == right.receive(timeout=0) == []
        packets, got, over = numbered(2000), [], threading.Event()

        def reflect():
            while not over.is_set():
                batch = right.receive_batch(timeout=0.01)
                done = 0
                while done < len(batch):
                    done += right.forward(batch[done:], right)

        def send():
            sent = 0
            while sent < len(packets):
                if sent - len(got) < WINDOW:
                    sent += left.send(packets[sent : sent + 32])
                else:
                    time.sleep(0)

        def receive():
            try:
                while len(got) < len(packets):
                    batch = left.receive(timeout=PATIENCE_S)
                    assert batch
                    got.extend(map(bytes, batch))
            finally:
                over.set()

        with running(reflect, send, receive):
            pass
        assert got == packets
        right.flush()
        assert umem.check()[Owner.TX] == 0


def refusal(action):
    with pytest.raises(UsageError) as caught:
        action()
    return str(caught.value)


def test_a_second_receiver_is_refused_and_a_sender_is_not(pair):
    with two_sockets() as (sender, receiver):
        got = []
        with running(lambda: got.extend(map(bytes, receiver.receive()))):
            eventually(True, lambda: receiver._receive_turn.taken)
            for second in (
                lambda: receiver.receive(timeout=0),
                lambda: receiver.receive_batch(timeout=0),
                lambda: next(iter(receiver)),
                lambda: receiver.wait(0),
            ):
                assert refusal(second) == RECEIVING
            assert receiver.send(numbered(3)) == 3
            receiver.flush()
            assert receiver.statistics().rx_dropped == 0
            assert receiver.umem.check()[Owner.TX] == 0
            sender.send(numbered(1, first=9))
        assert got == numbered(1, first=9)
        assert collect(sender, 3) == numbered(3)
        sender.send(numbered(2))
        assert collect(receiver, 2) == numbered(2), "the turn is over"


def test_a_second_sender_is_refused_and_a_receiver_is_not(pair):
    with two_sockets() as (sender, receiver):
        receiver.send(numbered(1))
        receiver.flush()
        outstanding = receiver._sending.transmitter
        outstanding.outstanding += 1  # a frame that never comes back
        batch = receiver.new_batch(64, 1)
        with running(lambda: receiver.flush(timeout=None)):
            eventually(True, lambda: receiver._send_turn.taken)
            for second in (
                lambda: receiver.send(numbered(1)),
                lambda: receiver.send_batch(batch),
                lambda: receiver.forward(batch, receiver),
                lambda: receiver.flush(timeout=0),
                receiver.kick,
            ):
                assert refusal(second) == SENDING
            sender.send(numbered(2))
            assert collect(receiver, 2) == numbered(2)
            outstanding.outstanding -= 1
        assert receiver.send_batch(batch) == 1


def test_a_second_receiver_of_a_port_is_refused():
    with veth(rx_queues=2, tx_queues=2), Umem(frames=64) as umem:
        port = Port.open("vb", umem)
        with running(lambda: port.receive()):
            eventually(True, lambda: port._receive_turn.taken)
            assert refusal(lambda: port.receive(timeout=0)).startswith("another call is receiving on vb, and only one")
            port.send(bytes(64))
            port.flush()
            port.close()
        assert port.closed


# --- close ------------------------------------------------------------------------------------------------------


def is_free(name: str, *memories: Umem) -> None:
    """The queue can be bound again, and every frame came home."""
    for umem in memories:
        assert umem.check()[Owner.FREE] == umem.frames
    with Umem(frames=64) as umem, Socket(name, umem=umem):
        pass


INSIDE = {
    "receive": lambda sock: sock.receive(),
    "receive for long": lambda sock: sock.receive(timeout=60.0),
    "receive_batch": lambda sock: sock.receive_batch(),
    "wait": lambda sock: sock.wait(),
    "iterate": lambda sock: list(sock),
    "flush": lambda sock: sock.flush(timeout=None),
    "send": lambda sock: sock.send(bytes(64) for _ in iter(lambda: time.sleep(0.0005), 1)),
}
"""Calls that last until the socket is closed."""


def stuck(sock: Socket) -> Socket:
    """Used, and one frame that never comes back."""
    sock.send(numbered(3))
    sock.receive(timeout=0)
    sock._sending.transmitter.outstanding += 1
    return sock


@pytest.mark.parametrize("closes", [Socket.close, lambda sock: sock.umem.close()], ids=["socket", "memory"])
@pytest.mark.parametrize("call", INSIDE)
def test_a_close_from_another_thread_ends_the_call_inside(pair, call, closes):
    umem = Umem(frames=64, debug=True)
    sock = stuck(Socket("vb", umem=umem))
    kept = sock.new_batch(64, 2)
    ended = []

    def inside():
        with suppress(UsageError):  # `send` is told that the memory is closed
            ended.append(INSIDE[call](sock))

    with running(inside):
        turn = sock._send_turn if call in ("flush", "send") else sock._receive_turn
        eventually(True, lambda: turn.taken)
        closes(sock)
        for use in (lambda: sock.receive(timeout=0), lambda: sock.send(bytes(64)), sock.flush):
            assert refusal(use) == "the socket of queue 0 of vb is closed"
    assert sock.closed
    assert list(map(len, ended)) == [0] if call in ("receive", "receive_batch", "receive for long") else True
    sock.close()
    kept.release()
    assert umem.check()[Owner.FREE] == (umem.frames if umem.address else 0)
    umem.close()
    is_free("vb")


@pytest.mark.parametrize("closes", [Socket.close, lambda sock: sock.umem.close()], ids=["socket", "memory"])
@pytest.mark.parametrize("call", INSIDE)
def test_a_close_in_a_signal_handler_ends_the_call_inside(pair, call, closes):
    umem = Umem(frames=64)
    sock = stuck(Socket("vb", umem=umem))
    asked = []

    def handle(*_):
        closes(sock)
        asked.append(sock.closed)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with suppress(UsageError):
            INSIDE[call](sock)
        assert asked == [False], "it waits for the call inside"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sock.closed
    assert umem.check()[Owner.FREE] == (umem.frames if umem.address else 0)
    umem.close()
    is_free("vb")


@pytest.mark.parametrize("closes", ["socket", "memory"])
def test_a_close_at_any_moment_of_busy_calls(pair, closes):
    """Thirty times: packets come and go, and a signal closes the socket a little later each time."""
    with Umem(frames=256) as outer, Socket("va", umem=outer) as other:
        for number in range(30):
            umem = Umem(frames=64)
            sock = Socket("vb", umem=umem)
            before = signal.signal(
                signal.SIGALRM, lambda *_, s=sock: s.close() if closes == "socket" else s.umem.close()
            )
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0003 * number)
            try:
                while not sock.closed:
                    with suppress(UsageError):
                        other.send(numbered(8))
                        batch = sock.receive_batch(timeout=0.001)
                        batch[:2].keep()
                        sock.forward(batch[1:], sock)
                        batch.release()
                        sock.flush()
                        other.receive(timeout=0)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            if umem.address:
                assert batch is not None
                batch.release()
                counts = umem.check()
                assert counts[Owner.FREE] == umem.frames, counts
            umem.close()
    is_free("vb")


def test_statistics_stay_after_a_close_in_another_thread(pair):
    with Umem(frames=64) as umem:
        for _ in range(10):
            sock = Socket("vb", umem=umem)
            seen, begun = [], threading.Event()

            def look(sock=sock, seen=seen, begun=begun):
                for _ in range(300):
                    seen.append(sock.statistics())
                    begun.set()

            with running(look):
                begun.wait()
                sock.close()
            assert len(seen) == 300
            assert seen[-1] == sock.statistics()


def test_a_port_is_closed_from_another_thread():
    with veth(rx_queues=2, tx_queues=2):
        for _ in range(5):
            umem = Umem(frames=256, debug=True)
            port = Port.open("vb", umem)
            got = []
            with running(lambda port=port, got=got: got.extend(port.receive())):
                eventually(True, lambda port=port: port._receive_turn.taken)
                port.close()
                assert refusal(lambda port=port: port.receive(timeout=0)) == "the port of vb is closed"
            assert got == []
            assert all(queue.closed for queue in port.queues)
            assert umem.check()[Owner.FREE] == umem.frames
            umem.close()
        is_free("vb")
