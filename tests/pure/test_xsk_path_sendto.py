"""What `kick` does with each answer of sendto: budgets, refusals, rings that are full, a port that is down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pure.support_path import PlainPath, path
from xskit.xsk.path import calls, transmit
from xskit.xsk.path.books import TX_REFUSED
from xskit.xsk.path.transmit import DOWN_RETRY_NS, RETRY_NS

pytestmark = pytest.mark.plain_python  # compiled code calls the real sendto; tests/real tests that

NUMBERED = [bytes([n]) * 60 for n in range(40)]


class Script:
    """sendto of copy mode: sends up to `budget` packets a call; refuses some; fails with `down` while that is set."""

    def __init__(self, made: PlainPath, *, budget: int = 32, refuse: Callable[[bytes], bool] = lambda _: False) -> None:
        self.queue = made.queues[0]
        self.budget = budget
        self.refuse = refuse
        self.down = 0
        self.sent: list[bytes] = []

    def __call__(self, fd: int) -> int:
        if self.down:
            return self.down
        for _ in range(self.budget):
            if not self.knows_more():
                return 0
            if self.queue.completion.room == 0:
                return calls.EAGAIN
            (data,) = self.packet()
            self.queue.complete()
            if self.refuse(data):
                return calls.EBUSY
            self.sent.append(data)
        return calls.EAGAIN

    def knows_more(self) -> bool:
        return bool(self.queue.tx.filled)

    def packet(self) -> list[bytes]:
        found: list[bytes] = []
        while not found:
            found = self.queue.send(1)
        return found


class LateScript(Script):
    """The same before Linux 6.17: the consumer index is published when there is nothing more to take that is known."""

    known = 0

    def __init__(self, made: PlainPath, **options) -> None:
        super().__init__(made, **options)
        self.publish = self.queue.tx.publish_taken
        self.queue.tx.publish_taken = lambda: None
        made.transmitter.told_late = 1

    def packet(self) -> list[bytes]:
        self.known -= 1
        return super().packet()

    def knows_more(self) -> bool:
        if self.known == 0:
            self.publish()
            self.known = self.queue.tx.filled
        return self.known > 0


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    def install(made: PlainPath, kind: type[Script] = Script, **options) -> Script:
        script = kind(made, **options)
        monkeypatch.setattr(transmit, "kick_transmit", script)
        made.queues[0].tx.need_wakeup(True)
        return script

    return install


def sent(made: PlainPath, packets: list[bytes]) -> None:
    """Packets come, and go into TX."""
    for data in packets:
        assert made.queues[0].receive(data)
    made.send(*[packet.handle for packet in made.receive()])


@pytest.mark.parametrize(("kernel", "budget"), [(Script, 1), (Script, 3), (LateScript, 16), (LateScript, 32)])
def test_a_kernel_with_a_budget_is_kicked_until_all_is_sent(scripted, kernel: type[Script], budget: int) -> None:
    with path(frames=128, entries=64) as made:
        script = scripted(made, kernel, budget=budget)
        sent(made, NUMBERED)
        made.kick()
        assert script.sent == NUMBERED
        made.reap()
        assert (made.pools[0].books.sent, made.transmitter.outstanding) == (40, 0)
        made.check_books()


@pytest.mark.parametrize("length", [60, 5000])
def test_each_refusal_is_one_packet_the_last_consumed(scripted, length: int) -> None:
    with path(frames=128, entries=64) as made:
        script = scripted(made, refuse=lambda data: data[0] % 3 == 0)
        packets = [bytes([n]) * (length + n) for n in range(20)]
        sent(made, packets)
        made.kick()
        made.reap()
        assert script.sent == [data for data in packets if data[0] % 3]
        refused = [data for data in packets if data[0] % 3 == 0]
        assert made.drops(made.pools[0].books)[TX_REFUSED].tolist() == [len(refused), sum(map(len, refused))]
        assert made.pools[0].books.sent == len(script.sent)
        made.check_books()


@pytest.mark.parametrize("every", [1, 3])
def test_refusals_are_counted_where_nobody_says_which_they_were(scripted, every: int) -> None:
    with path(frames=128, entries=64) as made:
        script = scripted(made, LateScript, refuse=lambda data: data[0] % every == 0)
        for _ in range(3):
            sent(made, NUMBERED)
            made.kick()
            made.reap()
            made.refill()
        refused = 3 * len([data for data in NUMBERED if data[0] % every == 0])
        assert made.refused() == refused
        assert made.pools[0].books.sent == len(script.sent) == 120 - refused
        assert made.transmitter.refusals == 0


def test_a_kernel_that_takes_nothing_is_not_asked_for_ever_though_it_says_late_what_it_takes(scripted) -> None:
    with path(frames=128, entries=64) as made:
        scripted(made, LateScript).down = calls.EAGAIN
        sent(made, NUMBERED)
        made.kick()
        assert 0 < made.transmitter.kicks < 10


@pytest.mark.parametrize("code", [0, calls.EAGAIN, calls.ENOBUFS])
def test_a_kernel_that_takes_nothing_is_asked_once(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with path() as made:
        monkeypatch.setattr(transmit, "kick_transmit", lambda _fd: code)
        made.queues[0].tx.need_wakeup(True)
        sent(made, NUMBERED[:3])
        made.kick()
        assert (made.transmitter.kicks, made.transmitter.down, made.transmitter.failure) == (1, 0, 0)
        made.check()


@pytest.mark.parametrize("code", [calls.ENETDOWN, calls.ENXIO, calls.ENODEV])
def test_while_a_port_is_down_it_is_tried_seldom_and_what_lies_in_tx_is_not_lost(scripted, code: int) -> None:
    with path() as made:
        script = scripted(made)
        script.down = code
        sent(made, NUMBERED[:2])
        made.collect(1000)
        assert (made.transmitter.down, made.transmitter.retry_ns) == (code, 1000 + DOWN_RETRY_NS)
        script.down = 0
        made.collect(999 + DOWN_RETRY_NS)
        assert (made.transmitter.down, script.sent) == (code, [])
        made.collect(1000 + DOWN_RETRY_NS)
        assert (made.transmitter.down, script.sent) == (0, NUMBERED[:2])
        assert made.transmitter.retry_ns == 1000 + DOWN_RETRY_NS + RETRY_NS
        made.reap()
        assert made.pools[0].books.sent == 2


def test_completion_that_is_full_is_reaped_on_the_way(scripted) -> None:
    with path(frames=64, entries=8) as made:
        script = scripted(made, budget=3)
        for number in range(0, 40, 8):
            sent(made, NUMBERED[number : number + 8])
            made.kick()
            made.refill()
        assert script.sent == NUMBERED


@pytest.mark.parametrize(
    ("code", "down", "failure", "refused"),
    [
        (0, 0, 0, 0), (calls.EAGAIN, 0, 0, 0), (calls.ENOBUFS, 0, 0, 0), (calls.EBUSY, 0, 0, 1), (71, 0, 71, 0),
        (calls.ENETDOWN, calls.ENETDOWN, 0, 0), (calls.ENXIO, calls.ENXIO, 0, 0), (calls.ENODEV, calls.ENODEV, 0, 0),
    ],
)  # fmt: skip
def test_by_hand_the_kernel_is_called_once_and_completion_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, code: int, down: int, failure: int, refused: int
) -> None:
    with path() as made:
        transmitter, queue = made.transmitter, made.queues[0]
        monkeypatch.setattr(transmit, "kick_transmit", lambda _fd: code)
        made.kick_by_hand()
        sent(made, NUMBERED[:3])
        made.kick_by_hand()
        assert transmitter.kicks == 0, "the kernel does not ask"
        queue.tx.need_wakeup(True)
        queue.send(2)
        queue.complete()
        made.kick_by_hand()
        assert (transmitter.kicks, transmitter.down, transmitter.failure) == (1, down, failure)
        assert (transmitter.refused, transmitter.outstanding) == (refused, 3)
        assert made.reap() == 2
        assert made.refused() == refused


def test_a_driver_of_zero_copy_is_woken_once(scripted) -> None:
    with path() as made:
        script = scripted(made, budget=1)
        made.transmitter.zero_copy = 1
        sent(made, NUMBERED[:5])
        made.kick()
        assert (made.transmitter.kicks, script.sent) == (1, NUMBERED[:1])


def test_an_errno_that_nobody_knows_ends_the_kick_and_is_kept(scripted) -> None:
    with path() as made:
        scripted(made).down = 71
        sent(made, NUMBERED[:3])
        made.kick()
        assert (made.transmitter.failure, made.transmitter.down, made.transmitter.kicks) == (71, 0, 1)
        made.check()
