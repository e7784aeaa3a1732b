"""Flags of clone(2), mount(2) and umount2(2), from linux/sched.h and linux/mount.h."""

from __future__ import annotations

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20

MNT_DETACH = 2
