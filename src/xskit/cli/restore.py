"""`xskit restore`: what xskit processes left that were killed."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from typing import Annotated

import typer


def restore(json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False) -> None:
    """Put back what xskit processes changed on this machine and could not put back, because they were killed.

    Every start of xskit does the same. What running xskit processes changed is left alone. The exit code is 1 when
    something could not be put back.

    \b
    Example: xskit restore
    """
    from xskit.netconf.changes import Fate
    from xskit.netconf.journal import restore_dead

    found = restore_dead()
    if json:
        print(json_module.dumps([asdict(one) for one in found], indent=2))
    else:
        print("\n".join(map(str, found)) or "nothing to put back")
    for remedy in dict.fromkeys(one.remedy for one in found if one.remedy):
        print(f"try: {remedy}", file=sys.stderr)
    if any(one.fate is Fate.FAILED for one in found):
        raise typer.Exit(1)
