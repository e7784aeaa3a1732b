"""What the loop does with each answer of sendto, on ordinary memory: budgets, refusals, a port that is down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pure.support_kernel import PlainEngine, engine
from xskit.engine.live import EgressLimits
from xskit.engine.packets import DropCause
from xskit.xsk.path import calls, transmit


class Script:
    """sendto of copy mode: sends up to `budget` packets a call; refuses some; fails with `down` while that is set."""

    def __init__(
        self, made: PlainEngine, *, budget: int = 32, refuse: Callable[[bytes], bool] = lambda _: False
    ) -> None:
        self.made = made
        self.budget = budget
        self.refuse = refuse
        self.down = 0
        self.sent: list[bytes] = []

    def __call__(self, fd: int) -> int:
        if self.down:
            return self.down
        queue = self.made.egress[0]
        for _ in range(self.budget):
            if not self.knows_more(queue):
                return 0
            (data,) = self.packet(queue)
            queue.complete()
            if self.refuse(data):
                return transmit.EBUSY
            self.sent.append(data)
        return transmit.EAGAIN

    def knows_more(self, queue) -> bool:
        return bool(queue.tx.filled)

    def packet(self, queue) -> list[bytes]:
        found: list[bytes] = []
        while not found:
            found = queue.send(1)
        return found


class LateScript(Script):
    """The same before Linux 6.17: the consumer index is published when there is nothing more to take that is known."""

    known = 0

    def __init__(self, made: PlainEngine, **options) -> None:
        super().__init__(made, **options)
        self.publish = made.egress[0].tx.publish_taken
        made.egress[0].tx.publish_taken = lambda: None
        made.direction.egress().told_late = 1
        made._visible = False  # nobody can count what TX shows

    def packet(self, queue) -> list[bytes]:
        self.known -= 1
        return super().packet(queue)

    def knows_more(self, queue) -> bool:
        if self.known == 0:
            self.publish()
            self.known = queue.tx.filled
        return self.known > 0


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    def install(made: PlainEngine, kind: type[Script] = Script, **options) -> Script:
        script = kind(made, **options)
        monkeypatch.setattr(transmit, "kick_transmit", script)
        made.egress[0].tx.need_wakeup(True)
        return script

    return install


plain_python = pytest.mark.plain_python  # compiled code calls the real sendto; tests/real tests that
NUMBERED = [bytes([n]) * 60 for n in range(40)]


@plain_python
@pytest.mark.parametrize(("kernel", "budget"), [(Script, 3), (LateScript, 16), (LateScript, 32)])
def test_a_kernel_with_a_budget_is_kicked_until_all_is_sent(scripted, kernel: type[Script], budget: int) -> None:
    with engine(frames=128, entries=64, fill_reserve=64) as made:
        script = scripted(made, kernel, budget=budget)
        for data in NUMBERED:
            made.ingress[0].receive(data)
        made.run()
        assert script.sent == NUMBERED
        made.run()
        assert made.counters.sent == 40


@plain_python
@pytest.mark.parametrize("length", [60, 5000])
def test_each_refusal_is_one_packet_the_last_consumed(scripted, length: int) -> None:
    with engine(frames=256, entries=128, fill_reserve=128) as made:
        script = scripted(made, refuse=lambda data: data[0] % 3 == 0)
        sent = [bytes([n]) * (length + n) for n in range(20)]
        for data in sent:
            made.ingress[0].receive(data)
        made.run(2)
        assert script.sent == [data for data in sent if data[0] % 3]
        refused = [data for data in sent if data[0] % 3 == 0]
        assert made.direction.reading().dropped()[DropCause.TX_REFUSED] == (len(refused), sum(map(len, refused)))
        assert made.counters.sent == len(script.sent)


@plain_python
@pytest.mark.parametrize("every", [1, 3])
def test_refusals_are_counted_where_nobody_says_which_they_were(scripted, every: int) -> None:
    with engine(frames=256, entries=128, fill_reserve=128) as made:
        script = scripted(made, LateScript, refuse=lambda data: data[0] % every == 0)
        for _ in range(3):
            for data in NUMBERED:
                made.ingress[0].receive(data)
            made.run(2)
        refused = 3 * len([data for data in NUMBERED if data[0] % every == 0])
        assert made.dropped(DropCause.TX_REFUSED) == refused
        assert made.counters.sent == len(script.sent) == 120 - refused
        assert made.direction.egress().refusals == 0


@plain_python
def test_a_kernel_that_takes_nothing_is_not_asked_for_ever_though_it_says_late_what_it_takes(scripted) -> None:
    with engine(frames=128, entries=64, fill_reserve=64) as made:
        scripted(made, LateScript).down = transmit.EAGAIN
        for data in NUMBERED:
            made.ingress[0].receive(data)
        made.run()
        assert 0 < made.direction.egress().kicks < 10


@plain_python
@pytest.mark.parametrize("code", [calls.ENETDOWN, calls.ENXIO, calls.ENODEV])
def test_while_the_port_is_down_what_is_due_is_lost_and_then_it_goes_on(scripted, code: int) -> None:
    with engine() as made:
        script = scripted(made)
        script.down = code
        made.ingress[0].receive(NUMBERED[0])
        made.run()
        assert made.direction.egress().down == code
        made.ingress[0].receive(NUMBERED[1])
        made.run()
        assert made.dropped(DropCause.PORT_DOWN) == 1
        script.down = 0
        while made.direction.egress().down:
            made.run()
        made.ingress[0].receive(NUMBERED[2])
        made.run(2)
        assert script.sent == [NUMBERED[0], NUMBERED[2]], "what lay in TX was not lost"


@plain_python
def test_completion_that_is_full_is_reaped_on_the_way(scripted) -> None:
    with engine(frames=64, entries=8, fill_reserve=16, limits=EgressLimits(9014, max_frames=2)) as made:
        script = scripted(made, budget=1)
        for round_ in range(5):
            for data in NUMBERED[8 * round_ : 8 * round_ + 8]:
                assert made.ingress[0].receive(data)
            made.run()
        assert script.sent == NUMBERED
