"""Batches that do not fit, are of other memory, or have rows that somebody has changed."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

from tests.real.xsk_veth import Chain, collect
from xskit.errors import UsageError
from xskit.xsk.batch import Batch
from xskit.xsk.packet import ROW
from xskit.xsk.path.owner import Owner

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def shared_plain():
    with Chain(near={"tx": 16}, far={"tx": 8}) as chain:
        yield chain


@pytest.fixture
def plain(shared_plain):
    yield shared_plain
    shared_plain.all_home()


def refusal(action):
    with pytest.raises(UsageError) as caught:
        action()
    return str(caught.value)


GONE = (
    "is gone: its frames went back when the next ones were received, or it was sent\n"
    "  try: packet.keep() before the next receive()"
)


def test_a_column_is_a_copy(plain):
    batch = plain.batch(3)
    column = batch.column(12, ">u2")
    assert column.tolist() == [0x0800] * 3
    column[:] = 5
    assert batch.column(12, ">u2").tolist() == [0x0800] * 3
    batch.view(1)[12:14] = b"\x86\xdd"
    assert batch.column(12, ">u2").tolist() == [0x0800, 0x86DD, 0x0800]
    assert plain.near.receive_batch(timeout=0).column(12, ">u2").tolist() == []


def test_a_column_of_no_fixed_size_is_refused(plain):
    batch = plain.batch(1)
    for kind in ("O", "U0", "S", "V0", "S65537", [("a", "O")]):
        assert refusal(lambda kind=kind: batch.column(0, kind)).startswith("kind must be a NumPy type of fixed size")
    for kind in ("nonsense", 7, {"names": 1}):
        assert refusal(lambda kind=kind: batch.column(0, kind)).startswith("kind must be a NumPy type")
    assert refusal(lambda: batch.column(-1)) == "offset must be between 0 and 4294967295, not -1\n  try: offset=0"
    assert refusal(lambda: batch.column(1.5)) == "offset must be a whole number, not 1.5\n  try: offset=0"
    assert refusal(lambda: batch.view(1)) == "row must be between 0 and 0, not 1\n  try: row=0"


def test_what_finds_no_room_in_tx_stays_in_the_batch(plain):
    batch = plain.batch(20)
    done = 0
    while done < 20:
        accepted = plain.near.forward(batch[done:], plain.far)
        assert accepted == min(8, 20 - done), "the TX ring has 8 entries"
        assert [packet.gone for packet in batch] == [True] * (done + accepted) + [False] * (20 - done - accepted)
        done += accepted
        plain.far.flush()
    assert collect(plain.sink, 20) == plain.packets(20)


def test_a_packet_that_has_gone_stops_a_batch_and_those_before_it_are_sent(plain):
    batch = plain.batch(6)
    batch[2].release()
    assert refusal(lambda: plain.near.forward(batch, plain.far)) == f"packet 2 of the batch {GONE}"
    assert collect(plain.sink, 3, timeout=0.1) == plain.packets(2)
    assert [packet.gone for packet in batch] == [True] * 3 + [False] * 3
    assert refusal(lambda: plain.near.forward(batch[np.array([4, 4])], plain.far)) == f"packet 1 of the batch {GONE}"
    assert collect(plain.sink, 2, timeout=0.1) == plain.packets(1, first=4)


def test_packets_of_other_memory_are_refused(plain):
    batch = plain.batch(3)
    for act in (plain.sink.send, plain.sink.send_batch, lambda batch: plain.near.forward(batch, plain.sink)):
        assert refusal(lambda act=act: act(batch)) == (
            "the batch lies in other packet memory than this socket's\n  try: send([bytes(p) for p in batch])"
        )
    assert plain.sink.send([bytes(packet) for packet in batch]) == 3
    assert collect(plain.far, 3) == plain.packets(3)
    for to in (None, batch, "far"):
        assert refusal(lambda to=to: plain.near.forward(batch, to)).startswith("to must be a Socket or a Port, not ")
    for given in (None, batch.rows, [b"x" * 64]):
        assert refusal(lambda given=given: plain.near.send_batch(given)).startswith("batch must be a Batch, not ")
        assert refusal(lambda given=given: plain.near.forward(given, plain.far)).startswith("batch must be a Batch")


EVERYTHING = (
    lambda chain, batch: list(map(bytes, batch)),
    lambda chain, batch: [packet[:20] for packet in batch],
    lambda chain, batch: [packet[packet.length - 1] for packet in batch],
    lambda chain, batch: [bytes(batch.view(row)) for row in range(len(batch))],
    lambda chain, batch: [packet.part(2, 9) for packet in batch],
    lambda chain, batch: [(packet.gone, packet.kept, packet.parts, repr(packet)) for packet in batch],
    lambda chain, batch: batch.column(12, ">u2"),
    lambda chain, batch: batch.column(3000, "S60000"),
    lambda chain, batch: batch.keep(),
    lambda chain, batch: [packet.keep() for packet in batch],
    lambda chain, batch: chain.near.forward(batch, chain.far),
    lambda chain, batch: chain.near.send(list(batch)),
    lambda chain, batch: chain.near.send_batch(batch[::-1]),
    lambda chain, batch: batch.release(),
    lambda chain, batch: [packet.release() for packet in batch],
)
"""Whatever can be done with a batch."""


def do_everything(chain, batch, field):
    """Nothing of it may end by anything but a UsageError."""
    for action in EVERYTHING:
        try:
            with suppress(UsageError):
                action(chain, batch)
        except IndexError:  # of a byte that such a packet has not
            assert field in ("address", "length")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("handle", 0xFFFF_FFFF),
        ("handle", 0x7FFF_FFFF),
        ("handle", 512),
        ("handle", "free"),
        ("handle", "fill"),
        ("number", 0),
        ("number", 0xFFFF_FFFF),
    ],
)
def test_rows_that_name_no_packet_of_the_batch_are_refused(plain, field, value):
    batch = plain.batch(4)
    if isinstance(value, str):
        owners = plain.umem.table.owners()
        value = int(np.flatnonzero(owners == {"free": Owner.FREE, "fill": Owner.FILL}[value])[-1])
    forged = Batch(batch._origin, batch.rows.copy())
    forged.rows[field][2] = value
    packet = forged[2]
    assert packet.gone
    for use in (bytes, lambda packet: packet.view, lambda packet: packet.parts, lambda packet: packet.keep()):
        assert refusal(lambda use=use: use(packet)) == f"this packet {GONE}"
    packet.release()
    assert refusal(lambda: plain.near.send(packet)) == f"this packet {GONE}"
    assert refusal(lambda: forged.column(0)) == f"packet 2 of the batch {GONE}"
    assert refusal(forged.keep) == f"a packet of the batch {GONE}"
    assert refusal(lambda: plain.near.forward(forged, plain.far)) == f"packet 2 of the batch {GONE}"
    assert collect(plain.sink, 3, timeout=0.1) == plain.packets(2)
    forged.release()
    assert [packet.gone for packet in batch] == [True, True, False, True]


@pytest.mark.parametrize("field", ROW.names)
def test_whatever_stands_in_the_rows_nothing_crashes_and_no_frame_is_lost(plain, field):
    dice = random.Random(field)
    frames = plain.umem.frames
    odd = [0, 1, frames - 1, frames, 1 << 31, (1 << 32) - 1, 4096, 256, plain.umem.size - 1]
    wide = [*odd, -1, -(1 << 63), (1 << 63) - 1, plain.umem.size, 1 << 48]
    for turn in range(12):
        batch = plain.batch(6, first=turn)
        forged = Batch(batch._origin, batch.rows.copy())
        for row in range(6):
            if dice.random() < 0.7:
                forged.rows[field][row] = dice.choice(wide if ROW[field] == np.int64 else odd)
        do_everything(plain, forged, field)
        batch.release()
        plain.near.flush()
        plain.all_home()
    collect(plain.sink, 1000, timeout=0)


def test_rows_of_another_kind_are_refused(plain):
    batch = plain.batch(4)
    rows = batch.rows
    other = np.dtype([(name, kind) for name, (kind, _) in reversed(ROW.fields.items())])
    kinds = (
        rows.astype(other),
        np.zeros(4, f"V{ROW.itemsize}"),
        rows["handle"],
        rows.reshape(2, 2),
        rows.tolist(),
        None,
        7,
        rows[0],
    )
    for given in kinds:
        batch.rows = given
        for act in (
            lambda: batch.column(0),
            batch.keep,
            batch.release,
            lambda: plain.near.send_batch(batch),
            lambda: plain.near.forward(batch, plain.far),
        ):
            assert refusal(act).startswith("rows must be the structured array of a Batch, not "), given
    batch.rows = rows
    batch.release()
