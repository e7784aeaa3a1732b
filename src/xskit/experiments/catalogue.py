"""All experiments: where they were published, what was published, and what of ours can be held against it."""

from __future__ import annotations

import difflib

from xskit.bench.document import Table, Unit
from xskit.errors import UsageError
from xskit.experiments.experiment import Experiment

__all__ = ["CATALOGUE", "FRAME_SIZE_COLUMNS", "find"]

FRAME_SIZE_COLUMNS: dict[str, Unit] = {
    "mode": "text",
    "4096, multi-buffer": "pps",
    "2048, multi-buffer": "pps",
    "one chunk of 8192": "pps",
    "2048 against 4096": "percent",
}
"""The published ones, for ours too."""

CATALOGUE = (
    Experiment(
        name="frame-sizes",
        title="long packets in frames of 4096 and 2048 bytes, against one chunk of 8192",
        source=(
            'bpf-next and netdev, "xsk: Support UMEM chunk_size > PAGE_SIZE", v1 to v3, March and April 2023, by Kal '
            "Cutter Conley; the table by Maciej Fijalkowski"
        ),
        question=(
            "Are chunks larger than a page worth having, when multi-buffer takes long packets as well? And, left open "
            "in the thread: what does an abstraction cost that hides the buffers from the application?"
        ),
        published=(
            Table.of(
                "Published: packets of 8192 - 256 bytes, ice, zero copy, pps",
                FRAME_SIZE_COLUMNS,
                [
                    ["rxdrop", 885_705, 877_989, 893_530, (877_989 / 885_705 - 1) * 100],
                    ["l2fwd", 806_307, 773_331, 841_860, (773_331 / 806_307 - 1) * 100],
                ],
            ),
        ),
        conditions="An Intel E810 with the ice driver in zero copy; the third column with the proposed patches.",
        comparable="the ratio of 2048 to 4096 byte frames, and that no released kernel has the third column.",
        different=(
            "packets a second: veth copies every packet, once into the stack's buffers and once into ours, where ice "
            "writes into the packet memory itself. Our sender uses frames of the same size, so it pays for more of "
            "them as well, in descriptors and pieces of each skb: more than a receiver alone would."
        ),
        module="frame_sizes",
        in_guests="counts",
        kernels=("6.12", "7.3"),
    ),
    Experiment(
        name="bridge",
        title="two ports over one packet memory without a copy, and memories of many GiB",
        source=(
            'xdp-newbies, "zero-copy between interfaces", 2020-01-13 to 2020-02-10, Ryan Goodfellow, Magnus Karlsson, '
            "Bjorn Topel, Maxim Mikityanskiy and others"
        ),
        question=(
            "Can two interfaces be bridged through one UMEM without a copy, in every mode, with as much memory as an "
            "emulator of long links needs?"
        ),
        published=(
            Table.of(
                "Published: bridge at MTU 1500",
                {"ports": "text", "mode": "text", "pps": "pps", "Gbit/s": "bit/s"},
                [
                    ["mlx5", "zero copy", 2_400_000, 29e9],
                    ["i40e (X710)", "zero copy", 800_000, 9.7e9],
                    ["i40e (X722)", "skb copy", 700_000, 8e9],
                    ["virtio, in QEMU", "skb copy", 200_000, 2.4e9],
                ],
                "UMEM of 2048 x 524288 bytes: works. Ten times that: fails (before Linux 5.6).",
            ),
        ),
        conditions="Xeon D-2146NT, batch 256, one queue each, traffic by iperf3.",
        comparable="that it works in every mode, how the modes compare on one machine, and the memory sizes.",
        different="absolute rates: hardware of another class, and veth has no wire whose rate could be the limit.",
        module="bridge",
        kernels=("7.3",),
        guest_nics=4,
        guest_interfaces=("eth1", "eth2"),
        guest_far=("eth0", "eth3"),
    ),
    Experiment(
        name="veth-tcp",
        title="TCP over veth with an XDP_PASS program, and what half-page buffers would change",
        source=(
            'bpf-next, RFC "veth: reduce page_pool memory footprint using half page per-buffer", 2023-05-12, Lorenzo '
            "Bianconi; answers by Alexander Lobakin and others"
        ),
        question="Can veth's native XDP path take half pages for its buffers, and what does that do to TCP?",
        published=(
            Table.of(
                "Published: iperf over veth with XDP_PASS, Gbit/s",
                {"MTU": "text", "full page": "bit/s", "half page": "bit/s", "gain": "percent"},
                [["1500", 7.07e9, 8.57e9, (8.57 / 7.07 - 1) * 100], ["8000", 14.7e9, 14.5e9, (14.5 / 14.7 - 1) * 100]],
                "Largest MTU of the half-page layout: 36350.",
            ),
        ),
        conditions="Kernel of May 2023 with the patch; machine not named.",
        comparable=(
            "the column for full pages, as a share of TCP without a program, and the calculated memory of a packet. "
            "The patch was not merged as it was; later kernels cut pages into pieces of any size (skb_pp_cow_data)."
        ),
        different="absolute rates, and the column for half pages: no released kernel has that very layout.",
        module="veth_tcp",
        kernels=("6.1", "6.12", "7.3"),
    ),
    Experiment(
        name="tx-sizes",
        title="sending in skb mode: packets copied, or sent from their own page",
        source=(
            'bpf-next, "xsk: build skb by page", 2021, Xuan Zhuo (v1 to v3) and Alexander Lobakin (v4 to v8); merged '
            "for Linux 5.13 as 9c8f21e6f885"
        ),
        question="What does it bring to hang the pages of the UMEM on the skb instead of copying the packet into it?",
        published=(
            Table.of(
                "Published: xdpsock -t -S on virtio-net, pps",
                {"size": "text", "copy": "pps", "page": "pps", "gain": "percent"},
                [
                    [str(size), copy, page, (page / copy - 1) * 100]
                    for size, copy, page in (
                        (64, 1_916_747, 1_974_058),
                        (512, 1_775_988, 1_953_655),
                        (1024, 1_600_203, 1_945_463),
                        (1500, 1_440_054, 1_904_478),
                    )
                ],
            ),
        ),
        conditions="A virtual machine of Aliyun, virtio-net.",
        comparable="copy against page on virtio-net, in guests with kernels before and after; bytes copied are exact.",
        different=(
            "rates: of emulated guests none is a result; on veth there is only the copy, because the device needs a "
            "linear part (it does not say IFF_TX_SKB_NO_LINEAR)."
        ),
        module="tx_sizes",
        in_guests="counts",
        kernels=("5.10", "6.1", "7.3"),
        guest_nics=2,
        guest_interfaces=("eth0",),
        guest_offloads=True,
    ),
    Experiment(
        name="netem",
        title="the same link asked of sch_netem and of xskit",
        source=(
            "tc-netem(8), its LIMITATIONS and the defaults in iproute2 (tc/q_netem.c: limit 1000); packets overtake "
            "under jitter and super-packets are lost as one unit (net/sched/sch_netem.c)"
        ),
        question="What does a packet get of what was asked for: owd, loss, rate, order, room?",
        published=(
            Table.of(
                "Known: what sch_netem does",
                {"asked": "text", "what happens": "text"},
                [
                    ["no limit", "1000 packets; more than that are dropped without a word"],
                    ["delay 30ms 15ms", "packets overtake each other"],
                    ["loss 1% with GSO", "one draw for up to 64 KiB"],
                    ["delay 100ms 10ms", "uniform, not normal, unless a distribution is named"],
                ],
            ),
        ),
        conditions="Any kernel with CONFIG_NET_SCH_NETEM; the distribution files come with iproute2.",
        comparable="everything: both ways run in the same guest, one after the other, with the same senders.",
        different="times of an emulated guest, whose clock stumbles: both ways' deviations contain that of the guest.",
        module="netem",
        kernels=("6.12",),
    ),
)


def find(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        UsageError: there is none.
    """
    for experiment in CATALOGUE:
        if experiment.name == name:
            return experiment
    names = [experiment.name for experiment in CATALOGUE]
    near = difflib.get_close_matches(name, names, 1)
    raise UsageError(
        f"there is no experiment {name!r}: {', '.join(names)}",
        remedy=f"xskit experiment run {near[0] if near else names[0]}",
    )
