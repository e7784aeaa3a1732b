"""System calls on AF_XDP sockets from compiled code, and what sendto says in copy mode.

    0         sent, or an invalid descriptor was met and thrown out: look whether TX is empty, call again if not
    EAGAIN    the budget is used up, or COMPLETION is full: reap, call again
    ENOBUFS   no memory for an skb: reap, call again
    EBUSY     exactly one packet, the last one consumed, was refused; its frames are completed all the same
    ENETDOWN  the interface is down: what lies in TX stays there until it is up
    ENXIO     the interface is gone; ENODEV likewise

(net/xdp/xsk.c, __xsk_generic_xmit; measured on Linux 6.18.) A call sends 32 packets unless XDP_MAX_TX_SKB_BUDGET says
more. In zero copy sendto only wakes the driver, and only where TX says need_wakeup.

Before Linux 6.17 (`told_late`) what was taken in a call that ends with EAGAIN or EBUSY stays in TX for us to see: the
call that finds nothing more to take tells it. A packet was refused there, but nobody knows which: the next one that is
completed is counted as it.
"""

from __future__ import annotations

from xskit.jit import external, i32, i64, inlined, last_errno

EAGAIN = 11
EBUSY = 16
ENXIO = 6
ENETDOWN = 100
ENODEV = 19
ENOBUFS = 105
EOPNOTSUPP = 95

_sendto = external("sendto", "int64", "int32", "int64", "int64", "int32", "int64", "uint32")
_sendmsg = external("sendmsg", "int64", "int32", "int64", "int32")
_epoll_wait = external("epoll_wait", "int32", "int32", "int64", "int32", "int32")
_recvfrom = external("recvfrom", "int64", "int32", "int64", "int64", "int32", "int64", "int64")


@inlined
def kick_transmit(fd: int) -> int:
    """Ask the kernel to send what lies in TX: 0, or the errno."""
    if _sendto(i32(fd), 0, 0, i32(0x40), 0, 0) < 0:
        return i64(last_errno())
    return 0


@inlined
def send_message(fd: int, message: int) -> int:
    """Send what a struct msghdr names: 0, or the errno."""
    if _sendmsg(i32(fd), message, i32(0x40)) < 0:
        return i64(last_errno())
    return 0


@inlined
def kick_receive(fd: int) -> int:
    """Ask the kernel to take frames from FILL and to look for packets: 0, or the errno, EAGAIN where none came."""
    if _recvfrom(i32(fd), 0, 0, i32(0x40), 0, 0) < 0:
        return i64(last_errno())
    return 0


@inlined
def wait_for_event(fd: int, event: int, wait_ms: int) -> None:
    """Sleep until an epoll descriptor has an event, which goes to an address, or a signal comes; at most so long."""
    _epoll_wait(i32(fd), event, i32(1), i32(wait_ms))
