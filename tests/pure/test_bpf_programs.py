"""The fixed programs, before any kernel sees them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xskit.bpf.asm import JUMP_CODES, R7, OpClass
from xskit.bpf.redirect import drop_program, pass_program, redirect_program
from xskit.bpf.stamps import arrival_stamp_program, egress_stamp_program
from xskit.errors import UsageError

JUMP_IF_NOT = OpClass.JMP | JUMP_CODES["!="]


def test_pass_and_drop_are_two_instructions():
    assert pass_program().listing() == "0: (b7) r0 = 2\n1: (95) exit"
    assert drop_program().listing() == "0: (b7) r0 = 1\n1: (95) exit"


@pytest.mark.parametrize("make", [redirect_program, pass_program, drop_program])
def test_frags_change_the_flag_and_nothing_else(make):
    without, with_frags = make(frags=False), make(frags=True)
    assert without.instructions == with_frags.instructions
    assert (without.flags, with_frags.flags) == (0, 1 << 5)


def test_only_what_a_socket_gets_is_stamped():
    """The clock is read after the socket was found: a stamped packet on its way to the stack would escape GRO."""
    lines = redirect_program(frags=False).listing().splitlines()
    found = next(at for at, line in enumerate(lines) if "if r7 != 0x4" in line)
    clock = next(at for at, line in enumerate(lines) if "bpf_ktime_get_ns" in line)
    assert found < clock


def test_dropping_chatter_costs_an_ipv4_packet_seven_instructions():
    """It leaves at the first comparison of its EtherType; nothing else of the program differs for it."""
    plain, dropping = redirect_program(frags=False), redirect_program(frags=False, drop_chatter=True)
    found = 1 + next(at for at, one in enumerate(plain.instructions) if (one.opcode, one.dst) == (JUMP_IF_NOT, R7))
    left = found + 7 + dropping.instructions[found + 6].offset
    assert "if r5 == 0x8 goto" in dropping.listing().splitlines()[found + 5]  # load_map has two slots, and one line
    assert dropping.instructions[left:] == plain.instructions[found:]


@pytest.mark.parametrize("make", [egress_stamp_program, arrival_stamp_program])
@pytest.mark.parametrize(
    ("port", "offset", "message"),
    [
        (0, 0, "UDP port 0 is not between 1 and 65535"),
        (65536, 0, "UDP port 65536 is not between 1 and 65535"),
        (9, -1, "payload offset -1 is not between 0 and 16384 bytes"),
        (9, 16385, "payload offset 16385 is not between 0 and 16384 bytes"),
    ],
)
def test_stamps_have_a_port_and_a_place(make, port, offset, message):
    with pytest.raises(UsageError) as caught:
        make(port, offset)
    assert caught.value.cause == message


def test_every_name_fits_and_says_whose_it_is():
    """The kernel keeps 15 bytes of a name."""
    specs = [
        redirect_program(frags=True),
        redirect_program(frags=True, drop_chatter=True),
        pass_program(),
        drop_program(),
        egress_stamp_program(9, 0),
        arrival_stamp_program(9, 0),
    ]
    for spec in specs:
        assert spec.name.startswith("xk_")
        assert len(spec.name) <= 15


def test_bpf_imports_nothing_heavy():
    source = (
        "import sys; import xskit.bpf.redirect, xskit.bpf.stamps, xskit.bpf.probe; "
        "print([m for m in ('numpy', 'numba', 'pyroute2', 'asyncio') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", source], text=True).strip() == "[]"
