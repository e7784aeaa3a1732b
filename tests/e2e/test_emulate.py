"""`xskit emulate`: links between interfaces that are there already, from the file to the report."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import PATIENCE_SECONDS, UDP_CLIENT, UDP_SERVER, XSKIT, Bridge, code_unless_late, ip, wait_until

pytestmark = [pytest.mark.root, pytest.mark.e2e]

WAN = """
[engine]
seed = 3

[link.wan]
ports = ["xka", "xkb"]
owd = "2ms"
reverse = { owd = "3ms" }
"""


@pytest.fixture
def wan(tmp_path: Path) -> str:
    file = tmp_path / "wan.toml"
    file.write_text(WAN)
    return str(file)


def start(bridge: Bridge, file: str) -> subprocess.Popen[str]:
    """Start it, and wait until packets cross."""
    process = bridge.outer.start(XSKIT, "emulate", file, "--json")
    bridge.serve()
    assert bridge.exchange(1) == 1
    return process


def finish(bridge: Bridge, process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> Any:
    """End it, and its report. On a busy machine a run may be invalid: the exit code must say so, no more."""
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert err == ""
    report = json.loads(out)
    assert process.returncode == (0 if report["valid"] else 1)
    bridge.outer.nothing_left(process.pid)
    return report


def promiscuous(bridge: Bridge, name: str) -> bool:
    (facts,) = json.loads(ip("-netns", bridge.outer.name, "-details", "-json", "link", "show", name))
    return bool(facts["promiscuity"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_it_runs_until_a_signal_and_reports(bridge: Bridge, wan, number):
    process = start(bridge, wan)
    assert bridge.exchange(20) == 20
    report = finish(bridge, process, number)
    (link,) = report["links"]
    assert link["name"] == "wan"
    for direction, owd_ns in zip(link["directions"], (2_000_000, 3_000_000), strict=True):
        assert direction["packets"]["sent"] >= 21
        assert direction["asked"]["owd_ns"] == owd_ns
        assert direction["achieved"]["owd_ns"]["p50"] >= owd_ns
    assert [port["name"] for port in report["ports"]] == ["xka", "xkb"]


def test_it_ends_after_its_duration(bridge: Bridge, wan, tmp_path):
    file = tmp_path / "report.json"
    result = bridge.outer.xskit("emulate", wan, "--duration", "100ms", "--report", str(file))
    report = json.loads(file.read_text())
    assert report["duration_ns"] >= 100_000_000
    assert (result.code, result.out, result.err) == (code_unless_late(report), "", "")


def test_it_prints_a_table_for_people(bridge: Bridge, wan):
    result = bridge.outer.xskit("emulate", wan, "--duration", "100ms")
    assert result.out.startswith("asked against achieved")
    late = result.code == 1 and "(allowed: " in " ".join(result.out.split())  # as a busy machine may be
    assert result.out.splitlines()[-1] == "valid" or late


def test_ports_are_promiscuous_while_it_runs(bridge: Bridge, wan):
    process = start(bridge, wan)
    assert promiscuous(bridge, "xka")
    assert promiscuous(bridge, "xkb")
    finish(bridge, process)
    assert not promiscuous(bridge, "xka")
    assert not promiscuous(bridge, "xkb")


def test_a_port_in_another_namespace(bridge: Bridge, tmp_path):
    """xkb moves to host a's namespace: the link then joins the two namespaces."""
    ip("-netns", bridge.outer.name, "link", "set", "xkb", "netns", bridge.host_a)
    ip("-netns", bridge.host_a, "link", "set", "xkb", "up")
    file = tmp_path / "two.toml"
    file.write_text(f'[link.two]\nports = ["xka", "{bridge.host_a}/xkb"]\n')
    process = start(bridge, str(file))
    report = finish(bridge, process)
    assert [port["name"] for port in report["ports"]] == ["xka", f"{bridge.host_a}/xkb"]


def test_sigkill_leaves_no_program_and_no_promiscuous_port(bridge: Bridge, wan):
    process = start(bridge, wan)
    process.kill()
    process.wait()
    wait_until(lambda: not promiscuous(bridge, "xka"), "the kernel closed what the process had open")
    assert "xdp" not in ip("-netns", bridge.outer.name, "link", "show", "xka")
    bridge.outer.run(XSKIT, "restore")
    bridge.outer.nothing_left(process.pid)


def test_a_port_that_is_deleted_under_load_ends_the_run(bridge: Bridge, wan):
    process = start(bridge, wan)
    load = bridge.start_exchange(1_000_000)
    ip("-netns", bridge.outer.name, "link", "delete", "xkb")
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    load.kill()
    assert process.returncode == 1
    assert err == "xskit: port xkb was deleted while the link was running\n"
    assert json.loads(out)["invalid_because"][0] == "port xkb was deleted while the link was running"
    bridge.outer.nothing_left(process.pid)


