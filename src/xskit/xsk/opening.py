"""From nothing to a bound AF_XDP socket: the ladder of bind flags, and patience with a queue that is still busy.

    zero copy, multi-buffer  >  zero copy  >  copy, multi-buffer  >  copy

Each rung that fails leaves a sentence. Zero copy without multi-buffer is tried only where the MTU fits one frame.
"""

from __future__ import annotations

import errno
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from xskit import libc
from xskit.abi.xdp import AF_XDP, MAX_SKB_FRAGS, SOL_XDP, BindFlag, SockaddrXdp, SocketOption, XdpOption
from xskit.errors import Setting, UsageError, XskitError
from xskit.netconf.interfaces import Interface
from xskit.netconf.netdev import device_features
from xskit.xsk.drivers import usable_bytes
from xskit.xsk.errors import Call, PortError, explain
from xskit.xsk.holders import holders

if TYPE_CHECKING:
    from xskit.xsk.mapping import RingSet
    from xskit.xsk.umem import Umem

__all__ = ["BUSY_SECONDS", "FRAMING_BYTES", "MOST_FRAMES", "BindMode", "Opened", "Plan", "check", "open_socket"]

BindMode = Literal["auto", "zero-copy", "native", "generic"]
"""auto: the best of the others that works. zero-copy: native program, no copies. native: native program, copies.
generic: the program runs in the stack, copies."""

FRAMING_BYTES = 18
"""What a packet may have on top of the MTU: 14 bytes of Ethernet header and a VLAN tag (measured on veth)."""

MOST_ENTRIES = 1 << 30
"""Of a ring: the kernel takes a C int."""

MOST_FRAMES = MAX_SKB_FRAGS + 1
"""A packet's frames in copy mode: the first goes into the linear part of an skb (xsk_build_skb). A packet of more is
thrown out as invalid, all of it."""

HIGHEST_QUEUE = (1 << 32) - 1
"""sxdp_queue_id of struct sockaddr_xdp (linux/if_xdp.h)."""

BUSY_SECONDS = 1.0
"""How long a busy queue is waited for: the kernel takes 20 to 45 ms to let go of one after close."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is wanted. Ring sizes in entries; 0: no such ring."""

    interface: Interface
    queue: int
    umem: Umem
    mode: BindMode
    rx: int
    tx: int
    fill: int
    completion: int
    multi_buffer: bool
    need_wakeup: bool
    shared_fd: int | None = None
    """The socket whose packet memory is shared; its bind flags are inherited."""


@dataclass(slots=True)
class Opened:
    """What was got."""

    socket: socket.socket
    rings: RingSet
    zero_copy: bool
    multi_buffer: bool
    why: list[str] = field(default_factory=list)
    """Why better rungs failed, a sentence each."""


def open_socket(plan: Plan) -> Opened:
    """Create, register, set up rings and bind: on the first rung that holds. The plan has been checked.

    Raises:
        SocketError, PortError, PrivilegeError: the last rung's failure, explained.
    """
    rungs, why = _rungs(plan)
    for number, flags in enumerate(rungs):
        made = _create(plan)
        rings = None
        try:
            rings = _map(made, plan)
            _bind(made, plan, flags)
            zero_copy = bool(_option(made, SocketOption.OPTIONS) & XdpOption.ZEROCOPY)
        except OSError as error:
            _give_back(made, rings)
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP) or number == len(rungs) - 1:
                raise _explained(plan, flags, error) from error
            cause = _explained(plan, flags, error).cause
            if not (why and why[-1].endswith(cause)):
                why.append(f"{_name(flags)}: {cause}")
        except BaseException:
            _give_back(made, rings)
            raise
        else:
            return Opened(made, rings, zero_copy, bool(flags & BindFlag.USE_SG), why)
    raise AssertionError("there is always a rung")


def check(plan: Plan) -> None:
    """What can be known before anything is touched.

    Raises:
        UsageError: a ring size is not a power of two, or there is neither RX nor TX.
        SocketError: the socket whose packet memory is to be shared is closed.
        PortError: there is no such queue.
    """
    if plan.shared_fd == -1:
        raise explain(Call.BIND, errno.EBADF)
    if not (plan.rx or plan.tx):
        raise UsageError("a socket needs an RX or a TX ring", remedy="rx=2048")
    sizes = {"rx": plan.rx, "tx": plan.tx, "fill": plan.fill, "completion": plan.completion}
    for name, entries in sizes.items():
        if entries & (entries - 1):
            nearest = 1 << (entries - 1).bit_length()
            raise UsageError(
                f"the {name.upper()} ring cannot have {entries} entries: the kernel takes powers of two",
                remedy=Setting(name, nearest),
            )
    known = plan.interface
    queues = max(known.rx_queues, known.tx_queues)
    if plan.queue not in range(queues):
        facts = {"queue_range": "0" if queues == 1 else f"0 to {queues - 1}", "needed_queues": plan.queue + 1}
        raise explain(Call.BIND, errno.EINVAL, "no such queue", interface=known.name, queue=plan.queue, **facts)


def _rungs(plan: Plan) -> tuple[list[BindFlag], list[str]]:
    """The bind flags to try, best first; and why better ones need not be tried."""
    if plan.shared_fd is not None:
        return [BindFlag.SHARED_UMEM], []
    base = BindFlag.USE_NEED_WAKEUP if plan.need_wakeup else BindFlag.NONE
    buffers = [BindFlag.USE_SG, BindFlag.NONE] if plan.multi_buffer else [BindFlag.NONE]
    rungs: list[BindFlag] = []
    why: list[str] = []
    if plan.mode in ("auto", "zero-copy"):
        rungs, why = _zero_copy_rungs(plan, base, buffers)
    if plan.mode != "zero-copy":
        rungs += [BindFlag.COPY | base | buffer for buffer in buffers]
    return rungs, why


