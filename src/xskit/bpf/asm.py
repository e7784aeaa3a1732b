"""A small eBPF assembler: methods append instructions, labels are resolved by `assemble()`.

```python
a = Assembler()
a.load(R2, R1, XdpMd.RX_QUEUE_INDEX, U32)       # r2 = *(u32 *)(r1 +16)
a.load_map(R1, "sockets")                       # the map's file descriptor comes in when the program is loaded
a.mov(R3, XdpAction.PASS)
a.call(Helper.REDIRECT_MAP)
a.exit()
code = a.assemble()
```

The result is pure data: the same calls give the same instructions, on every machine and in every process.
Encodings: RFC 9669; Linux Documentation/bpf/standardization/instruction-set.rst.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from xskit.abi.bpf import Helper
from xskit.errors import UsageError

__all__ = [
    "ALU_CODES",
    "JUMP_CODES",
    "R0",
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "SIZE_CODES",
    "U8",
    "U16",
    "U32",
    "U64",
    "Alu",
    "Assembler",
    "AssemblyError",
    "Condition",
    "Instruction",
    "OpClass",
    "Register",
    "Width",
    "encode",
]


class AssemblyError(UsageError):
    """The program cannot be written down: an unknown label, a jump or a number that does not fit."""


class Register(IntEnum):
    """R0: results; R1 to R5: arguments, lost by a call; R6 to R9: kept; R10: end of the 512 bytes of stack."""

    R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)


R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = Register


class Width(IntEnum):
    """Width of a memory access, in bytes."""

    U8 = 1
    U16 = 2
    U32 = 4
    U64 = 8


U8, U16, U32, U64 = Width

Alu = Literal["=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>=", "s>>="]
Condition = Literal["==", "!=", ">", ">=", "<", "<=", "s>", "s>=", "s<", "s<=", "&"]


class OpClass(IntEnum):
    """The low three bits of an opcode."""

    LD = 0
    LDX = 1
    ST = 2
    STX = 3
    ALU32 = 4
    JMP = 5
    ALU64 = 7


ALU_CODES: Final[dict[Alu, int]] = {
    "+=": 0x00,
    "-=": 0x10,
    "*=": 0x20,
    "/=": 0x30,
    "|=": 0x40,
    "&=": 0x50,
    "<<=": 0x60,
    ">>=": 0x70,
    "%=": 0x90,
    "^=": 0xA0,
    "=": 0xB0,
    "s>>=": 0xC0,
}
JUMP_CODES: Final[dict[Condition, int]] = {
    "==": 0x10,
    ">": 0x20,
    ">=": 0x30,
    "&": 0x40,
    "!=": 0x50,
    "s>": 0x60,
    "s>=": 0x70,
    "<": 0xA0,
    "<=": 0xB0,
    "s<": 0xC0,
    "s<=": 0xD0,
}
SIZE_CODES: Final[dict[Width, int]] = {U32: 0x00, U16: 0x08, U8: 0x10, U64: 0x18}

_USE_REGISTER = 0x08  # the operand is a register, not the immediate
_MODE_MEMORY = 0x60
_MODE_ATOMIC = 0xC0
_LOAD_IMM64 = 0x18
_PSEUDO_MAP_FD = 1  # source register of _LOAD_IMM64: the immediate is a map's file descriptor
_SWAP_TO_BIG_ENDIAN = 0xDC
_JUMP_ALWAYS, _CALL, _EXIT = 0x05, 0x85, 0x95
_LAYOUT = struct.Struct("<BBhi")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One slot of 8 bytes.  `map` names the map whose file descriptor becomes the immediate."""

    opcode: int
    dst: int = 0
    src: int = 0
    offset: int = 0
    immediate: int = 0
    map: str | None = None


