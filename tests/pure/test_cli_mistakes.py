"""Options that cannot be meant are one sentence and exit code 2, before anything is touched."""

from __future__ import annotations

import pytest

from xskit.cli import main

MISTAKES = [
    ("bench txonly --frame-size=0", "--frame-size must be between 2048 and 65536, not 0", "--frame-size 2048"),
    ("bench rxdrop --drive-cpu=-1", "--drive-cpu must be between 0 and 8191, not -1", "--drive-cpu 0"),
    ("bench rxdrop --cpu=-1", "--cpu must be between 0 and 8191, not -1", "--cpu 0"),
    ("bench rxdrop --far=,", "--far names no interface", "ip -brief link"),
    ("bench rxdrop --far=", "--far names no interface", "ip -brief link"),
    ("bench rxdrop --interface=", "--interface names no interface", "ip -brief link"),
    ("bench rxdrop --mode=", "there is no mode ''", "--mode auto, native, skb or zero-copy"),
    ("bench rxdrop --irq-string=", "an empty --irq-string matches every interrupt", "cat /proc/interrupts"),
    ("bench rxdrop --tx-vlan-id=0", "--tx-vlan-id must be between 1 and 4095, not 0", "--tx-vlan-id 1"),
    ("bench rxdrop --tx-dmac=", "--tx-dmac must be a MAC address, not ''", "--tx-dmac 3c:fd:fe:9e:7f:71"),
    ("bench rxdrop --tx-cycle=\N{SUPERSCRIPT TWO}", "--tx-cycle: ", "--tx-cycle 100us"),
    ("bench rxdrop --duration=\N{SUPERSCRIPT TWO}", "--duration: ", "--duration 5s"),
    ("run --cpus 0,0,0,0,0 true", "cpus: 1 worker needs 1 CPU, got 5", ""),
    ("run --cpus=0,0 --workers=2 true", "cpus: expected a different CPU for each worker, got 0, 0", ""),
    ("run --cpus=-1 true", "cpus: expected a different CPU for each worker, got -1", ""),
    ("plan --ports=3", "ports must be even, two for each link, not 3", "--ports 4"),
    ("plan --queues=0", "queues must be between 1 and 1024, not 0", "--queues 1"),
    ("plan --seed=18446744073709551616", "--seed: expected less than 18446744073709551616, got 1844", ""),
    ("experiment run netem --interface=xknope", "netem makes its own veth pairs and takes no --interface", "netem"),
    (
        "experiment run bridge --interface=xknope",
        "bridge needs 2 interfaces in --interface, not 1",
        "--interface eth1,eth2",
    ),
    ("vm run --nics=3 -- true", "--nics must be even, two on each wire, not 3", "--nics 4"),
    ("vm run --cpus=0 -- true", "--cpus must be between 1 and 64, not 0", "--cpus 1"),
]


@pytest.mark.parametrize(("line", "cause", "remedy"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_what_cannot_be_meant(capsys, line, cause, remedy):
    assert main._run(line.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"xskit: {cause}")
    assert remedy in told