def _zero_copy_rungs(plan: Plan, base: BindFlag, buffers: list[BindFlag]) -> tuple[list[BindFlag], list[str]]:
    """The kernel says what a driver can (Linux 6.3): trying registers, and pins, all of the packet memory for nothing.

    Raises:
        PortError: zero copy is insisted upon, and packets are too long for it.
    """
    name, features = plan.interface.name, device_features(plan.interface.name)
    if features is not None and not features.zero_copy:
        if plan.mode == "zero-copy":  # what bind says is the last word
            return [BindFlag.ZEROCOPY | base], []
        return [], [f"zero copy: {_explained(plan, BindFlag.ZEROCOPY, OSError(errno.EOPNOTSUPP, '')).cause}"]
    why = []
    if features is not None and features.zero_copy_segments <= 1 and BindFlag.USE_SG in buffers:
        buffers = [BindFlag.NONE]
        why.append(f"zero copy with multi-buffer: the driver of {name} takes packets of one frame only")
    problem = _too_long(plan, BindFlag.USE_SG in buffers) if plan.rx else None
    if problem is not None and plan.mode == "zero-copy":
        raise problem
    if problem is not None:
        return [], [*why, f"zero copy: {problem.cause}"]
    fits = plan.interface.mtu + FRAMING_BYTES <= plan.umem.capacity or not plan.multi_buffer
    return [BindFlag.ZEROCOPY | base | buffer for buffer in buffers if buffer or fits], why


def _too_long(plan: Plan, several_frames: bool) -> PortError | None:
    """Why packets that the MTU allows could not be received in zero copy; None when they could."""
    known, frame_size, capacity = plan.interface, plan.umem.frame_size, plan.umem.capacity
    longest, usable = known.mtu + FRAMING_BYTES, usable_bytes(known.driver, capacity)
    if usable < min(longest, capacity):
        return PortError(
            f"{known.driver}, the driver of {known.name}, fills only {usable} bytes of a frame of {frame_size} and "
            f"would cut packets of up to {longest} bytes short",
            errno.EINVAL,
            remedy=Setting("frame_size", 4096)
            if frame_size < 4096
            else f"ip link set {known.name} mtu {usable - FRAMING_BYTES}",
        )
    if longest > capacity and plan.multi_buffer and not several_frames:
        return PortError(
            f"packets of up to {longest} bytes do not fit in a frame of {frame_size}, and the driver of {known.name} "
            "takes no others",
            errno.EINVAL,
            remedy=f"ip link set {known.name} mtu {usable - FRAMING_BYTES}",
        )
    return None


def _name(flags: BindFlag) -> str:
    mode = "zero copy" if flags & BindFlag.ZEROCOPY else "copy"
    return f"{mode} with multi-buffer" if flags & BindFlag.USE_SG else mode


def _create(plan: Plan) -> socket.socket:
    """A socket with its memory and its rings, not bound."""
    try:
        made = socket.socket(AF_XDP, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except OSError as error:
        raise explain(Call.SOCKET, error) from error
    try:
        if plan.shared_fd is None:
            plan.umem.register(made)
        for option, entries in (
            (SocketOption.UMEM_FILL_RING, plan.fill),
            (SocketOption.UMEM_COMPLETION_RING, plan.completion),
            (SocketOption.RX_RING, plan.rx),
            (SocketOption.TX_RING, plan.tx),
        ):
            if entries:
                _set_ring(made, option, entries)
    except BaseException:
        made.close()
        raise
    return made


def _map(made: socket.socket, plan: Plan) -> RingSet:
    """The rings, mapped before bind: of a bound socket older kernels map none (xsk_mmap: EBUSY; Linux 6.1)."""
    from xskit.xsk.mapping import RingSet

    return RingSet(made, rx=plan.rx, tx=plan.tx, fill=plan.fill, completion=plan.completion)


def _give_back(made: socket.socket, rings: RingSet | None) -> None:
    """Both: as long as a ring is mapped, the queue stays busy."""
    if rings is not None:
        rings.close()
    made.close()


def _set_ring(made: socket.socket, option: SocketOption, entries: int) -> None:
    try:
        made.setsockopt(SOL_XDP, option, entries)
    except OSError as error:
        ring = option.name.replace("UMEM_", "").replace("_RING", "")
        nearest = 1 << (entries - 1).bit_length()
        raise explain(
            Call.RING, error, ring=ring, entries=entries, nearest=nearest, ring_argument=ring.lower()
        ) from error


def _bind(made: socket.socket, plan: Plan, flags: BindFlag) -> None:
    """bind(2); EBUSY is tried again for a second. Raises OSError."""
    address = SockaddrXdp(plan.interface.index, plan.queue, flags, plan.shared_fd or 0).pack()
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return libc.bind(made.fileno(), address)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def _option(made: socket.socket, option: SocketOption) -> int:
    return made.getsockopt(SOL_XDP, option)


def _explained(plan: Plan, flags: BindFlag, error: OSError) -> XskitError:
    condition = ""
    if flags & BindFlag.SHARED_UMEM:
        condition = "shared"
    elif flags & BindFlag.USE_SG:
        condition = "multi-buffer"
    elif flags & BindFlag.ZEROCOPY:
        condition = "zero copy"
    others = ""
    if error.errno == errno.EBUSY:
        with suppress(OSError):
            found = holders()
            others = f"; AF_XDP sockets are open in {', '.join(found)}" if found else ""
    return explain(
        Call.BIND,
        error,
        condition,
        interface=plan.interface.name,
        queue=plan.queue,
        frames=plan.umem.frames,
        frame_size=plan.umem.frame_size,
        holders=others,
    )
