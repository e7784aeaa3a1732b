"""bpf(2) with a fake kernel: the bytes that would reach the real one, and what becomes of its errors."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

import pytest

from xskit.abi.bpf import AttachType, BpfCommand, MapType, ProgramType, UpdateFlag
from xskit.bpf import syscall
from xskit.bpf.asm import R0, R1, R2, U32, Assembler
from xskit.bpf.errors import BpfError, VerifierError
from xskit.bpf.map import Map, MapSpec, possible_cpus
from xskit.bpf.probe import BpfFeature, available, probe
from xskit.bpf.program import Program, ProgramSpec
from xskit.errors import PrivilegeError, UsageError


class FakeKernel:
    """Remembers every call; answers by `answers[command]`: a number, an errno as OSError, or a function of attr."""

    def __init__(self, **answers):
        self.answers = answers
        self.calls = []

    def __call__(self, command, attr):
        self.calls.append((command, bytes(attr)))
        answer = self.answers.get(command.name, 0)
        if callable(answer):
            answer = answer(attr)
        if isinstance(answer, OSError):
            raise OSError(answer.errno, os.strerror(answer.errno))
        return answer


@pytest.fixture
def new_fd():
    """A file descriptor to give out as if it were a map or a program."""
    return lambda _attr: os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)


def fails(number):
    return OSError(number, "")


NOTHING = Assembler().returns(2).assemble()
TABLE = MapSpec("table", MapType.HASH, 4, 4, 16)


def memory(attr, offset, size):
    """What the pointer at `offset` of attr points at."""
    (address,) = struct.unpack_from("=Q", attr, offset)
    return ctypes.string_at(address, size)


def test_map_create_is_the_struct_of_the_header(new_fd):
    kernel = FakeKernel(MAP_CREATE=new_fd)
    with syscall.replaced(kernel), Map.create(MapSpec("routes/v4 and more", MapType.LPM_TRIE, 8, 4, 100)):
        pass
    name = b"routes_v4_and_m\0"
    assert kernel.calls == [(BpfCommand.MAP_CREATE, struct.pack("=7I", 11, 8, 4, 100, 1, 0, 0) + name)]


def test_keys_and_values_reach_the_kernel(new_fd):
    seen = []

    def update(attr):
        flags = struct.unpack_from("=Q", attr, 24)[0]
        seen.append((memory(attr, 8, 4), memory(attr, 16, 4), flags))
        return 0

    with (
        syscall.replaced(FakeKernel(MAP_CREATE=new_fd, MAP_UPDATE_ELEM=update)),
        Map.create(MapSpec("m", MapType.HASH, 4, 4, 16)) as table,
    ):
        table.set(7, b"abcd", UpdateFlag.NOEXIST)
    assert seen == [((7).to_bytes(4, sys.byteorder), b"abcd", 1)]


def test_per_cpu_values_lie_eight_bytes_apart(new_fd):
    cpus = possible_cpus()
    written = []

    def lookup(attr):
        (address,) = struct.unpack_from("=Q", attr, 16)
        ctypes.memmove(address, b"".join(struct.pack("=II", cpu, 0xFFFF_FFFF) for cpu in range(cpus)), 8 * cpus)
        return 0

    def update(attr):
        written.append(memory(attr, 16, 8 * cpus))
        return 0

    kernel = FakeKernel(MAP_CREATE=new_fd, MAP_LOOKUP_ELEM=lookup, MAP_UPDATE_ELEM=update)
    with syscall.replaced(kernel), Map.create(MapSpec("m", MapType.PERCPU_ARRAY, 4, 4, 1)) as counters:
        assert counters.get_per_cpu(0) == [struct.pack("=I", cpu) for cpu in range(cpus)]
        counters.set(0, 5)
        with pytest.raises(UsageError, match="one value for each CPU: use get_per_cpu"):
            counters.get(0)
    assert written == [struct.pack("=II", 5, 0) * cpus]


def test_what_is_not_there_is_none_or_false(new_fd):
    kernel = FakeKernel(MAP_CREATE=new_fd, MAP_LOOKUP_ELEM=fails(errno.ENOENT), MAP_DELETE_ELEM=fails(errno.ENOENT))
    with syscall.replaced(kernel), Map.create(TABLE) as table:
        assert table.get(3) is None
        assert table.delete(3) is False
        with pytest.raises(UsageError, match="one value for all CPUs: use get"):
            table.get_per_cpu(3)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (2**32, 'key 4294967296 does not fit into the 4 bytes of map "table"'),
        (-1, 'key -1 does not fit into the 4 bytes of map "table"'),
        (b"abc", 'a key of map "table" has 4 bytes, not 3'),
    ],
)
def test_keys_of_the_wrong_size_do_not_reach_the_kernel(new_fd, key, message):
    kernel = FakeKernel(MAP_CREATE=new_fd)
    with syscall.replaced(kernel), Map.create(TABLE) as table, pytest.raises(UsageError) as caught:
        table.get(key)
    assert caught.value.cause == message
    assert [command for command, _ in kernel.calls] == [BpfCommand.MAP_CREATE]


@pytest.mark.parametrize(
    ("kind", "number", "message"),
    [
        (MapType.XSKMAP, errno.E2BIG, 'writing to map "m" failed: E2BIG: its keys end at 15'),
        (MapType.HASH, errno.E2BIG, 'writing to map "m" failed: E2BIG: it is full, it has room for 16 entries'),
        (MapType.LPM_TRIE, errno.ENOSPC, 'writing to map "m" failed: ENOSPC: it is full, it has room for 16 entries'),
        (
            MapType.XSKMAP,
            errno.EOPNOTSUPP,
            'writing to map "m" failed: EOPNOTSUPP: only AF_XDP sockets go into it, and nothing can be read back',
        ),
        (
            MapType.XSKMAP,
            errno.ENOTSOCK,
            'writing to map "m" failed: ENOTSOCK: only AF_XDP sockets go into it, '
            "and this file descriptor is no socket",
        ),
        (MapType.HASH, errno.EEXIST, 'writing to map "m" failed: EEXIST: File exists'),
    ],
)
def test_map_errors_say_what_they_mean_here(new_fd, kind, number, message):
    kernel = FakeKernel(MAP_CREATE=new_fd, MAP_UPDATE_ELEM=fails(number))
    with (
        syscall.replaced(kernel),
        Map.create(MapSpec("m", kind, 4, 4, 16)) as table,
        pytest.raises(BpfError) as caught,
    ):
        table.set(3, 3)
    assert caught.value.cause == message
    assert caught.value.errno == number


def test_without_rights_the_error_names_the_capabilities():
    with syscall.replaced(FakeKernel(MAP_CREATE=fails(errno.EPERM))), pytest.raises(PrivilegeError) as caught:
        Map.create(TABLE)
    assert caught.value.cause == (
        'creating map "table" (HASH) needs CAP_BPF and CAP_NET_ADMIN in the initial user namespace, '
        "and this process lacks them"
    )
    assert "setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep" in caught.value.remedy


def test_a_kernel_without_bpf():
    with (
        syscall.replaced(FakeKernel(MAP_CREATE=fails(errno.ENOSYS))),
        pytest.raises(BpfError, match=r"has no bpf\(2\)"),
    ):
        Map.create(TABLE)


def test_a_program_is_loaded_without_asking_for_a_log(new_fd):
    seen = []

    def load(attr):
        seen.append((memory(attr, 8, 16), memory(attr, 16, 13)))
        return new_fd(attr)

    kernel = FakeKernel(PROG_LOAD=load)
    with syscall.replaced(kernel), Program.load(ProgramSpec("a program with a name", NOTHING, frags=True)) as program:
        assert program.spec.frags
    assert seen == [(bytes.fromhex("b700000002000000 9500000000000000"), b"Dual MIT/GPL\0")]
    ((command, attr),) = kernel.calls
    assert command is BpfCommand.PROG_LOAD
    assert attr[:8] == struct.pack("=II", ProgramType.XDP, 2)
    assert attr[24:40] == bytes(16)  # no log
    assert attr[40:] == struct.pack("=II16sII", 0, 1 << 5, b"a_program_with_", 0, AttachType.XDP)


def test_the_verifiers_log_is_in_the_error():
    log = b"0: R1=ctx() R10=fp0\n0: (95) exit\nR0 !read_ok\nprocessed 1 insns (limit 1000000)\n"

    def load(attr):
        level, size, address = struct.unpack_from("=IIQ", attr, 24)
        if level:
            ctypes.memmove(address, log, min(size, len(log)))
        return fails(errno.EACCES)

    kernel = FakeKernel(PROG_LOAD=load)
    with syscall.replaced(kernel), pytest.raises(VerifierError) as caught:
        Program.load(ProgramSpec("bad", Assembler().exit().assemble()))
    assert caught.value.cause == 'loading program "bad" (XDP) failed: EACCES: the verifier refused it: R0 !read_ok'
    assert caught.value.log == log.decode()
    assert str(caught.value) == f"{caught.value.cause}\n{log.decode().rstrip()}"
    assert len(kernel.calls) == 2


def test_a_refusal_without_a_log_is_about_the_kind_of_program():
    with syscall.replaced(FakeKernel(PROG_LOAD=fails(errno.EINVAL))), pytest.raises(BpfError) as caught:
        Program.load(ProgramSpec("new", NOTHING, frags=True))
    assert caught.value.cause == (
        'loading program "new" (XDP) failed: EINVAL: this kernel does not know the type of program or one of its flags'
    )
    assert not isinstance(caught.value, VerifierError)


def test_loading_is_tried_again_when_a_signal_came(new_fd):
    tries = iter([fails(errno.EAGAIN), fails(errno.EAGAIN)])
    kernel = FakeKernel(PROG_LOAD=lambda attr: next(tries, None) or new_fd(attr))
    with syscall.replaced(kernel), Program.load(ProgramSpec("slow", NOTHING)):
        assert len(kernel.calls) == 3


def test_a_test_run_gives_packet_and_metadata_apart(new_fd):
    def run(attr):
        data_out, context_out = struct.unpack_from("=Q", attr, 24)[0], struct.unpack_from("=Q", attr, 56)[0]
        assert memory(attr, 16, 20) == b"meta" + b"p" * 16
        assert memory(attr, 48, 24) == struct.pack("=6I", 4, 20, 0, 3, 1, 0)
        ctypes.memmove(data_out, b"new meta" + b"q" * 16, 24)
        ctypes.memmove(context_out, struct.pack("=6I", 8, 24, 0, 3, 1, 0), 24)
        struct.pack_into("=I", attr, 4, 4)
        struct.pack_into("=I", attr, 12, 24)
        struct.pack_into("=I", attr, 36, 99)
        return 0

    kernel = FakeKernel(PROG_LOAD=new_fd, PROG_TEST_RUN=run)
    with syscall.replaced(kernel), Program.load(ProgramSpec("p", NOTHING)) as program:
        result = program.test_run(b"p" * 16, metadata=b"meta", ifindex=3, queue=1)
    assert (result.action, result.metadata, result.packet, result.duration_ns) == (4, b"new meta", b"q" * 16, 99)


def test_live_frames_ask_for_nothing_back(new_fd):
    def run(attr):
        assert struct.unpack_from("=I", attr, 8)[0] == 60
        assert memory(attr, 16, 60) == b"p" * 60
        assert memory(attr, 48, 24) == struct.pack("=6I", 0, 60, 0, 3, 1, 0)
        assert struct.unpack_from("=I", attr, 12)[0] == struct.unpack_from("=Q", attr, 24)[0] == 0  # no packet
        assert struct.unpack_from("=I", attr, 44)[0] == struct.unpack_from("=Q", attr, 56)[0] == 0  # no context
        assert struct.unpack_from("=I", attr, 32)[0] == 1000
        assert struct.unpack_from("=III", attr, 64) == (2, 0, 32)
        return 0

    kernel = FakeKernel(PROG_LOAD=new_fd, PROG_TEST_RUN=run)
    with syscall.replaced(kernel), Program.load(ProgramSpec("p", NOTHING)) as program:
        program.run_live(b"p" * 60, ifindex=3, queue=1, repeat=1000, batch=32)


def test_a_kernel_without_live_frames_is_named(new_fd):
    def run(attr):
        raise OSError(errno.EINVAL, "")

    kernel = FakeKernel(PROG_LOAD=new_fd, PROG_TEST_RUN=run)
    with (
        syscall.replaced(kernel),
        Program.load(ProgramSpec("p", NOTHING)) as program,
        pytest.raises(BpfError, match="live frames came with Linux 5.18"),
    ):
        program.run_live(b"p" * 60, ifindex=3, repeat=1)


def test_only_xdp_programs_take_metadata(new_fd):
    spec = ProgramSpec("tc", NOTHING, ProgramType.SCHED_CLS, AttachType.TCX_EGRESS)
    with (
        syscall.replaced(FakeKernel(PROG_LOAD=new_fd)),
        Program.load(spec) as program,
        pytest.raises(UsageError, match="metadata, ifindex and queue are for XDP programs"),
    ):
        program.test_run(bytes(64), queue=1)


def test_a_closed_object_says_so(new_fd):
    with syscall.replaced(FakeKernel(MAP_CREATE=new_fd)):
        table = Map.create(TABLE)
        assert table.fileno() == table.fd
        table.close()
        table.close()
        assert table.closed
        with pytest.raises(ValueError, match="this Map is closed"):
            table.get(0)


@pytest.fixture
def fresh_probe():
    """Probes are remembered: forget them before and after a fake kernel answered."""
    probe.cache_clear()
    yield
    probe.cache_clear()


@pytest.mark.usefixtures("fresh_probe")
def test_features_are_tried_once(new_fd):
    kernel = FakeKernel(PROG_LOAD=new_fd)
    with syscall.replaced(kernel):
        assert available(BpfFeature.XDP_FRAGS)
        assert available(BpfFeature.XDP_FRAGS)
    assert len(kernel.calls) == 1


@pytest.mark.usefixtures("fresh_probe")
@pytest.mark.parametrize(
    ("feature", "kernel", "there"),
    [
        (BpfFeature.LINK, FakeKernel(LINK_CREATE=fails(errno.EBADF)), True),
        (BpfFeature.LINK, FakeKernel(LINK_CREATE=fails(errno.EINVAL)), False),
        (BpfFeature.LINK, FakeKernel(LINK_CREATE=fails(errno.EPERM)), None),
        (BpfFeature.XDP_FRAGS, FakeKernel(PROG_LOAD=fails(errno.EINVAL)), False),
        (BpfFeature.XSKMAP, FakeKernel(MAP_CREATE=fails(errno.EPERM)), None),
        (BpfFeature.LPM_TRIE, FakeKernel(MAP_CREATE=fails(errno.EINVAL)), False),
    ],
)
def test_probing_tells_missing_from_forbidden(feature, kernel, there):
    with syscall.replaced(kernel):
        support = probe(feature)
    assert support.available is there
    assert bool(support.detail) is (there is not True)


@pytest.mark.usefixtures("fresh_probe")
@pytest.mark.parametrize(("number", "there"), [(errno.ENODEV, True), (errno.EINVAL, False)])
def test_tcx_is_told_by_the_errno_for_a_missing_interface(new_fd, number, there):
    kernel = FakeKernel(PROG_LOAD=new_fd, LINK_CREATE=fails(number))
    with syscall.replaced(kernel):
        assert available(BpfFeature.TCX) is there


def test_specs_are_pure_data():
    def spec():
        return ProgramSpec("p", Assembler().load(R2, R1, 16, U32).mov(R0, R2).exit().assemble())

    assert spec() == spec()
    assert spec().listing() == "0: (61) r2 = *(u32 *)(r1 +16)\n1: (bf) r0 = r2\n2: (95) exit"