class Assembler:
    """Collects instructions; every method but `assemble` returns the assembler, so that short runs can be chained."""

    def __init__(self) -> None:
        self._code: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def label(self, name: str) -> Assembler:
        """Name the next instruction."""
        if name in self._labels:
            raise AssemblyError(f'label "{name}" is set twice')
        self._labels[name] = len(self._code)
        return self

    def alu(self, dst: Register, operator: Alu, operand: Register | int) -> Assembler:
        """64-bit arithmetic: `dst operator operand`; an immediate is sign-extended from 32 bits."""
        return self._operate(OpClass.ALU64, dst, operator, operand)

    def alu32(self, dst: Register, operator: Alu, operand: Register | int) -> Assembler:
        """32-bit arithmetic; the upper half of `dst` becomes zero."""
        return self._operate(OpClass.ALU32, dst, operator, operand)

    def mov(self, dst: Register, operand: Register | int) -> Assembler:
        """`dst = operand`, 64 bits."""
        return self.alu(dst, "=", operand)

    def big_endian(self, dst: Register, bits: Literal[16, 32, 64]) -> Assembler:
        """Turn a number between host and network byte order; bits above are cut off."""
        return self._put(Instruction(_SWAP_TO_BIG_ENDIAN, dst, immediate=bits))

    def load(self, dst: Register, base: Register, offset: int, size: Width) -> Assembler:
        """`dst = *(size *)(base + offset)`, zero-extended."""
        return self._put(Instruction(OpClass.LDX | _MODE_MEMORY | SIZE_CODES[size], dst, base, offset))

    def store(self, base: Register, offset: int, operand: Register | int, size: Width) -> Assembler:
        """`*(size *)(base + offset) = operand`."""
        opcode = _MODE_MEMORY | SIZE_CODES[size]
        if isinstance(operand, Register):
            return self._put(Instruction(OpClass.STX | opcode, base, operand, offset))
        return self._put(Instruction(OpClass.ST | opcode, base, 0, offset, operand))

    def atomic_add(self, base: Register, offset: int, operand: Register, size: Width) -> Assembler:
        """`lock *(size *)(base + offset) += operand`; U32 or U64."""
        if size not in (U32, U64):
            raise AssemblyError(f"an atomic addition takes 4 or 8 bytes, not {size}")
        return self._put(Instruction(OpClass.STX | _MODE_ATOMIC | SIZE_CODES[size], base, operand, offset))

    def load_map(self, dst: Register, name: str) -> Assembler:
        """`dst` = the map that is given under this name when the program is loaded."""
        self._put(Instruction(_LOAD_IMM64, dst, _PSEUDO_MAP_FD, map=name))
        return self._put(Instruction(0))

    def load_imm64(self, dst: Register, value: int) -> Assembler:
        """`dst = value`, all 64 bits of it."""
        if not 0 <= value < 1 << 64:
            raise AssemblyError(f"{value} does not fit into 64 unsigned bits")
        self._put(Instruction(_LOAD_IMM64, dst, immediate=_signed32(value & 0xFFFF_FFFF)))
        return self._put(Instruction(0, immediate=_signed32(value >> 32)))

    def jump(self, target: str) -> Assembler:
        """Go on at a label."""
        self._jumps[len(self._code)] = target
        return self._put(Instruction(_JUMP_ALWAYS))

    def jump_if(self, left: Register, comparison: Condition, right: Register | int, target: str) -> Assembler:
        """Go on at a label when the 64-bit comparison holds; `&`: when the two have a bit in common."""
        self._jumps[len(self._code)] = target
        opcode = OpClass.JMP | JUMP_CODES[comparison]
        if isinstance(right, Register):
            return self._put(Instruction(opcode | _USE_REGISTER, left, right))
        return self._put(Instruction(opcode, left, immediate=right))

    def call(self, helper: Helper) -> Assembler:
        """`R0 = helper(R1, ..., R5)`; R1 to R5 are lost."""
        return self._put(Instruction(_CALL, immediate=helper))

    def exit(self) -> Assembler:
        """Return R0."""
        return self._put(Instruction(_EXIT))

    def returns(self, value: int) -> Assembler:
        """`R0 = value; exit`."""
        return self.mov(R0, value).exit()

    def assemble(self) -> tuple[Instruction, ...]:
        """The instructions, jumps resolved.  Raises AssemblyError for an unknown label or one out of reach."""
        code = list(self._code)
        for at, target in self._jumps.items():
            if target not in self._labels:
                raise AssemblyError(f'instruction {at} jumps to "{target}", and there is no such label')
            offset = self._labels[target] - at - 1
            if self._labels[target] == len(code):
                raise AssemblyError(f'label "{target}" stands behind the last instruction')
            old = code[at]
            code[at] = self._checked(Instruction(old.opcode, old.dst, old.src, offset, old.immediate))
        return tuple(code)

    def _operate(self, op_class: OpClass, dst: Register, operator: Alu, operand: Register | int) -> Assembler:
        opcode = op_class | ALU_CODES[operator]
        if isinstance(operand, Register):
            return self._put(Instruction(opcode | _USE_REGISTER, dst, operand))
        return self._put(Instruction(opcode, dst, immediate=operand))

    def _put(self, instruction: Instruction) -> Assembler:
        self._code.append(self._checked(instruction))
        return self

    def _checked(self, instruction: Instruction) -> Instruction:
        if not -(1 << 15) <= instruction.offset < 1 << 15:
            raise AssemblyError(f"offset {instruction.offset} does not fit into 16 signed bits")
        if not -(1 << 31) <= instruction.immediate < 1 << 31:
            raise AssemblyError(f"immediate {instruction.immediate} does not fit into 32 signed bits")
        return instruction


def encode(instructions: tuple[Instruction, ...], maps: Mapping[str, int]) -> bytes:
    """The bytes that PROG_LOAD takes, 8 an instruction; `maps` gives the file descriptor of every map named.

    Little-endian machines only: a big-endian one has the two registers the other way round.
    Raises AssemblyError when a map is missing.
    """
    out = bytearray()
    for instruction in instructions:
        immediate = instruction.immediate
        if instruction.map is not None:
            if instruction.map not in maps:
                raise AssemblyError(f'the program uses a map "{instruction.map}", and none of that name was given')
            immediate = maps[instruction.map]
        registers = instruction.dst | instruction.src << 4
        out += _LAYOUT.pack(instruction.opcode, registers, instruction.offset, immediate)
    return bytes(out)


def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
