"""`xskit bench --kernel` without a guest: options, the guest's command, sessions merged, what reports say."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import typer

from tests.pure.support_results import made_session
from xskit.bench import render
from xskit.bench.compare import across, sessions
from xskit.bench.compare_report import as_csv, as_dict, as_mail, as_markdown
from xskit.bench.counted import middle_half
from xskit.bench.in_guest import COUNTED, COUNTED_VARIABLE, EMULATED_VARIABLE, RATIO, VIRTUAL
from xskit.bench.merge import GuestSession, merged
from xskit.bench.metrics import COUNTED_OF_MODE
from xskit.bench.results import FileError, Session
from xskit.bench.session_report import final, page
from xskit.bench.settings import Case
from xskit.bench.xdpsock_format import Printer
from xskit.cli.bench import bench
from xskit.cli.bench_guests import _failure, guest_words, layout
from xskit.cli.bench_options import AskedGuests, CaseOptions, as_priority, far_names
from xskit.errors import UsageError
from xskit.vm.accel import Accelerator
from xskit.vm.devices import model
from xskit.vm.errors import GuestError
from xskit.vm.guest import CompletedCommand
from xskit.vm.hardware import GuestHardware, nic_arguments
from xskit.vm.session import GuestResult, Request, _environment

COSTS = {"6.1": 5000.0, "7.3": 4000.0}


def guest_session(kernel: str, *cases: Case, counted: bool = True, copied: float = 60.0) -> GuestSession:
    session = made_session(*cases)
    session.machine["kernel"] = {"release": f"{kernel}.4-amd64"}
    for outcome in session.outcomes if counted else []:
        for run in outcome.runs:
            cost = COSTS[kernel] * (1 + run.repeat / 10_000)
            run.metrics = dict.fromkeys(COUNTED_OF_MODE[outcome.case.mode], cost)
            run.metrics["copied_bytes_per_packet"] = copied
    return GuestSession(kernel, session, "TCG (emulation)" if counted else "KVM", counted, "igb", 1)


def two_kernels(*, counted: bool = True, copied: tuple[float, float] = (60.0, 0.0)) -> Session:
    cases = (Case("txonly", packet_size=64), Case("txonly", packet_size=1500))
    guests = [
        guest_session(kernel, *cases, counted=counted, copied=each) for kernel, each in zip(COSTS, copied, strict=True)
    ]
    return merged(guests, ["xskit", "bench"], {"kernel": {"release": "6.18"}, "cpu": {"model": "a CPU"}})


def printed(session: Session) -> str:
    return render.text(final(session, extra=True), 200)


# --- options ----------------------------------------------------------------------------------------------------------


def read(kernel: str | None, nic: str | None = None, accel: str = "auto", **others: str) -> AskedGuests | None:
    return AskedGuests.read(kernel, nic, accel, **{"interface": None, "far": None, **others})


def test_guests_are_asked_for_by_kernel() -> None:
    assert read(None) is None
    assert read("6.1, 7.3,6.1") == AskedGuests(("6.1", "7.3"), "", "auto")
    assert read("patched", "igb", "tcg") == AskedGuests(("patched",), "igb", "tcg")


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"kernel": None, "nic": "igb"}, "--kernel 7.3 --nic igb"),
        ({"kernel": None, "accel": "tcg"}, "--kernel 7.3 --accel tcg"),
        ({"kernel": " ,"}, "xskit vm kernels list"),
        ({"kernel": "7.3", "interface": "eth0"}, "--nic virtio-net"),
        ({"kernel": "7.3", "far": "eth1"}, "--nic virtio-net"),
    ],
)
def test_options_that_do_not_go_together_are_refused(wrong: dict[str, str], remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(**wrong)
    assert remedy in str(caught.value.remedy)


def test_each_interface_is_wired_to_one() -> None:
    assert far_names(None, ["a"]) == ()
    assert far_names("b, d", ["a", "c"]) == ("b", "d")
    for text, near in (("b", ()), ("b,d", ("a",))):
        with pytest.raises(UsageError):
            far_names(text, near)


def test_policies_are_xdpsock_s() -> None:
    assert [as_priority("other", 0), as_priority("FIFO", 0), as_priority("FIFO", 7)] == [0, 1, 7]
    with pytest.raises(UsageError):
        as_priority("RR", 0)


# --- the command for the guest ----------------------------------------------------------------------------------------


def context(mode: str, *arguments: str):
    return typer.main.get_command(bench).commands[mode].make_context(mode, list(arguments))


def test_the_guest_is_told_what_was_given_but_for_what_is_done_out_here() -> None:
    given = [
        "--kernel",
        "7.3",
        "--nic=igb",
        "-S",
        "-s",
        "64,1500",
        "-d5",
        "--json",
        "--html",
        "x",
        "--compare",
        "y",
        "-x",
    ]
    words = guest_words(context("txonly", *given), ("eth0",), ("eth1",))
    assert words[:2] == ["bench", "txonly"]
    assert "--xdp-skb" in words
    assert "--extra-stats" in words
    pairs = dict(pairwise(words))
    assert pairs["--packet-size"] == "64,1500"
    assert (pairs["--duration"], pairs["--interface"], pairs["--far"]) == ("5", "eth0", "eth1")
    assert not {"--kernel", "--nic", "--json", "--html", "--compare", "--accel", "--repeat"} & set(words)


def test_what_the_guest_is_told_it_understands_as_it_was_meant() -> None:
    given = ["-C", "1k", "--tx-cycle", "100", "-V", "-J", "7", "--queue", "0,1", "-Q", "--until", "1%"]
    first = context("rxdrop", *given)
    again = context(*guest_words(first, (), ())[1:])
    outside = {"quiet"}
    assert {name: value for name, value in first.params.items() if name not in outside} == {
        name: value for name, value in again.params.items() if name not in outside
    }


def test_nics_are_measured_on_one_end_of_a_wire() -> None:
    assert layout("rxdrop", "") == ((), ())
    assert layout("latency", "igb") == (("eth0",), ("eth1",))
    near, far = layout("forward", "igb")
    wires = [{int(name[3:]) // 2 for name in pair} for pair in zip(near, far, strict=True)]
    assert [len(wire) for wire in wires] == [1, 1]
    assert len({*near, *far}) == 4


def test_all_queues_of_a_guest_s_nic_are_for_the_guest_to_count() -> None:
    options = CaseOptions("rxdrop", (), "all", "auto", "64", "4096", "2048", "64", "0", "0")
    asked = AskedGuests(("7.3",), "igb", "auto")
    assert asked.without_queues(options).queues == "0"
    assert replace(asked, nic="").without_queues(options).queues == "all"


@pytest.mark.parametrize(("code", "kind"), [(2, UsageError), (1, GuestError)])
def test_what_fails_in_a_guest_is_told_with_its_remedy(code: int, kind: type) -> None:
    ended = GuestResult(CompletedCommand(code, "6.1.0", 1.0, 2.0), Accelerator(False, "asked for"), GuestHardware(), ())
    error = _failure(ended, "\nxskit: the driver of eth0 has no zero copy\ntry: --mode native\n")
    assert type(error) is kind
    assert (error.cause, error.remedy) == ("under Linux 6.1.0: the driver of eth0 has no zero copy", "--mode native")
    assert "killed" in _failure(ended, "the shell was\nkilled\n").cause


def test_a_guest_is_told_what_its_clock_is_worth() -> None:
    found = _environment(Request("7.3", ["true"]), False, True)
    assert (found[EMULATED_VARIABLE], found[COUNTED_VARIABLE]) == ("1", "1")
    found = _environment(Request("7.3", ["true"]), True, False)
    assert (found[EMULATED_VARIABLE], found[COUNTED_VARIABLE]) == ("0", "0")


def test_devices_work_at_once_where_instructions_are_counted() -> None:
    hardware = GuestHardware(model=model("virtio-net"), cpus=1)
    assert "tx" not in nic_arguments(hardware, 0)
    assert nic_arguments(replace(hardware, count_instructions=True), 0)["tx"] == "timer"


# --- merged sessions --------------------------------------------------------------------------------------------------


def test_cases_of_several_guests_differ_by_kernel_and_survive_json() -> None:
    session = two_kernels()
    assert [outcome.case.kernel for outcome in session.outcomes] == ["6.1", "6.1", "7.3", "7.3"]
    assert [label["kernel"] for label in session.labels()] == ["6.1", "6.1", "7.3", "7.3"]
    assert session.machine_of(session.outcomes[2].case)["kernel"]["release"] == "7.3.4-amd64"
    assert session.machine_of(Case("rxdrop"))["kernel"]["release"] == "6.18"
    found = json.loads(session.to_json())
    assert found["meaning"].endswith(COUNTED)
    assert found["guests"]["6.1"]["counted"] is True
    assert Session.from_dict(found) == session


def test_a_session_of_this_machine_says_nothing_of_guests() -> None:
    session = made_session(Case("rxdrop"))
    assert session.headline() == ""
    assert not {"guests", "meaning"} & set(session.as_dict())


def test_a_report_of_counted_instructions_begins_with_what_they_mean_and_shows_no_rate() -> None:
    text = printed(two_kernels())
    first = " ".join(text.split("case ")[0].split())
    assert first.endswith(COUNTED)
    assert first.startswith("Guests: Linux 6.1.4-amd64, 7.3.4-amd64, igb.")
    lines = [
        line for line in text.splitlines() if "pps" in line or "bit/s" in line or "/s" in line or "CPU time" in line
    ]
    assert lines == []
    sent = [line.split() for line in text.splitlines() if " sent " in line]
    assert [line[-1] for line in sent] == ["-"] * 4
    assert "worker, a packet" in text
    assert "60.00 bytes" in text


def test_a_report_of_kvm_guests_has_ordinary_figures_and_says_so() -> None:
    text = printed(two_kernels(counted=False))
    assert VIRTUAL in " ".join(text.split("case ")[0].split())
    assert "pps" in text


def test_a_page_of_guests_is_whole() -> None:
    written = render.html("guests", page(two_kernels()))
    assert "its clock counts instructions" in written
    assert written.index("its clock counts instructions") < written.index("<table")
    assert "Over time" not in written
    for part in written.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
    assert "Over time" in render.html("guests", page(two_kernels(counted=False)))


# --- compared ---------------------------------------------------------------------------------------------------------


def test_kernels_are_compared_and_bytes_copied_stand_apart() -> None:
    found = across(two_kernels(), "kernel")
    costs = [row.difference for row in found.rows if row.metric == "instructions_per_packet"]
    assert [round(one.ratio, 3) for one in costs] == [0.8, 0.8]
    assert {one.conclusion for one in costs} == {"better"}
    assert not any(one.paired for one in costs)  # each guest ran for itself
    assert "txonly, packet-size 64, kernel 7.3: bytes copied of a packet: 60 -> 0" in found.remarks
    text = as_mail(found)
    assert " ".join(text.split("\n\n")[0].split()) == RATIO
    assert max(map(len, text.splitlines())) <= 72
    assert as_markdown(found).startswith(RATIO)
    assert as_dict(found)["meaning"] == RATIO
    assert "instructions_per_packet,instructions,5001.75,4001.4,0.8" in as_csv(found)


def test_sessions_of_guests_are_compared_with_their_own_kind() -> None:
    before, after = two_kernels(), two_kernels(copied=(60.0, 60.0))
    after.guests["7.3"]["machine"]["kernel"] = {"release": "7.3.5-amd64"}
    found = sessions(before, after)
    assert ("Linux 7.3: kernel.release", "7.3.4-amd64", "7.3.5-amd64") in found.machines
    assert not any(name.startswith("Linux 6.1") for name, _, _ in found.machines)
    assert found.meaning == RATIO
    with pytest.raises(UsageError, match="neither says anything of the other"):
        sessions(before, two_kernels(counted=False))
    with pytest.raises(UsageError, match="neither says anything of the other"):
        sessions(made_session(Case("txonly")), before)


def test_two_guests_of_different_kernels_in_two_files_are_compared_in_order() -> None:
    files = [merged([guest_session(kernel, Case("rxdrop"))], ["xskit"], {}) for kernel in COSTS]
    found = sessions(*files)
    assert found.rows[0].difference.ratio == pytest.approx(0.8)
    assert any("the cases differ in kernel (6.1 -> 7.3)" in remark for remark in found.remarks)
    assert ("kernel.release", "6.1.4-amd64", "7.3.4-amd64") in found.machines


def test_an_option_that_cases_do_not_have_is_corrected() -> None:
    with pytest.raises(UsageError, match="cases have no option colour"):
        across(two_kernels(), "colour")


def test_a_file_that_is_no_results_is_not_to_be_overwritten(tmp_path) -> None:
    path = tmp_path / "precious"
    path.write_text("precious")
    with pytest.raises(FileError) as caught:
        Session.load(path)
    assert str(path) not in str(caught.value.remedy)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_middle_half_leaves_out_what_is_rare_and_evens_out_what_alternates() -> None:
    assert middle_half([5.0]) == 5.0
    assert middle_half([100.0] * 9 + [10_000.0]) == 100.0
    assert middle_half([100.0, 102.0] * 8) == 101.0


@pytest.mark.parametrize(("rates", "shown"), [(True, "5"), (False, "-")])
def test_xdpsock_s_columns_have_a_dash_where_a_rate_is_none(rates: bool, shown: str) -> None:
    lines: list[str] = []
    Printer(lines.append, rates=rates)._row(0, "rx", 5, 10**9)
    assert lines == [f"{'rx':<18} {shown:<14} {'5':<14}"]
