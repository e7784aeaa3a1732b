"""Runs checks and writes what came of each to $XSKIT_OUT/results.jsonl, as it goes.

python -m tests.vm.inside SUITE... [: CHECK...]
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.vm.inside import wire


def check_nothing_was_compiled() -> None:
    """All compiled code came from the host: the guest has written nothing into that cache."""
    cache, upper = Path(os.environ["XSKIT_CACHE"]).resolve(), Path("/run/xskit-vm/written/upper")
    assert sorted(cache.rglob("*.code")), "there is no compiled code at all"
    assert upper.is_dir(), "what guests write lies elsewhere now"
    written = upper / cache.relative_to("/")
    assert not [str(path) for path in written.rglob("*.code*")]


def _locals(error: BaseException) -> str:
    """The values where it failed: no debugger comes into a guest."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "".join(f"{name} = {value!r:.400}\n" for name, value in frames[-1].f_locals.items()) if frames else ""


def main() -> None:
    sys.modules["coverage"] = None  # Numba loads it where it finds it, which takes a second in here
    suites, _, only = " ".join(sys.argv[1:]).partition(" : ")
    modules = [importlib.import_module(f"tests.vm.inside.{name}") for name in suites.split()]
    checks = [check for module in modules for check in module.CHECKS]
    wire.quiet()
    with (Path(os.environ["XSKIT_OUT"]) / "results.jsonl").open("w", buffering=1) as results:
        for check in (*checks, check_nothing_was_compiled):
            if not only or check.__name__ in only.split():
                results.write(json.dumps(_run(check)) + "\n")


def _run(check: Callable[[], Any]) -> dict[str, Any]:
    """What came of one check; whatever goes wrong, the others are to run."""
    began = time.monotonic()
    facts, failure = None, None
    try:
        facts = check()
    except BaseException as error:
        failure = "".join(traceback.format_exception(error)) + _locals(error)
    took_s = time.monotonic() - began
    print(f"{'FAIL' if failure else 'ok  '} {check.__name__} {took_s:.1f} s", flush=True)
    if failure:
        print(failure, flush=True)
    return {"check": check.__name__, "failure": failure, "facts": facts, "seconds": took_s}


if __name__ == "__main__":
    main()
