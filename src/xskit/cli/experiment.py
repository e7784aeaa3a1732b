"""`xskit experiment`: published experiments, repeated by one command, here and under other kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xskit.cli.bench_options import AskedGuests, far_names, interface_names
from xskit.cli.nic import USUAL_NIC, Nic
from xskit.errors import UsageError

if TYPE_CHECKING:
    from xskit.experiments.experiment import Experiment, ExperimentResult, Options

_HELP = {"help_option_names": ["-h", "--help"]}

experiment = typer.Typer(context_settings=_HELP, rich_markup_mode=None)


@experiment.callback()
def _experiment() -> None:
    """Published experiments with AF_XDP, each repeated by one command, with the published table beside ours."""


@experiment.command("list", context_settings=_HELP, short_help="Show what there is.")
def list_experiments() -> None:
    """Show the experiments, and where they were published.

    Example: xskit experiment list
    """
    from xskit.experiments.catalogue import CATALOGUE

    for one in CATALOGUE:
        print(f"{one.name:<12} {one.title}\n{'':<12} {one.source}")


@experiment.command("run", context_settings=_HELP, short_help="Do one, here or in guests.")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="as `list` shows it", show_default=False)],
    short: Annotated[bool, typer.Option("--short", help="seconds instead of minutes")] = False,
    kernel: Annotated[
        str | None, typer.Option(metavar="LIST", help="in guests with these kernels: 6.1,7.3; here: without")
    ] = None,
    nic: Annotated[
        Nic | None, typer.Option(help="with --kernel: model of the guests' NICs; virtio-net when left out")
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option("--interface", "-i", metavar="NAME[,NAME]", help="to measure on; none: veth pairs are made"),
    ] = None,
    far: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="what the interfaces are wired to, to be driven from there"),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="of one measurement", show_default="2, with --short 0.3")
    ] = None,
    repeat: Annotated[int | None, typer.Option(help="measurements of each", show_default="7, with --short 3")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write the charts there, as SVG (needs xskit[plots])")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print the results as JSON")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="say nothing while it runs")] = False,
) -> None:
    """Repeat an experiment, and print the published table and ours in the same layout.

    What was measured is kept for `xskit experiment report`.

    \b
    Examples:
      xskit experiment run frame-sizes --short
      xskit experiment run tx-sizes --kernel 5.10,6.1,7.3 --nic virtio-net
    """
    from xskit.bench import render
    from xskit.cli.output import lack_of_charts
    from xskit.experiments import report
    from xskit.experiments.catalogue import find
    from xskit.experiments.experiment import Options
    from xskit.netconf.signals import terminated_by_exception

    chosen = find(name)
    asked = AskedGuests.read(kernel, nic, "auto", interface=interface, far=far)
    if nic and not chosen.guest_nics:
        raise UsageError(
            f"{chosen.name} is done on veth pairs, in guests too: --nic names no part of it",
            remedy=f"xskit experiment run {chosen.name} --kernel {kernel}",
        )
    say = _silent if quiet else _say
    interfaces = _interfaces(chosen, interface)
    options = Options.choose(short=short, interfaces=interfaces, far=far_names(far, interfaces), say=say)
    options = options.with_times(seconds, repeat)
    results: list[ExperimentResult] = []
    with terminated_by_exception():
        if asked is None:
            results.append(_here(chosen, options))
            report.keep(_folder(), results)
        else:
            from xskit.cli.experiment_guests import in_guest

            for one in asked.kernels:
                found = in_guest(chosen, one, asked.nic or USUAL_NIC, options)
                report.keep(_folder(), found)  # the next guest may fail
                results += found
    if plots is not None and not lack_of_charts(f"{plots} gets"):
        _write_charts(plots, results)
    print(report.as_json(results) if json else render.text(report.whole(chosen, results), report.WIDTH))


def _interfaces(chosen: Experiment, text: str | None) -> tuple[str, ...]:
    """Those to measure on.

    Raises:
        UsageError: the experiment takes none, or a different number.
        MissingError: there is no such interface.
    """
    found = interface_names(text, "--interface")
    wanted = chosen.guest_interfaces
    if found and not wanted:
        raise UsageError(
            f"{chosen.name} makes its own veth pairs and takes no --interface",
            remedy=f"xskit experiment run {chosen.name}",
        )
    if found and len(found) != len(wanted):
        raise UsageError(
            f"{chosen.name} needs {len(wanted)} interfaces in --interface, not {len(found)}",
            remedy=f"xskit experiment run {chosen.name} --interface {','.join(wanted)}",
        )
    if found:
        from xskit.netconf.interfaces import look

        for name in found:
            look(name)
    return found


def _here(chosen: Experiment, options: Options) -> ExperimentResult:
    from xskit.cli.output import compiling
    from xskit.netconf.privileges import require

    require(("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"), f"xskit experiment run {chosen.name}")
    with compiling():
        return chosen.run(options)


@experiment.command("report", context_settings=_HELP, short_help="Show what was measured.")
def report_results(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="one of them", show_default=False)] = None,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option("--format", help="of the report")] = "text",
) -> None:
    """Show the last results of each experiment on each kernel, with the published tables.

    \b
    Example: xskit experiment report tx-sizes --format markdown
    """
    from xskit.bench import render
    from xskit.experiments import report
    from xskit.experiments.catalogue import CATALOGUE, find

    wanted = CATALOGUE if name is None else (find(name),)
    found = {one.name: report.kept(_folder(), one.name) for one in wanted}
    if format == "json":
        print(report.as_json([result for results in found.values() for result in results]))
        return
    for number, (one, results) in enumerate(zip(wanted, found.values(), strict=True)):
        parts = report.whole(one, results)
        print(
            "\n\n" * (number > 0)
            + (render.markdown(parts) if format == "markdown" else render.text(parts, report.WIDTH))
        )


def _folder() -> Path:
    from xskit.vm.places import cache_root

    return cache_root() / "experiments"


def _write_charts(folder: Path, results: list[ExperimentResult]) -> None:
    from xskit.bench import charts
    from xskit.cli.output import write_text

    for result in results:
        for number, plot in enumerate(result.plots):
            path = folder / f"{result.experiment}-{number}.svg"
            write_text(path, charts.svg(plot) + "\n")
            _say(f"{path}: {plot.title}")


def _say(line: str) -> None:
    print(f"xskit: {line}", file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass
