"""`xskit run`: whose exit code, whose input and output, what COMMAND sees, and what the report says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.rig import PATIENCE_SECONDS, UDP_CLIENT, XSKIT, Outer, ip, namespace

pytestmark = [pytest.mark.root, pytest.mark.e2e]

PEER6 = "fd78:736b:6974:1::2"
TCP_SERVER = """
import socket
listener = socket.create_server(("", 7001))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as stream:
        connection.sendall(stream.read().upper())
"""
TCP_CLIENT = """
import socket
with socket.create_connection(("peer", 7001), timeout=60) as connection:
    connection.sendall(b"through the link\\n" * 1000)
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("rb") as stream:
        data = stream.read()
assert data == b"THROUGH THE LINK\\n" * 1000, data[:100]
"""


def directions(report: dict) -> list[dict]:
    (link,) = report["links"]
    return link["directions"]


# -- exit codes ----------------------------------------------------------------------------------------------------


def test_the_exit_code_is_that_of_the_command(machine: Outer):
    result = machine.xskit("run", "--", "sh", "-c", "exit 7")
    assert result.code == 7
    assert "asked against achieved" in result.err


def test_a_command_killed_by_a_signal_gives_128_and_the_signal(machine: Outer):
    assert machine.xskit("run", "--", "sh", "-c", "kill -KILL $$").code == 128 + signal.SIGKILL


def test_the_dashes_may_be_left_out_and_options_after_the_command_are_its_own(machine: Outer):
    result = machine.xskit("run", "echo", "--owd", "nonsense")
    assert (result.code, result.out) == (0, "--owd nonsense\n")


def test_there_is_no_such_command(machine: Outer):
    result = machine.xskit("run", "--", "xk-no-such-command")
    assert result.code == 127
    assert result.err == "xskit: there is no command xk-no-such-command\ntry: command -v xk-no-such-command\n"


def test_a_file_that_cannot_be_executed(machine: Outer, tmp_path):
    file = tmp_path / "script"
    file.write_text("#!/bin/sh\n")
    result = machine.xskit("run", "--", str(file))
    assert result.code == 126
    assert result.err == f"xskit: {file} cannot be executed: Permission denied\ntry: chmod +x {file}\n"


def test_a_file_that_the_kernel_does_not_execute(machine: Outer, tmp_path):
    file = tmp_path / "script"
    file.write_text("exit 0\n")
    file.chmod(0o755)
    result = machine.xskit("run", "--", str(file))
    assert result.code == 126
    assert result.err == f"xskit: {file} cannot be executed: Exec format error\ntry: sh {file}\n"


def test_a_folder_cannot_be_executed(machine: Outer, tmp_path):
    result = machine.xskit("run", "--", str(tmp_path))
    assert result.code == 126
    assert result.err == f"xskit: {tmp_path} cannot be executed: it is a folder\ntry: ls {tmp_path}\n"


# -- what COMMAND has ----------------------------------------------------------------------------------------------


def test_input_and_output_are_the_commands(machine: Outer):
    result = machine.xskit("run", "--", "sh", "-c", "cat; echo mistake >&2", input="line\n" * 3)
    assert result.out == "line\n" * 3
    assert result.err.startswith("mistake\n")


def test_udp_reaches_the_peer_and_comes_back(machine: Outer):
    machine.listen()
    result = machine.xskit("run", "--owd", "2ms", "--json", "--", sys.executable, "-c", UDP_CLIENT, "peer", "20")
    assert result.out == "20\n"
    report = json.loads(result.err)
    assert report["schema"] == "xskit.report/1"
    for direction in directions(report):
        assert direction["packets"]["sent"] >= 20
        assert direction["achieved"]["owd_ns"]["p50"] >= 2_000_000


def test_tcp_reaches_the_peer_and_comes_back(machine: Outer):
    machine.listen(TCP_SERVER)
    result = machine.xskit("run", "--owd", "1ms", "--", sys.executable, "-c", TCP_CLIENT)
    assert result.code == 0, result.err


def test_the_link_is_the_only_way_out(machine: Outer):
    script = "ip -oneline link; echo; ip -4 -oneline address show xk0; echo; ip route; echo; getent ahostsv4 peer"
    links, address, routes, peer = machine.xskit("run", "--", "sh", "-c", script).out.split("\n\n")
    assert [line.split(": ")[1].partition("@")[0] for line in links.splitlines()] == ["lo", "xk0"]
    assert "198.18.1.1/24" in address
    assert routes.splitlines()[0].startswith("default via 198.18.1.2 dev xk0")
    assert peer.split()[0] == "198.18.1.2"


def test_a_packet_of_full_size_crosses_and_one_byte_more_does_not(machine: Outer):
    machine.listen()
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: do not fragment\n"
        "s.settimeout(30)\n"
        "s.connect(('peer', 7000))\n"
        "s.send(bytes(3000 - 28))\n"
        "print(len(s.recv(9000)))\n"
        "try:\n"
        "    s.send(bytes(3000 - 27))\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    result = machine.xskit("run", "--mtu", "3000", "--", sys.executable, "-c", code)
    assert result.out == "2972\nMessage too long\n", result.err


# -- this machine --------------------------------------------------------------------------------------------------

FACTS = """
ip -oneline address show | grep -v xkpeer
ip route show table all | grep -v xkpeer
sysctl -a 2>/dev/null | grep -E '^net.ipv[46].conf.(all|default|lo)'
"""


def test_nothing_but_one_interface_is_added_to_the_machine(machine: Outer):
    ip("-netns", machine.name, "address", "add", "10.99.0.1/24", "dev", "lo")
    before = machine.run("sh", "-c", FACTS).out
    assert "10.99.0.1/24" in before
    during = machine.xskit("run", "--", "nsenter", f"--net=/run/netns/{machine.name}", "sh", "-c", FACTS)
    assert during.out == before
    assert machine.run("sh", "-c", FACTS).out == before


def test_two_at_once_have_subnets_of_their_own(machine: Outer):
    first = machine.start(XSKIT, "run", "--", "sh", "-c", "grep -w peer /etc/hosts; cat", stdin=subprocess.PIPE)
    assert machine.first_line(first).split() == ["198.18.1.2", "peer"]
    second = machine.run(XSKIT, "run", "--", "grep", "-w", "peer", "/etc/hosts")
    assert second.out.split() == ["198.18.2.2", "peer", "fd78:736b:6974:2::2", "peer"]
    first.communicate("")
    assert first.returncode == 0
    machine.nothing_left(first.pid)


@pytest.mark.parametrize(
    ("taken", "peer"),
    [
        ("198.18.1.77/24", ["198.18.2.2", "fd78:736b:6974:2::2"]),
        ("198.18.0.1/16", ["198.19.0.2", "fd78:736b:6974:256::2"]),
        ("198.18.2.0/23", ["198.18.1.2", PEER6]),
        ("fd78:736b:6974:1::77/128", ["198.18.2.2", "fd78:736b:6974:2::2"]),
        ("fd78:736b:6974::77/48", ["198.18.1.2"]),
    ],
)
def test_addresses_that_the_machine_has_are_left_alone(machine: Outer, taken, peer):
    ip("-netns", machine.name, "address", "add", taken, "dev", "lo")
    lines = machine.xskit("run", "--", "grep", "-w", "peer", "/etc/hosts").out.splitlines()
    assert [line.split()[0] for line in lines] == peer


def test_no_subnet_is_free(machine: Outer):
    ip("-netns", machine.name, "address", "add", "198.18.0.1/15", "dev", "lo")
    result = machine.xskit("run", "--", "true")
    assert result.code == 1
    assert result.err == (
        "xskit: every subnet of 198.18.0.0/15 is in use on this machine\ntry: ip -4 address; ip -4 route\n"
    )


# -- settings and report -------------------------------------------------------------------------------------------


def test_settings_hold_for_both_directions_unless_said_of_one(machine: Outer, tmp_path):
    file = tmp_path / "report.json"
    arguments = [
        *("--owd", "3ms", "--forward-rate", "5Mbit", "--reverse-owd", "4ms", "--queue", "20packets"),
        *("--forward-jitter", "1ms", "--forward-jitter-distribution", "uniform", "--seed", "7", "--workers", "2"),
    ]
    result = machine.xskit("run", *arguments, "--report", str(file), "--", "true")
    assert (result.code, result.out, result.err) == (0, "", "")
    report = json.loads(file.read_text())
    forward, reverse = (direction["asked"] for direction in directions(report))
    assert forward == {
        "owd_ns": 3_000_000,
        "jitter_ns": 1_000_000,
        "jitter_distribution": "uniform",
        "order": "keep",
        "rate_bps": 5_000_000,
        "overhead": "L2",
        "queue": {"kind": "droptail", "limit": "20packets"},
        "loss": 0.0,
    }
    assert reverse == {
        **forward,
        "owd_ns": 4_000_000,
        "jitter_ns": 0,
        "jitter_distribution": "normal",
        "rate_bps": None,
    }
    assert len(report["workers"]) == 2


def test_a_black_hole_lets_nothing_through(machine: Outer):
    machine.listen()
    code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('peer', 7000))"
    result = machine.xskit("run", "--loss", "100%", "--json", "--", sys.executable, "-c", code)
    forward, reverse = directions(json.loads(result.err))
    assert forward["packets"]["sent"] == reverse["packets"]["sent"] == 0


def test_a_report_in_a_text_file(machine: Outer, tmp_path):
    file = tmp_path / "report.txt"
    assert machine.xskit("run", "--report", str(file), "--", "true").err == ""
    assert file.read_text().startswith("asked against achieved")


def test_a_report_through_a_pipe_with_a_name(machine: Outer, tmp_path):
    pipe = tmp_path / "report.json"
    os.mkfifo(pipe)
    reader = machine.start("cat", str(pipe))
    assert machine.xskit("run", "--report", str(pipe), "--", "true").code == 0
    out, _ = reader.communicate(timeout=PATIENCE_SECONDS)
    assert json.loads(out)["schema"] == "xskit.report/1"


def test_json_goes_to_stderr_whatever_the_command_prints(machine: Outer):
    result = machine.xskit("run", "--json", "--", "echo", "out")
    assert result.out == "out\n"
    assert json.loads(result.err)["valid"] in (True, False)


MISTAKES = [
    (["--owd", "20"], "--owd: 20 what? write 20ms"),
    (["--rate", "10mbps"], "--rate: did you mean 10Mbit or 10MBps?"),
    (
        ["--rate", "0"],
        "--rate: a rate of 0 never sends: leave rate out for unlimited, or write loss 100% for a black hole",
    ),
    (["--forward-queue", "10m"], "--forward-queue: did you mean 10ms or 10min?"),
    (["--reverse-loss", "2"], "--reverse-loss: 2 what? write 2%"),
    (["--jitter-distribution", "pareto"], "--jitter-distribution: expected 'normal' or 'uniform', got 'pareto'"),
    (["--ip", "5"], "--ip: expected 4, 6 or 'both', got 5"),
    (["--neighbours", "none"], "--neighbours: expected 'permanent' or 'kernel', got 'none'"),
    (["--memory", "1G"], "--memory: did you mean 1GiB or 1GB?"),
]


@pytest.mark.parametrize(("arguments", "cause"), MISTAKES)
def test_a_mistake_is_answered_with_the_option_and_what_would_be_right(machine: Outer, arguments, cause):
    result = machine.xskit("run", *arguments, "--", "true")
    assert (result.code, result.err) == (2, f"xskit: {cause}\n")


def test_an_option_that_is_not_there(machine: Outer):
    result = machine.xskit("run", "--odw", "20ms", "--", "true")
    assert result.code == 2
    assert result.err.startswith("xskit: no such option: --odw")
    assert "--owd" in result.err
    assert result.err.endswith("\ntry: xskit run --help\n")


def test_the_command_is_missing(machine: Outer):
    result = machine.xskit("run", "--owd", "20ms")
    assert (result.code, result.err) == (2, "xskit: missing argument 'COMMAND'\ntry: xskit run --help\n")


def test_a_report_that_cannot_be_written_is_known_before_the_run(machine: Outer, tmp_path):
    file = tmp_path / "nowhere" / "report.json"
    result = machine.xskit("run", "--report", str(file), "--", "echo", "ran")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"xskit: the report cannot be written to {file}: No such file or directory\ntry: mkdir -p {file.parent}\n"
    )


def test_a_full_disk_does_not_lose_the_report(machine: Outer):
    script = (
        "mount -t tmpfs -o size=4k none /mnt && head -c 4096 /dev/zero > /mnt/filler; "
        f'{XSKIT} run --report /mnt/report.json -- sh -c "echo ran"'
    )
    result = machine.run("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
    assert (result.code, result.out) == (1, "ran\n")
    report, _, told = result.err.rpartition("xskit: ")
    assert told == "the report cannot be written to /mnt/report.json: No space left on device\ntry: df /mnt\n"
    assert report.startswith("asked against achieved")
    assert not os.path.exists("/mnt/report.json")


@pytest.mark.parametrize(
    ("most", "cause"),
    [
        (12, "Too many open files"),
        (13, "Too many open files"),
        (16, "this process has no file descriptor left for an AF_XDP socket"),
        (20, "Too many open files"),
    ],
)
def test_files_that_cannot_be_opened(machine: Outer, most, cause):
    result = machine.run("prlimit", f"--nofile={most}", XSKIT, "run", "--", "true")
    machine.nothing_left(result.pid)
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith(f"{cause}\ntry: ulimit -n 65536\n"), result.err


def test_a_machine_that_never_had_an_address():
    with namespace(f"xkbare{os.getpid():x}", loopback=False) as name:
        result = Outer(name).run(XSKIT, "run", "--", "grep", "-w", "peer", "/etc/hosts")
        assert (result.code, result.out.split()) == (0, ["198.18.1.2", "peer", PEER6, "peer"]), result.err


def test_no_privilege(machine: Outer):
    result = machine.xskit_without_privileges("run", "--owd", "1ms", "--", "echo", "a b")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "xskit: xskit run needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF\n"
        f"try: sudo {XSKIT} run --owd 1ms -- echo 'a b'\n"
    )
