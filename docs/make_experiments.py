"""Writes the pages of the experiments: what was published, and what was measured last on each kernel.

    python docs/make_experiments.py            both parts, from the results that `xskit experiment run` kept, and charts
    python docs/make_experiments.py FOLDER     the same from results that lie elsewhere
    python docs/make_experiments.py --check    only tell which pages do not show what the catalogue says is published

`make experiments` measures everything anew and then calls this. What agrees with the publication and what does not
stands below the generated parts, and is written by hand: read it again after a new measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from page_parts import DOCS, write

from xskit.bench import charts, render
from xskit.bench.document import Dots, Plot
from xskit.experiments import report
from xskit.experiments.catalogue import CATALOGUE
from xskit.experiments.experiment import Experiment, ExperimentResult
from xskit.vm.places import cache_root

SCRIPT = "docs/make_experiments.py"


def published(one: Experiment) -> str:
    """Question, source, and the published tables."""
    return render.markdown(report.published(one))


def measured(one: Experiment, results: Sequence[ExperimentResult]) -> str:
    """All results in the same layout, and what of them can be held against what was published. Writes the charts."""
    said = (
        f"`xskit experiment run {one.name}` prints this; what stands below was produced by the commands that are "
        "shown. *SHARED* marks a run on a machine on which others were at work."
    )
    ours, *parts = report.measured(one, results)
    names = (f"{one.name}-{number}.svg" for number in count())

    def picture(chart: Plot | Dots) -> str:
        path = DOCS / "images" / next(names)
        path.write_text(charts.svg(chart) + "\n", encoding="utf-8")
        return f"../images/{path.name}"

    return render.markdown([ours, said, *parts], picture)


def main(arguments: list[str]) -> int:
    """Write or check every page."""
    check = "--check" in arguments
    named = [Path(argument) for argument in arguments if not argument.startswith("-")]
    folder = named[0] if named else cache_root() / "experiments"
    pages: dict[str, dict[str, Callable[[], str]]] = {}
    for one in CATALOGUE:
        pages[f"experiments/{one.name}.md"] = {"published": partial(published, one)}
        results = [] if check else report.kept(folder, one.name)
        if results:
            pages[f"experiments/{one.name}.md"]["measured"] = partial(measured, one, results)
        elif not check:
            print(f"{one.name}: nothing was kept in {folder}; what the page shows stays")
    return write(SCRIPT, pages, check=check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
