"""Instructions as text, in the words of the kernel's own verifier log (kernel/bpf/disasm.c)."""

from __future__ import annotations

from collections.abc import Iterable

from xskit.abi.bpf import Helper
from xskit.bpf.asm import ALU_CODES, JUMP_CODES, SIZE_CODES, Instruction, OpClass

__all__ = ["listing"]

_ALU = {code: operator for operator, code in ALU_CODES.items()}
_JUMP = {code: comparison for comparison, code in JUMP_CODES.items()}
_WIDTH = {code: f"u{size * 8}" for size, code in SIZE_CODES.items()}


def listing(instructions: Iterable[Instruction]) -> list[str]:
    """One line an instruction, `3: (55) if r0 != 0x0 goto pc+4`; a 64-bit load takes two slots and one line."""
    lines = []
    slots = enumerate(instructions)
    for at, instruction in slots:
        if instruction.opcode == 0x18:
            _, upper = next(slots)
            text = _load_imm64(instruction, upper)
        else:
            text = _text(instruction)
        lines.append(f"{at}: ({instruction.opcode:02x}) {text}")
    return lines


def _load_imm64(lower: Instruction, upper: Instruction) -> str:
    if lower.map is not None:
        return f"r{lower.dst} = map[{lower.map}]"
    return f"r{lower.dst} = {(upper.immediate & 0xFFFF_FFFF) << 32 | lower.immediate & 0xFFFF_FFFF:#x}"


def _text(i: Instruction) -> str:
    match i.opcode & 7:
        case OpClass.ALU64 | OpClass.ALU32:
            return _alu(i)
        case OpClass.JMP:
            return _jump(i)
        case OpClass.LDX:
            return f"r{i.dst} = {_memory(i, i.src)}"
        case OpClass.ST:
            return f"{_memory(i, i.dst)} = {i.immediate}"
        case OpClass.STX if i.opcode & 0xE0 == 0xC0:
            return f"lock {_memory(i, i.dst)} += r{i.src}"
        case OpClass.STX:
            return f"{_memory(i, i.dst)} = r{i.src}"
    return f"unknown opcode {i.opcode:#04x}"


def _alu(i: Instruction) -> str:
    if i.opcode == 0xDC:
        return f"r{i.dst} = be{i.immediate} r{i.dst}"
    kind = "r" if i.opcode & 7 == OpClass.ALU64 else "w"
    operand = f"{kind}{i.src}" if i.opcode & 8 else str(i.immediate)
    return f"{kind}{i.dst} {_ALU[i.opcode & 0xF0]} {operand}"


def _jump(i: Instruction) -> str:
    match i.opcode:
        case 0x05:
            return f"goto pc{i.offset:+d}"
        case 0x85:
            known = i.immediate in Helper.__members__.values()
            return f"call bpf_{Helper(i.immediate).name.lower()}#{i.immediate}" if known else f"call #{i.immediate}"
        case 0x95:
            return "exit"
    right = f"r{i.src}" if i.opcode & 8 else f"{i.immediate & 0xFFFF_FFFF:#x}"
    return f"if r{i.dst} {_JUMP[i.opcode & 0xF0]} {right} goto pc{i.offset:+d}"


def _memory(i: Instruction, base: int) -> str:
    return f"*({_WIDTH[i.opcode & 0x18]} *)(r{base} {i.offset:+d})"
