"""How many pages the kernel's page pools hold while something runs.

Where a driver has tied its pools to a device, the kernel says so itself (netdev family, page-pool-get, Linux 6.8).
veth has not, so its pools are counted at the kernel's tracepoints: page_pool_state_hold says with each page how many
a pool has taken from the page allocator in all, page_pool_state_release how many it gave back (net/core/page_pool.c).
The difference is what page-pool-get would call inflight.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack

from xskit.abi.bpf import AttachType, Helper, MapType, ProgramType, UpdateFlag
from xskit.bpf.asm import R1, R2, R3, R4, R6, R7, R10, U64, Assembler
from xskit.bpf.errors import BpfError
from xskit.bpf.map import Map, MapSpec
from xskit.bpf.program import Program, ProgramSpec
from xskit.bpf.tracepoint import attach_tracepoint
from xskit.closing import Closing
from xskit.errors import PrivilegeError

__all__ = ["PagePoolWatch"]

_POOLS = 1024
_EVERY_S = 0.005


class PagePoolWatch(Closing):
    """Watches the pools that are made until `close`; other pools of this machine are left out.

    Attributes:
        source: what the numbers come from, for a table.
        peak_pages: the most that these pools held at one moment, all together; at least so many.
    """

    def __init__(self) -> None:
        self.peak_pages = 0
        self.source = "none"
        self._stack = ExitStack()
        self._stop = threading.Event()
        self._maps: dict[str, Map] = {}
        self._peaks: dict[bytes, int] = {}
        try:
            self._watch_tracepoints()
        except (BpfError, PrivilegeError) as error:
            self._stack.close()
            self.source = f"not to be had: {error.cause}"
            return
        thread = threading.Thread(target=self._sample, name="xskit-page-pools", daemon=True)
        self._stack.callback(thread.join)
        self._stack.callback(self._stop.set)
        thread.start()

    def close(self) -> None:
        """Stop watching; twice is fine."""
        self._stack.close()

    def _watch_tracepoints(self) -> None:
        self.source = "tracepoints page_pool_state_hold and _release"
        for name in ("first", "hold", "release"):
            spec = MapSpec(f"xk_{name}", MapType.HASH, 8, 8, _POOLS)
            self._maps[name] = self._stack.enter_context(Map.create(spec))
        for name in ("release", "hold"):
            program = self._stack.enter_context(Program.load(_program(name), self._maps))
            self._stack.enter_context(attach_tracepoint(program, f"page_pool_state_{name}"))

    def _sample(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._look()

    def _look(self) -> dict[bytes, int]:
        """What each pool holds now, by its place in the kernel."""
        found = {}
        for key in self._maps["first"].known_keys():
            if self._number("first", key) == 1:  # its first page was taken while we watched
                taken = self._number("hold", key)
                # read later: what comes back meanwhile makes the number too small, never too large
                found[key] = max(taken - self._number("release", key), 0)
                self._peaks[key] = max(self._peaks.get(key, 0), found[key])
        self.peak_pages = max(self.peak_pages, sum(found.values()))
        return found

    def pages(self) -> int:
        """What the pools hold now."""
        return sum(self._look().values())

    def peaks(self) -> list[int]:
        """The most pages that each pool held."""
        self._look()
        return list(self._peaks.values())

    def _number(self, name: str, key: bytes) -> int:
        raw = self._maps[name].get(key)
        return 0 if raw is None else int.from_bytes(raw, sys.byteorder)


def _program(name: str) -> ProgramSpec:
    """Notes the count of the third argument by the pool, the first one.

    A pool whose first page this is has nothing to do with one that was at the same place before.
    """
    a = Assembler().mov(R6, R1)
    a.load(R2, R6, 0, U64).store(R10, -8, R2, U64)
    a.load(R7, R6, 16, U64).store(R10, -16, R7, U64)
    if name == "hold":
        _note(a, "first", UpdateFlag.NOEXIST)
        a.jump_if(R7, "!=", 1, "not the first")
        _note(a, "first", UpdateFlag.ANY)
        a.load_map(R1, "release").mov(R2, R10).alu(R2, "+=", -8).call(Helper.MAP_DELETE_ELEM)
        a.label("not the first")
    _note(a, name, UpdateFlag.ANY)
    return ProgramSpec(f"xk_pool_{name}", a.returns(0).assemble(), ProgramType.RAW_TRACEPOINT, AttachType.NONE)


def _note(a: Assembler, target: str, flag: UpdateFlag) -> None:
    a.load_map(R1, target).mov(R2, R10).alu(R2, "+=", -8)
    a.mov(R3, R10).alu(R3, "+=", -16).mov(R4, int(flag)).call(Helper.MAP_UPDATE_ELEM)