def test_a_port_that_is_renamed_goes_on(bridge: Bridge, wan):
    process = start(bridge, wan)
    ip("-netns", bridge.outer.name, "link", "set", "xkb", "name", "xkc")
    assert process.stderr is not None
    assert process.stderr.readline() == "xskit: port xkb was renamed to xkc while the link was running\n"
    assert bridge.exchange(20) == 20
    report = finish(bridge, process)
    warnings = [sentence for sentence in report["warnings"] if "late" not in sentence]
    assert warnings == ["port xkb was renamed to xkc while the link was running"]


def test_another_mtu_of_a_port_is_told_and_what_it_means(bridge: Bridge, wan):
    process = start(bridge, wan)
    wanted = [
        "port xkb: its MTU changed to 3000 while the link was running, but the link was planned for 1500: packets of "
        "more than 1518 bytes to it are still dropped (egress_mtu)",
        "port xkb: its MTU changed to 1400 while the link was running, but the link was planned for 1500: longer "
        "packets are still sent to it, and may be refused",
        "port xkb: its MTU is 1500 again",
    ]
    assert process.stderr is not None
    for size, sentence in zip(("3000", "1400", "1500"), wanted, strict=True):
        ip("-netns", bridge.outer.name, "link", "set", "xkb", "mtu", size)
        assert process.stderr.readline() == f"xskit: {sentence}\n"
    assert bridge.exchange(5) == 5
    assert [sentence for sentence in finish(bridge, process)["warnings"] if "late" not in sentence] == wanted


def test_longer_packets_than_at_the_start_are_dropped_as_is_told(bridge: Bridge, wan):
    process = start(bridge, wan)
    for interface in ("xka", "xkb"):
        ip("-netns", bridge.outer.name, "link", "set", interface, "mtu", "3000")
    for host in (bridge.host_a, bridge.host_b):
        ip("-netns", host, "link", "set", "xk0", "mtu", "3000")
    assert process.stderr is not None
    assert {process.stderr.readline()[:15] for _ in range(2)} == {"xskit: port xka", "xskit: port xkb"}
    sender = "import socket, sys; socket.socket(socket.AF_INET, 2).sendto(bytes(2000), (sys.argv[1], 7001))"
    bridge.outer.start_python(sender, bridge.address_b, namespace=bridge.host_a).wait()
    assert bridge.exchange(5) == 5
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    forward, _ = json.loads(out)["links"][0]["directions"]
    assert forward["packets"]["dropped"] == {"egress_mtu": 1}


@pytest.mark.parametrize("address", ["fd73::2", "ff02::1%xk0"])
def test_ipv6_crosses_with_neighbour_discovery_and_multicast(bridge: Bridge, wan, address):
    for number, host in ((1, bridge.host_a), (2, bridge.host_b)):
        ip("-netns", host, "address", "add", f"fd73::{number}/64", "dev", "xk0", "nodad")
    process = start(bridge, wan)
    server, code = (one.replace("AF_INET,", "AF_INET6,").replace("7000", "7006") for one in (UDP_SERVER, UDP_CLIENT))
    bridge.outer.listen(server, namespace=bridge.host_b)
    client = bridge.outer.start_python(code, address, "10", namespace=bridge.host_a)
    assert client.communicate(timeout=PATIENCE_SECONDS)[0] == "10\n"
    neighbours = json.loads(ip("-netns", bridge.host_b, "-json", "-6", "neighbour"))
    assert any(one["dst"] == "fd73::1" or one["dst"].startswith("fe80:") for one in neighbours)
    forward, _ = finish(bridge, process)["links"][0]["directions"]
    assert forward["packets"]["sent"] >= 10


def test_traffic_resumes_when_a_port_comes_up_again(bridge: Bridge, wan):
    process = start(bridge, wan)
    load = bridge.start_exchange(1_000_000)
    ip("-netns", bridge.outer.name, "link", "set", "xkb", "down")
    wait_until(lambda: dropped(process, bridge), "packets met the port that is down")
    ip("-netns", bridge.outer.name, "link", "set", "xkb", "up")
    assert bridge.exchange(20) == 20
    load.kill()
    forward, _ = finish(bridge, process)["links"][0]["directions"]
    assert forward["packets"]["dropped"]["port_down"] > 0
    assert forward["packets"]["sent"] > 20


def dropped(process: subprocess.Popen[str], bridge: Bridge) -> bool:
    """Whether host a has sent packets since the port went down; the link takes them, and they are due in 2 ms."""
    (facts,) = json.loads(ip("-netns", bridge.host_a, "-statistics", "-json", "link", "show", "xk0"))
    sent = facts["stats64"]["tx"]["packets"]
    first = vars(process).setdefault("first", sent)
    return bool(sent > first + 5)


# -- ports that cannot be used -------------------------------------------------------------------------------------


def write(folder: Path, ports: str, more: str = "") -> str:
    file = folder / "wan.toml"
    file.write_text(f"[link.wan]\nports = {ports}\n{more}")
    return str(file)


def refused(bridge: Bridge, file: str, code: int = 1) -> str:
    result = bridge.outer.xskit("emulate", file)
    assert (result.code, result.out) == (code, "")
    return result.err


