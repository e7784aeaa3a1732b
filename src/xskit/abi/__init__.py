"""The kernel's constants and struct layouts, each with its header and the kernel version that brought it.

One file a header: `xdp` (linux/if_xdp.h), `bpf` (linux/bpf.h), `netlink` (linux/netlink.h, rtnetlink.h, if_link.h),
`netdev` (linux/netdev.h), `ethtool` (linux/ethtool.h, sockios.h), `packet` (linux/if_packet.h), `mount` (linux/sched.h,
mount.h).  Nothing here does anything; nothing here imports more than the standard library.
"""
