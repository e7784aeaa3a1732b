"""Published experiments, each to be repeated by one command, with the published table beside ours.

experiment   what an experiment is, and what comes out of one
catalogue    all of them;  report   documents of it, and what was measured last
rooms        hosts joined by a plain veth pair;  pagepool   how many pages the kernel's pools hold
frame_sizes, bridge, veth_tcp, tx_sizes, netem   one each
"""
