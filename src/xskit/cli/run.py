"""`xskit run`: a command behind an emulated link.

COMMAND's namespace                emulated link                 this machine
command, 198.18.N.1  ---- forward: owd, rate, loss, ... --->  peer, 198.18.N.2
  fd78:736b:6974:N::1  <-- reverse -------------------------  fd78:736b:6974:N::2
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xskit.cli.options import read_engine, read_lab, read_link, with_settings
from xskit.errors import UsageError

if TYPE_CHECKING:
    from xskit.emulator.report import Report
    from xskit.lab import Host

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


class CommandError(UsageError):
    """COMMAND cannot be started; `exit_code` is what a shell would give."""

    def __init__(self, cause: str, exit_code: int, *, remedy: str) -> None:
        super().__init__(cause, remedy=remedy)
        self.exit_code = exit_code


@with_settings
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="what to run, and its arguments", show_default=False)
    ],
    link: dict[str, Any],
    engine: dict[str, Any],
    lab: dict[str, Any],
    mtu: Annotated[
        int, typer.Option(min=68, max=65_535, help="bytes that a packet may have, without Ethernet header")
    ] = 1500,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write the report to FILE: JSON if it ends in .json, else text"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="the report as JSON")] = False,
) -> None:
    """Run COMMAND in a network namespace of its own, whose only way out is an emulated link to this machine.

    COMMAND reaches this machine and its servers under the name "peer", over IPv4 and IPv6. Packets from COMMAND to peer
    go forward, packets from peer to COMMAND in reverse. An option such as --owd applies to both directions;
    --forward-owd and --reverse-owd apply to one.

    Input, output and terminal are COMMAND's, and its exit code is returned: 127 when there is no such command, 126
    when it cannot be executed, 128 + n when signal n ended it. The report, asked against achieved, goes to stderr.

    \b
    Examples:
      xskit run --owd 20ms --rate 10Mbit -- ip -brief address
      xskit run --loss 1% --forward-rate 1Mbit --report /tmp/wan.json -- grep peer /etc/hosts
    """
    from xskit.cli.output import REPORTS, check_file, write_report
    from xskit.netconf.privileges import require

    read_link(link)
    read_engine(engine)
    read_lab(lab)
    _check_command(command[0])
    require(("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"), "xskit run")
    check_file("--report", report, REPORTS)
    code, result = _run(command, link, {**lab, **engine}, mtu)
    write_report(result, report, sys.stderr, json=json)
    raise typer.Exit(code)


def _run(command: list[str], link: dict[str, Any], options: dict[str, Any], mtu: int) -> tuple[int, Report]:
    """COMMAND's exit code and the report; everything is put back by then."""
    from xskit.cli.attend import Signals
    from xskit.cli.output import compiling, show_warnings
    from xskit.lab import Lab
    from xskit.netconf.signals import terminated_by_exception

    show_warnings()
    with terminated_by_exception() as asked, Lab(on_compile=compiling, **options) as lab:
        host, peer = lab.host("command"), lab.machine("peer")
        running = lab.link(host, peer, name="run", mtu=mtu, **link)
        with Signals() as signals:
            asked.check()
            code = signals.attend(_start(host, command))
            lab.close()
    return code, running.report()


def _start(host: Host, command: list[str]) -> subprocess.Popen[bytes]:
    try:
        process: subprocess.Popen[bytes] = host.spawn(*command)
    except OSError as error:
        raise _cannot_start(command[0], error) from error
    except UsageError as error:
        if isinstance(error.__cause__, OSError):
            raise _cannot_start(command[0], error.__cause__) from error
        raise
    return process


def _check_command(name: str) -> None:
    """Find out before anything is made."""
    if shutil.which(name) is not None:
        return
    if "/" in name and os.path.lexists(name):
        raise _cannot_start(name, OSError(errno.EACCES, os.strerror(errno.EACCES)))
    raise _cannot_start(name, FileNotFoundError(errno.ENOENT, ""))


def _cannot_start(name: str, error: OSError) -> CommandError:
    if isinstance(error, FileNotFoundError):
        return CommandError(
            f"there is no command {name or repr(name)}", _NOT_FOUND, remedy=f"command -v {shlex.quote(name)}"
        )
    why = "it is a folder" if os.path.isdir(name) else error.strerror
    word = shlex.quote(name)
    if os.path.isdir(name):
        remedy = f"ls {word}"
    else:
        remedy = f"chmod +x {word}" if error.errno == errno.EACCES else f"sh {word}"
    return CommandError(f"{name} cannot be executed: {why}", _NOT_EXECUTABLE, remedy=remedy)
