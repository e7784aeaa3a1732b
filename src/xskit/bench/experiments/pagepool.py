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
from types import TracebackType
from typing import Self

from xskit.abi.bpf import AttachType, Helper, MapType, ProgramType, UpdateFlag
from xskit.bpf.asm import R0, R1, R2, R3, R4, R6, R10, U64, Assembler
from xskit.bpf.errors import BpfError
from xskit.bpf.map import Map, MapSpec
from xskit.bpf.program import Program, ProgramSpec
from xskit.bpf.tracepoint import attach_tracepoint
from xskit.errors import PrivilegeError
from xskit.netconf.netdev import page_pools

__all__ = ["PagePoolWatch"]

_POOLS = 1024
_EVERY_S = 0.005


class PagePoolWatch:
    """Watches the pools that are made while it is open; other pools of this machine are left out.

    Attributes:
        source: what the numbers come from, for a table.
        peak_pages: the most that these pools held at one moment, all together.
    """

    def __init__(self) -> None:
        self.peak_pages = 0
        self.source = "none"
        self._stack = ExitStack()
        self._stop = threading.Event()
        self._maps: dict[str, Map] = {}

    def __enter__(self) -> Self:
        try:
            self._watch_tracepoints()
        except (BpfError, PrivilegeError) as error:
            self._stack.close()
            self.source = f"not to be had: {error.cause}"
            return self
        thread = threading.Thread(target=self._sample, name="xskit-page-pools", daemon=True)
        self._stack.callback(thread.join)
        self._stack.callback(self._stop.set)
        thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            self.peak_pages = max(self.peak_pages, self.pages())

    def pages(self) -> int:
        """What the pools hold now."""
        total = 0
        for key in self._maps["first"].known_keys():
            if self._number("first", key) == 1:  # its first page was taken while we watched
                released = self._number("release", key)  # read first: what is taken meanwhile makes no negative number
                taken = self._number("hold", key)
                # fewer taken than released: another pool is at this place now, which has not released any yet
                total += taken - released if taken >= released else taken
        return total

    def _number(self, name: str, key: bytes) -> int:
        raw = self._maps[name].get(key)
        return 0 if raw is None else int.from_bytes(raw, sys.byteorder)


def listed() -> bool:
    """Whether the kernel lists the page pools of the calling thread's namespace itself."""
    return bool(page_pools())


def _program(name: str) -> ProgramSpec:
    """Notes the count of the third argument by the pool, the first one."""
    a = Assembler()
    a.mov(R6, R1)
    a.load(R2, R6, 0, U64)
    a.store(R10, -8, R2, U64)
    a.load(R2, R6, 16, U64)
    a.store(R10, -16, R2, U64)
    updates = [("first", UpdateFlag.NOEXIST)] if name == "hold" else []
    for target, flag in [*updates, (name, UpdateFlag.ANY)]:
        a.load_map(R1, target)
        a.mov(R2, R10)
        a.alu(R2, "+=", -8)
        a.mov(R3, R10)
        a.alu(R3, "+=", -16)
        a.mov(R4, int(flag))
        a.call(Helper.MAP_UPDATE_ELEM)
    a.mov(R0, 0)
    a.exit()
    return ProgramSpec(f"xk_pool_{name}", a.assemble(), ProgramType.RAW_TRACEPOINT, AttachType.NONE)
