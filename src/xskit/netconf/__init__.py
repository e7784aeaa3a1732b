"""The machine's network set-up: every change has check, apply and restore, and is kept in a journal.

journal                 what this process changed, on disk; put back at exit, or by the next start after SIGKILL
changes/                the kinds of change: namespaces, veth pairs, addresses, MTU, offloads, ...
namespaces  interfaces  facts, and the calling thread's way into a network namespace
netdev  peers           what a device can do with XDP; where the far end of a veth pair is
processes  signals      commands inside a network namespace; signals that end this one
privileges  names       which capabilities are missing; what an interface may be called
subnets                 which IP networks are in use, and whether there is IPv6
ethtool  hardware       the ethtool ioctl: features, queues, driver; channels, rings, rules
"""
