"""An experiment in a throw-away guest: the same command in there, its JSON read out here."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from xskit.experiments.experiment import Experiment, ExperimentResult, Options
from xskit.vm.errors import GuestError

if TYPE_CHECKING:
    from xskit.vm.hardware import GuestHardware

__all__ = ["in_guest"]

TIME_LIMIT_S = 1800.0
MEMORY_BYTES = 2 << 30


def in_guest(experiment: Experiment, kernel: str, nic: str, options: Options) -> list[ExperimentResult]:
    """Run it under another kernel.

    Raises:
        GuestError: the guest failed, or what ran in it.
        UsageError, FetchError: as of run_guest.
    """
    from xskit.vm.session import Request, run_guest

    hardware = _hardware(experiment, nic)
    counted = hardware.count_instructions
    heard, complaints = bytearray(), bytearray()
    with tempfile.TemporaryDirectory(prefix="xskit-experiment-") as folder:
        request = Request(
            kernel=kernel,
            argv=["sh", "-c", _command(experiment, options)],
            hardware=hardware,
            accel="tcg" if counted else "auto",
            time_limit_s=TIME_LIMIT_S,
            out=Path(folder),
        )

        def hear_errors(content: bytes) -> None:
            begun = complaints.rfind(b"\n") + 1
            complaints.extend(content)
            for line in complaints[begun:].decode(errors="replace").split("\n")[:-1]:
                options.say(f"in the guest: {line.removeprefix('xskit: ')}")

        ended = run_guest(request, stdout=heard.extend, stderr=hear_errors, say=options.say)
    if ended.outcome.exit_code != 0:
        last = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()][-2:]
        raise GuestError(f"{experiment.name} failed under Linux {ended.outcome.release}: {' '.join(last)}")
    results = [ExperimentResult.from_dict(each) for each in json.loads(heard)]
    for result in results:
        result.emulated = not ended.accelerator.kvm
        result.command = ["xskit", *sys.argv[1:]]
    return results


def _hardware(experiment: Experiment, nic: str) -> GuestHardware:
    """The hardware that the experiment wants; its clock counts instructions where work is what is compared."""
    from xskit.vm.devices import model
    from xskit.vm.hardware import GuestHardware

    counted = experiment.in_guests == "counts"
    return GuestHardware(
        nics=experiment.guest_nics,
        model=model(nic),
        cpus=1 if counted else 2,
        memory_bytes=MEMORY_BYTES,
        count_instructions=counted,
        offloads=experiment.guest_offloads,
    )


def _command(experiment: Experiment, options: Options) -> str:
    """What runs in the guest."""
    words = [sys.executable, "-P", "-m", "xskit", "experiment", "run", experiment.name, "--json"]
    words += ["--seconds", f"{options.seconds:g}", "--repeat", str(options.repeat)]
    words += ["--short"] if options.short else []
    for option, names in (("--interface", experiment.guest_interfaces), ("--far", experiment.guest_far)):
        words += [option, ",".join(names)] if names else []
    return " ".join(shlex.quote(word) for word in words)
