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
    ("bench txonly -s 5000", "a packet of 5000 bytes needs 2 frames of 4096", "--frags, which takes several frames"),
    ("bench txonly -s 20", "--packet-size must be between 64 and 65535, not 20", "--packet-size 64"),
    ("bench rxdrop -d soon", "--duration: 'soon' is no duration", "--duration 5s"),
    ("bench rxdrop -q all", "--queue all asks an interface, and none is given", "--queue 0,1"),
    ("bench rxdrop -q 100", "--queue must be between 0 and 63, not 100", "--queue 0"),
    ("bench rxdrop --until 5", "--until: 5 what?", "--until 1%"),
    ("bench rxdrop --least much -d 1h", "--least: 'much' is no probability", "--least 1%"),
    ("bench rxdrop --repeat 0", "--repeat must be between 1 and 1000000, not 0", "--repeat 1"),
    ("bench rxdrop -P xyz", "'xyz' is no pattern: four bytes in hexadecimal", "--pattern 0x12345678"),
    ("bench rxdrop --cpu " + "9" * 30, "--cpu must be between 0 and 8191, not 9999", "--cpu 8191"),
    ("bench rxdrop -f 100", "--frame-size must be between 2048 and 65536, not 100", "try: --frame-size 2048"),
    ("bench rxdrop -W RR", "there is no policy 'RR' for workers", "--policy FIFO"),
    ("bench forward -i lo", "forward takes two interfaces, not 1", "xskit bench forward --interface eth0,eth1"),
    ("bench forward -i lo,lo", "lo is named twice", "--interface eth0,eth1"),
    ("bench rxdrop --far lo", "--far names 1 interfaces, and --interface 0", "--interface eth0 --far eth1"),
    ("bench rxdrop --nic igb", "--nic igb is of a guest", "--kernel 7.3 --nic igb"),
    (
        "bench rxdrop --nic ne2000",
        "invalid value for '--nic': Value error, 'ne2000' is not one of",
        "xskit bench rxdrop --help",
    ),
    (
        "bench rxdrop --kernel 7.3 -i lo",
        "--interface and --far name interfaces of this machine, and a guest has its own",
        "--nic virtio-net",
    ),
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
    ("experiment run bridge --nic igb", "--nic igb is of a guest", "--kernel 7.3 --nic igb"),
    ("experiment run veth-tcp --kernel 7.3 --nic igb", "veth-tcp is done on veth pairs", "xskit experiment run"),
    ("experiment run bridge --kernel 7.3 -i eth0", "--interface and --far name interfaces of this machine", "--nic"),
    ("experiment run bridge --kernel ,", "--kernel takes versions or names", "xskit vm kernels list"),
    ("vm run --nics=3 -- true", "--nics must be even, two on each wire, not 3", "--nics 4"),
    ("vm run --cpus=0 -- true", "--cpus must be between 1 and 64, not 0", "--cpus 1"),
]


@pytest.mark.parametrize(("line", "cause", "remedy"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_what_cannot_be_meant(capsys, line, cause, remedy):
    assert main._run(line.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"xskit: {cause}")
    assert remedy in told


FILES = [
    ("/dev/null", "/dev/null is not what xskit bench --json writes", "xskit bench rxdrop"),
    ("/nowhere.json", "there is no file /nowhere.json", "ls /"),
]


@pytest.mark.parametrize(("file", "cause", "remedy"), FILES)
def test_what_cannot_be_compared(capsys, file, cause, remedy):
    assert main._run(["bench", "compare", file, file]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"xskit: {cause}")
    assert remedy in told
