"""An emulator starts whole or not at all: what is missing or taken is said, and nothing is left half-made."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.guards import descriptors
from tests.real.foreign_hosts import foreign_hosts, ip
from tests.real.lab_rig import pair
from xskit.bpf.errors import AttachError
from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.mistakes import CapacityError, SettingsError
from xskit.emulator.monitor import Monitor
from xskit.emulator.settings import EngineSettings, LinkSettings
from xskit.errors import UsageError, XskitError
from xskit.netconf.namespaces import MissingError
from xskit.xsk.errors import PortError

pytestmark = pytest.mark.root


def refused(ports, kind: type[XskitError], **engine) -> XskitError:
    """The error of an emulator on these ports that cannot start; it leaves nothing behind."""
    before = descriptors()
    emulator = Emulator([LinkSpec("wan", ports, LinkSettings())], EngineSettings(**engine))
    with pytest.raises(kind) as caught:
        emulator.start()
    assert descriptors() == before
    assert emulator.close() is None
    return caught.value


def programs_on(port: PortSpec) -> bool:
    """Whether an XDP program is attached."""
    shown = subprocess.run(
        ["ip", "-n", port.namespace, "link", "show", port.name], check=True, capture_output=True, text=True, timeout=30
    )
    return "xdp" in shown.stdout


def test_a_second_port_that_is_missing():
    with foreign_hosts() as hosts:
        first, _ = hosts.ports
        error = refused((first, PortSpec("xkmissing", hosts.room)), MissingError)
        assert error.cause == f"there is no interface xkmissing in network namespace {hosts.room}"
        error = refused((first, PortSpec("xkp1", "xknowhere")), MissingError)
        assert error.cause == "there is no network namespace xknowhere"
        assert not programs_on(first)
        with hosts.emulator() as emulator:
            assert emulator.wait(0.0) is None


def test_a_second_port_that_cannot_be_one():
    with foreign_hosts() as hosts:
        first, _ = hosts.ports
        error = refused((first, PortSpec("lo", hosts.room)), PortError)
        assert error.cause == f"{hosts.room}/lo is a loopback interface, which gives no packets to AF_XDP"
        ip("-n", hosts.room, "link", "set", "xkp1", "down")
        error = refused(hosts.ports, PortError)
        assert error.cause == f"{hosts.room}/xkp1 is down"
        assert error.remedy == f"ip -n {hosts.room} link set xkp1 up"
        ip("-n", hosts.room, "link", "add", "xkbr", "type", "bridge")
        ip("-n", hosts.room, "link", "set", "xkp1", "master", "xkbr")
        error = refused(hosts.ports, PortError)
        assert error.cause == f"{hosts.room}/xkp1 is part of xkbr, and xskit would take its packets away from there"
        assert not programs_on(first)


def test_two_emulators_on_one_port():
    with pair() as made, foreign_hosts() as hosts:
        first, _ = hosts.ports
        taken = tuple(made.link.emulator.ports)[1]
        error = refused((first, taken), AttachError)
        assert re.fullmatch(
            rf'cannot attach program "xk_redirect" to {taken.name} \(native\): EBUSY: another XDP program '
            rf"\(id \d+, name xk_redirect, native\) is attached to {taken.name}, held there by this process itself "
            r'\(the kernel: "Can\'t replace active BPF XDP link"\)',
            error.cause,
        )
        assert error.remedy == "close the link of that program first"
        assert not programs_on(first)
        # The one that was there first goes on.
        flow = made.flow()
        flow.send(10)
        assert len(flow.take(10)) == 10


def test_a_cpu_that_may_not_be_used_and_memory_that_is_too_small():
    with foreign_hosts() as hosts:
        error = refused(hosts.ports, SettingsError, cpus=(99_999,))
        assert error.cause.startswith("a worker cannot run on CPU 99999: this process may use ")
        error = refused(hosts.ports, SettingsError, memory="64KiB")
        assert error.cause == "this packet memory cannot even fill the FILL rings: at least 8448KiB is needed"
        assert error.remedy == "memory='8448KiB'"
        assert not programs_on(hosts.ports[0])


def test_memory_that_the_machine_does_not_have():
    with foreign_hosts() as hosts:
        error = refused(hosts.ports, CapacityError, memory="8TiB", frame_size=4096)
        assert re.fullmatch(
            r"so much packet memory takes 8\d{3}\.\dGiB of memory in all, but this machine has \S+iB to spare",
            error.cause,
        )
        assert re.fullmatch(r"memory='\d+[GM]iB' or less", error.remedy)


def test_a_link_in_the_middle_of_compiling_can_be_interrupted():
    with foreign_hosts() as hosts:
        before = descriptors()

        def interrupt():
            raise KeyboardInterrupt

        emulator = Emulator([LinkSpec("wan", hosts.ports, LinkSettings())], on_compile=interrupt)
        with pytest.raises(KeyboardInterrupt):
            emulator.start()
        assert descriptors() == before
        assert not programs_on(hosts.ports[0])


def test_an_interrupt_when_it_already_runs_leaves_nothing_to_close(monkeypatch):
    """The second close() has no memory to read a report from."""
    with foreign_hosts() as hosts:
        before = descriptors()

        def interrupt(_monitor):
            raise KeyboardInterrupt

        monkeypatch.setattr(Monitor, "start", interrupt)
        emulator = Emulator([LinkSpec("wan", hosts.ports, LinkSettings())])
        with pytest.raises(KeyboardInterrupt):
            emulator.start()
        assert emulator.close() is None
        assert descriptors() == before
        with pytest.raises(UsageError, match="^the links do not run, so there is nothing to report$"):
            emulator.report()


def test_an_interrupt_at_the_end_leaves_nothing_to_close(monkeypatch):
    with foreign_hosts() as hosts:
        before = descriptors()
        emulator = Emulator([LinkSpec("wan", hosts.ports, LinkSettings())])
        emulator.start()
        with monkeypatch.context() as patched:
            patched.setattr(Monitor, "stuck", lambda _monitor: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                emulator.close()
        assert emulator.close() is None
        assert descriptors() == before
        assert not programs_on(hosts.ports[0])


def test_a_second_start_is_refused_and_the_first_one_goes_on():
    with foreign_hosts() as hosts:
        with hosts.emulator(owd="1ms") as emulator:
            with pytest.raises(UsageError, match="^an emulator starts once"):
                emulator.start()
            assert emulator.report().links[0].name == "wan"
            assert programs_on(hosts.ports[0])
        with pytest.raises(UsageError, match="^an emulator starts once"):
            emulator.start()


def test_a_link_of_named_ports_without_namespaces_of_the_lab():
    with foreign_hosts() as hosts, hosts.emulator(owd="1ms") as emulator:
        report = emulator.report()
        assert [port.name for port in report.ports] == [f"{hosts.room}/xkp0", f"{hosts.room}/xkp1"]
        assert emulator.links["wan"].report() == report.links[0]
    assert not emulator.links["wan"].forward._worker.running


def test_a_forked_process_that_lives_on_keeps_no_port():
    with foreign_hosts() as hosts:
        reading, writing = os.pipe()
        with hosts.emulator(owd="1ms") as emulator:
            if not (child := os.fork()):
                os.read(reading, 1)
                os._exit(0)
            assert programs_on(hosts.ports[0])
            assert emulator.report().links[0].name == "wan"
        try:
            assert not programs_on(hosts.ports[0])
            with hosts.emulator(owd="1ms"):
                assert programs_on(hosts.ports[0])
        finally:
            os.write(writing, b"x")
            assert os.waitpid(child, 0)[1] == 0
            os.close(reading)
            os.close(writing)


FORKED = """
import os, sys
from xskit import Lab, UsageError

with Lab() as lab:
    link = lab.link(lab.host("a"), lab.host("b"), owd="1ms")
    parent = os.getpid()
    if not (child := os.fork()):
        settings = link.forward.settings
        refused = (
            link.report, lambda: link.update(owd="2ms"), lambda: link.forward.update(loss="1%"), link.close,
            link.emulator.close, link.emulator.wait,
        )
        for call in refused:
            try:
                call()
            except UsageError as error:
                assert error.cause == f"the links run in process {parent}, from which this one was forked"
            else:
                sys.exit(4)
        assert link.forward.settings == settings
        sys.exit(3)  # through all blocks
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert lab.hosts["a"].run("true").returncode == 0
    assert link.report().links[0].directions[0].packets["received"] >= 0
"""


def test_a_forked_process_has_no_part_in_its_parents_links():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
