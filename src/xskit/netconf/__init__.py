"""The machine's network set-up: every change has check, apply and restore, and is kept in a journal.

journal                 what this process changed, on disk; put back at exit, or by the next start after SIGKILL
changes/                the kinds of change: namespaces, veth pairs, addresses, MTU, offloads, ...
namespaces  interfaces  facts, and the calling thread's way into a network namespace
processes               commands inside a network namespace
privileges              which capabilities are missing
subnets                 which IPv4 networks are in use
netlink  ethtool        how the kernel is asked
"""