def test_a_second_xskit_on_the_same_port(bridge: Bridge, wan):
    process = start(bridge, wan)
    err = refused(bridge, wan)
    assert err.startswith('xskit: cannot attach program "xk_redirect" to xka (native): EBUSY: another XDP program ')
    assert f"is attached to xka, held there by process {process.pid} (xskit)" in err
    assert err.endswith(f"\ntry: kill {process.pid}\n")
    assert bridge.exchange(5) == 5
    finish(bridge, process)


def test_an_interface_that_is_not_there(bridge: Bridge, tmp_path):
    assert refused(bridge, write(tmp_path, '["xka", "xkbb"]')) == (
        "xskit: there is no interface xkbb in this network namespace; did you mean xkb?\ntry: ip -brief link\n"
    )


def test_a_report_that_never_comes_leaves_no_file(bridge: Bridge, tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("before")
    for report in (old, new):
        result = bridge.outer.xskit("emulate", write(tmp_path, '["xka", "xkbb"]'), "--report", str(report))
        assert (result.code, result.out) == (1, "")
    assert (old.read_text(), new.exists()) == ("before", False)


def test_a_namespace_that_is_not_there(bridge: Bridge, tmp_path):
    assert refused(bridge, write(tmp_path, '["xka", "xknone/xkb"]')) == (
        "xskit: there is no network namespace xknone\ntry: ip netns list\n"
    )


@pytest.mark.parametrize(
    ("engine", "cause", "remedy"),
    [
        ('mode = "zero-copy"', "the driver of xka has no zero copy on queue 0", 'mode = "native"'),
        ('memory = "64KiB"', "this packet memory cannot even fill the FILL rings: at least 8448KiB is needed",
         'memory = "8448KiB"'),
    ],
)  # fmt: skip
def test_what_mends_it_is_a_key_of_the_file(bridge: Bridge, tmp_path, engine, cause, remedy):
    code = 1 if "driver" in cause else 2
    file = write(tmp_path, '["xka", "xkb"]', f"[engine]\n{engine}\n")
    assert refused(bridge, file, code) == f"xskit: {cause}\ntry: {remedy} (in the table [engine])\n"


def test_a_port_that_is_down(bridge: Bridge, wan):
    ip("-netns", bridge.outer.name, "link", "set", "xkb", "down")
    assert refused(bridge, wan) == "xskit: xkb is down\ntry: ip link set xkb up\n"


def test_a_port_that_is_down_in_another_namespace(bridge: Bridge, tmp_path):
    ip("-netns", bridge.host_b, "link", "set", "xk0", "down")
    assert refused(bridge, write(tmp_path, f'["xka", "{bridge.host_b}/xk0"]')) == (
        f"xskit: {bridge.host_b}/xk0 is down\ntry: ip -n {bridge.host_b} link set xk0 up\n"
    )


def test_loopback(bridge: Bridge, tmp_path):
    assert refused(bridge, write(tmp_path, '["xka", "lo"]')) == (
        "xskit: lo is a loopback interface, which gives no packets to AF_XDP\n"
        "try: ip link add xk0 type veth peer name xk1\n"
    )


def test_a_port_of_a_bridge(bridge: Bridge, wan):
    ip("-netns", bridge.outer.name, "link", "add", "xkbr", "type", "bridge")
    ip("-netns", bridge.outer.name, "link", "set", "xkb", "master", "xkbr")
    assert refused(bridge, wan) == (
        "xskit: xkb is part of xkbr, and xskit would take its packets away from there\ntry: ip link set xkb nomaster\n"
    )


# -- mistakes ------------------------------------------------------------------------------------------------------

MISTAKES = [
    ('owdd = "1ms"', "[link.wan]: owdd: unknown key; did you mean owd?"),
    ('forward = { los = "1%" }', "[link.wan]: forward.los: unknown key; did you mean loss?"),
    ('rate = "10mbps"', "[link.wan]: rate: did you mean 10Mbit or 10MBps?"),
    ("[engine]\nworker = 2", "[engine]: worker: unknown key; did you mean workers?"),
    ("[links.x]", "links: unknown key; did you mean link?"),
    ("owd = 20ms", "line 3, column 9: expected newline or end of document after a statement"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_mistake_in_the_file(bridge: Bridge, tmp_path, text, sentence):
    file = write(tmp_path, '["xka", "xkb"]', text)
    assert refused(bridge, file, code=2) == f"xskit: {file}: {sentence}\n"


def test_a_mistake_with_json(bridge: Bridge, tmp_path):
    file = write(tmp_path, '["xka", "xkb"]', 'owd = "20"')
    result = bridge.outer.xskit("emulate", "--json", file)
    sentence = f"{file}: [link.wan]: owd: 20 what? write 20ms"
    assert result.err == f"xskit: {sentence}\n"
    assert json.loads(result.out) == {"error": {"cause": sentence, "remedy": None}}


def test_a_duration_without_a_unit(bridge: Bridge, wan):
    result = bridge.outer.xskit("emulate", wan, "--duration", "10")
    assert (result.code, result.err) == (2, "xskit: --duration: 10 what? write 10ms\n")


def test_no_privilege(bridge: Bridge, wan):
    result = bridge.outer.xskit_without_privileges("emulate", wan)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"xskit: xskit emulate needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF\ntry: sudo {XSKIT} emulate {wan}\n"
    )
