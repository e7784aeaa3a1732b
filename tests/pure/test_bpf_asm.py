"""The assembler against literal bytes (RFC 9669), and the listing against the kernel's way of writing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.abi.bpf import Helper, XdpMd
from xskit.bpf.asm import (
    R0,
    R1,
    R2,
    R3,
    R6,
    R7,
    R8,
    R10,
    U8,
    U16,
    U32,
    U64,
    Assembler,
    AssemblyError,
    Instruction,
    Register,
    encode,
)
from xskit.bpf.disasm import listing

ENCODINGS = [
    (lambda a: a.mov(R6, R1), "bf16 0000 00000000", "r6 = r1"),
    (lambda a: a.mov(R2, -8), "b702 0000 f8ffffff", "r2 = -8"),
    (lambda a: a.alu(R2, "+=", 8), "0702 0000 08000000", "r2 += 8"),
    (lambda a: a.alu(R2, "-=", R3), "1f32 0000 00000000", "r2 -= r3"),
    (lambda a: a.alu(R2, "s>>=", 3), "c702 0000 03000000", "r2 s>>= 3"),
    (lambda a: a.alu32(R2, "&=", 0x1FFF), "5402 0000 ff1f0000", "w2 &= 8191"),
    (lambda a: a.alu32(R2, "^=", R3), "ac32 0000 00000000", "w2 ^= w3"),
    (lambda a: a.big_endian(R2, 16), "dc02 0000 10000000", "r2 = be16 r2"),
    (lambda a: a.load(R2, R1, XdpMd.RX_QUEUE_INDEX, U32), "6112 1000 00000000", "r2 = *(u32 *)(r1 +16)"),
    (lambda a: a.load(R2, R7, 12, U16), "6972 0c00 00000000", "r2 = *(u16 *)(r7 +12)"),
    (lambda a: a.load(R2, R7, 14, U8), "7172 0e00 00000000", "r2 = *(u8 *)(r7 +14)"),
    (lambda a: a.load(R1, R0, 0, U64), "7901 0000 00000000", "r1 = *(u64 *)(r0 +0)"),
    (lambda a: a.store(R7, 42, R0, U64), "7b07 2a00 00000000", "*(u64 *)(r7 +42) = r0"),
    (lambda a: a.store(R10, -4, 2, U32), "620a fcff 02000000", "*(u32 *)(r10 -4) = 2"),
    (lambda a: a.atomic_add(R0, 8, R1, U64), "db10 0800 00000000", "lock *(u64 *)(r0 +8) += r1"),
    (lambda a: a.call(Helper.REDIRECT_MAP), "8500 0000 33000000", "call bpf_redirect_map#51"),
    (lambda a: a.exit(), "9500 0000 00000000", "exit"),
]


@pytest.mark.parametrize(("write", "code", "text"), ENCODINGS, ids=[text for _, _, text in ENCODINGS])
def test_each_kind_of_instruction(write, code, text):
    instructions = write(Assembler()).assemble()
    assert encode(instructions, {}) == bytes.fromhex(code)
    assert listing(instructions) == [f"0: ({code[:2]}) {text}"]


def test_jumps_count_from_the_next_instruction():
    a = Assembler()
    a.label("again").jump_if(R2, ">", R8, "end")
    a.jump_if(R0, "!=", 0, "again")
    a.jump_if(R0, "==", -1, "end")
    a.jump("again")
    a.label("end").exit()
    assert encode(a.assemble(), {}) == bytes.fromhex(
        "2d82 0300 00000000  5500 feff 00000000  1500 0100 ffffffff  0500 fcff 00000000  9500 0000 00000000"
    )
    assert listing(a.assemble()) == [
        "0: (2d) if r2 > r8 goto pc+3",
        "1: (55) if r0 != 0x0 goto pc-2",
        "2: (15) if r0 == 0xffffffff goto pc+1",
        "3: (05) goto pc-4",
        "4: (95) exit",
    ]


def test_a_map_is_a_name_until_it_has_a_file_descriptor():
    code = Assembler().load_map(R1, "sockets").exit().assemble()
    assert encode(code, {"sockets": 7}) == bytes.fromhex("1811 0000 07000000  0000 0000 00000000  9500 0000 00000000")
    assert listing(code) == ["0: (18) r1 = map[sockets]", "2: (95) exit"]
    with pytest.raises(AssemblyError, match='the program uses a map "sockets", and none of that name was given'):
        encode(code, {"others": 7})


@given(st.integers(0, 2**64 - 1), st.sampled_from(list(Register)[:10]))
def test_64_bit_immediates_are_whole(value, register):
    code = Assembler().load_imm64(register, value).assemble()
    first, second = encode(code, {})[:8], encode(code, {})[8:]
    assert first[:2] == bytes([0x18, register])
    assert first[4:] + second[4:] == struct.pack("<Q", value)
    assert second[:4] == bytes(4)
    assert listing(code) == [f"0: (18) r{register.value} = {value:#x}"]


@given(st.lists(st.integers(0, 19), min_size=1, max_size=20))
def test_every_jump_lands_on_its_label(targets):
    """Twenty labelled exits behind any run of jumps."""
    a = Assembler()
    for target in targets:
        a.jump(f"label {target}")
    for number in range(20):
        a.label(f"label {number}").exit()
    code = a.assemble()
    for at, target in enumerate(targets):
        assert at + 1 + code[at].offset == len(targets) + target


@given(st.integers().filter(lambda value: not -(2**31) <= value < 2**31))
def test_immediates_that_do_not_fit_are_refused(value):
    with pytest.raises(AssemblyError, match="does not fit into 32 signed bits"):
        Assembler().mov(R0, value)


@given(st.integers().filter(lambda offset: not -(2**15) <= offset < 2**15))
def test_offsets_that_do_not_fit_are_refused(offset):
    with pytest.raises(AssemblyError, match="does not fit into 16 signed bits"):
        Assembler().load(R0, R1, offset, U32)


def test_the_outermost_numbers_fit():
    code = Assembler().mov(R0, 2**31 - 1).mov(R0, -(2**31)).load(R0, R1, 2**15 - 1, U8).load(R0, R1, -(2**15), U8)
    assert encode(code.assemble(), {}) == bytes.fromhex(
        "b700 0000 ffffff7f  b700 0000 00000080  7110 ff7f 00000000  7110 0080 00000000"
    )


def test_labels_that_cannot_be_meant():
    with pytest.raises(AssemblyError, match='instruction 1 jumps to "nowhere", and there is no such label'):
        Assembler().mov(R0, 0).jump("nowhere").exit().assemble()
    with pytest.raises(AssemblyError, match='label "twice" is set twice'):
        Assembler().label("twice").exit().label("twice")
    with pytest.raises(AssemblyError, match='label "end" stands behind the last instruction'):
        Assembler().jump("end").label("end").assemble()


def test_a_jump_out_of_reach_is_refused():
    a = Assembler().jump("far")
    for _ in range(2**15):
        a.mov(R0, 0)
    with pytest.raises(AssemblyError, match="offset 32768 does not fit into 16 signed bits"):
        a.label("far").exit().assemble()


def test_atomic_additions_have_two_widths():
    with pytest.raises(AssemblyError, match="an atomic addition takes 4 or 8 bytes, not 2"):
        Assembler().atomic_add(R0, 0, R1, U16)
    with pytest.raises(AssemblyError, match="64 unsigned bits"):
        Assembler().load_imm64(R0, -1)


def test_assembling_is_repeatable():
    a = Assembler().label("here").jump_if(R0, "<", 5, "here").exit()
    assert a.assemble() == a.assemble()


def test_unknown_instructions_are_listed_as_such():
    assert listing([Instruction(0x85, immediate=999), Instruction(0x06)]) == [
        "0: (85) call #999",
        "1: (06) unknown opcode 0x06",
    ]
