"""What is forgotten is closed, at once and with a warning: its memory, its queue and its program are free."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.xsk_veth import eventually, numbered, veth
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", autouse=True)
def _pair():
    with veth(rx_queues=2, tx_queues=2):
        yield


@contextmanager
def told():
    """The sentences of ResourceWarnings, without the help of the garbage collector."""
    gc.collect()
    gc.disable()
    sentences: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            # a list of warnings would keep their sources
            warnings.showwarning = lambda message, category, *_: sentences.append(f"{category.__name__}: {message}")
            yield sentences
    finally:
        gc.enable()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def is_free(name: str) -> None:
    """No ring is mapped, no program attached, and both queues can be bound."""
    assert "socket:[" not in Path("/proc/self/maps").read_text()
    eventually(False, lambda: "xdp" in subprocess.check_output(["ip", "link", "show", name], text=True))
    with Umem(frames=64) as umem, Port.open(name, umem):
        pass


def used(end: Socket | Port) -> None:
    """Something of everything."""
    end.receive(timeout=0)
    end.receive_batch(timeout=0.001)
    end.send(numbered(2))
    end.flush()
    end.new_batch(64, 2)
    sock = end if isinstance(end, Socket) else end.queues[0]
    sock.rx.peek(1)
    sock.tx.reserve(1)
    sock.fill.reserve(1)
    sock.completion.peek(1)


@pytest.mark.parametrize("use", [used, lambda end: None], ids=["used", "not used"])
@pytest.mark.parametrize(
    ("opened", "sentence"),
    [
        (lambda umem: Socket("vb", umem=umem), "ResourceWarning: <Socket of queue 0 of vb, copy> was never closed"),
        (lambda umem: Port.open("vb", umem), "ResourceWarning: <Port vb, 2 queues, native, copy> was never closed"),
    ],
)
def test_a_forgotten_end_is_closed(opened, sentence, use):
    before = descriptors()
    with Umem(frames=256) as umem:
        with told() as sentences:
            end = opened(umem)
            use(end)
            del end
        assert sentences == [sentence]
        assert descriptors() == before
        assert umem.pool.free == umem.frames
        is_free("vb")


@pytest.mark.parametrize("hold", [lambda packets, batch: packets, lambda packets, batch: batch])
def test_an_end_is_forgotten_though_its_packets_are_not(hold):
    with Umem(frames=64) as umem, Umem(frames=64) as outer, Socket("va", umem=outer) as source:
        with told() as sentences:
            sock = Socket("vb", umem=umem)
            source.send(numbered(2))
            packets = [packet.keep() for packet in sock.receive(timeout=5.0)]
            held = hold(packets, sock.new_batch(64, 2))
            del sock
        assert sentences == ["ResourceWarning: <Socket of queue 0 of vb, copy> was never closed"]
        assert [packet.gone for packet in held] == [False] * len(held)
        del held
    is_free("vb")


def test_a_forgotten_memory_whose_socket_is_not_stays():
    with told() as sentences:
        sock = Socket("vb", umem=Umem(frames=64))
        assert sock.receive(timeout=0) == []
        sock.umem.close()
    assert sentences == []
    assert sock.closed


def test_all_together_are_told_one_by_one():
    with told() as sentences:
        umem = Umem(frames=64)
        sock = Socket("vb", umem=umem)
        used(sock)
        del umem, sock
    assert sorted(sentences) == [
        "ResourceWarning: <Socket of queue 0 of vb, copy> was never closed",
        "ResourceWarning: <Umem of 64 frames of 4096 bytes> was never closed",
    ]
    is_free("vb")


def test_what_is_closed_is_not_told():
    with told() as sentences:
        umem = Umem(frames=64)
        sock = Socket("vb", umem=umem)
        port = Port.open("va", umem)
        for end in (sock, port, umem):
            end.close()
        del sock, port, umem
        gc.collect()
    assert sentences == []


def test_what_could_not_be_opened_is_not_told():
    with told() as sentences, Umem(frames=64) as umem:
        with pytest.raises(Exception, match="queue 7"):
            Socket("vb", 7, umem=umem)
        with pytest.raises(Exception, match="zero copy"):
            Socket("vb", umem=umem, mode="zero-copy")
        with pytest.raises(Exception, match="zero copy"):
            Port.open("vb", umem, mode="zero-copy")
        gc.collect()
    assert sentences == []
    is_free("vb")


def mapped_bytes() -> int:
    ranges = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return sum(int(end, 16) - int(first, 16) for first, end in ranges)


def test_a_loop_that_forgets_keeps_nothing():
    with told() as sentences:
        before = descriptors(), mapped_bytes()
        for number in range(50):
            umem = Umem(frames=4096)
            if number % 5 == 0:
                sock = Socket("vb", umem=umem)
                used(sock)
                del sock
            del umem
    assert len(sentences) == 60
    assert descriptors() == before[0]
    assert mapped_bytes() < before[1] + (32 << 20), "two packet memories are more"


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore" if {quiet} else "default")
sys.path.insert(0, {root!r})
from xskit import Port, Socket, Umem
umem = Umem(frames=64)
sock = Socket("vb", umem=umem)
port = Port.open("va", Umem(frames=64))
sock.send(bytes(64))
sock.receive(timeout=0)
port.receive(timeout=0)
batch = sock.new_batch(64, 2)
views = [packet.view for packet in batch]
{end}
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise LookupError", 1), ("import os; os._exit(5)", 5), ("del sock, port, umem", 0)],
)
def test_an_interpreter_that_ends_with_everything_open_ends_well(end, code):
    source = SCRIPT.format(quiet=True, root=str(Path(__file__).parents[2]), end=end)
    for _ in range(2):  # the second time the queues are free
        ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == code, ended.stderr
        assert ended.stdout == ""
        assert ("LookupError" in ended.stderr) == (code == 1)
        assert ended.stderr == "" or code == 1
    is_free("vb")
