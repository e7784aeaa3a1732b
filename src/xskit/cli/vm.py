"""`xskit vm`: a command under another kernel and with other NICs, in a guest that is gone when it ends."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from xskit import units
from xskit.cli.nic import USUAL_NIC, Nic
from xskit.errors import UsageError

_HELP = {"help_option_names": ["-h", "--help"]}

vm = typer.Typer(context_settings=_HELP, rich_markup_mode=None)
kernels = typer.Typer(context_settings=_HELP, rich_markup_mode=None)
vm.add_typer(kernels, name="kernels", short_help="Kernels for guests: Debian's, and your own.")


@vm.callback()
def _vm() -> None:
    """Throw-away guests: this machine's own root, read-only, under another kernel and with other NICs."""


@kernels.callback()
def _kernels() -> None:
    """Kernels for guests: Debian's, fetched by apt into the cache and never installed, and your own."""


@vm.command("run", context_settings={**_HELP, "allow_interspersed_args": False}, short_help="Run a command in a guest.")
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="what to run, and its arguments", show_default=False)
    ],
    kernel: Annotated[str, typer.Option(metavar="VERSION", help="as `xskit vm kernels list` shows them")] = "7.3",
    nic: Annotated[Nic, typer.Option(help="model of the NICs")] = USUAL_NIC,
    nics: Annotated[int, typer.Option(help="how many: 0 and 1 on one wire, 2 and 3 on the next")] = 2,
    queues: Annotated[int, typer.Option(help="of each NIC")] = 1,
    cpus: Annotated[int, typer.Option(help="of the guest")] = 2,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="of the guest")] = "1GiB",
    accel: Annotated[
        Literal["auto", "kvm", "tcg"], typer.Option(help="auto: KVM where a guest boots with it, else emulation (tcg)")
    ] = "auto",
    time_limit: Annotated[
        str, typer.Option(metavar="DURATION", help="end COMMAND and guest after that; exit code 124")
    ] = "10min",
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="where the files go that COMMAND leaves in $XSKIT_OUT")
    ] = Path("vm-out"),
    data_plane: Annotated[
        bool,
        typer.Option(
            "--data-plane/--no-data-plane", help="have xskit's compiled code ready, so the guest compiles none"
        ),
    ] = True,
    console: Annotated[bool, typer.Option("--console", help="show what the guest's kernel says, on stderr")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="say nothing besides what COMMAND says")] = False,
) -> None:
    """Run COMMAND as root in a throw-away guest, and return its exit code.

    The guest has this machine's files, in the same places; what it writes is forgotten, but for files in $XSKIT_OUT,
    which come back. Its NICs are eth0, eth1 and so on, up and without addresses. Inside, `xskit-vm nic unplug 1`
    takes a NIC out (plug: puts it back in; down, up: its carrier).

    \b
    Examples:
      xskit vm run --kernel 6.12 -- uname -r
      xskit vm run --nic igb --nics 4 -- ip -brief link
    """
    from xskit.netconf.signals import terminated_by_exception
    from xskit.vm.devices import model
    from xskit.vm.errors import TimeLimitError
    from xskit.vm.hardware import GuestHardware
    from xskit.vm.session import Request, run_guest

    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the folder you are in has been removed, and COMMAND is to run in it", remedy="cd") from error
    time_limit_ns = units.parse_duration(time_limit)
    if time_limit_ns == 0:
        raise UsageError("a time limit of 0 ends COMMAND before it has begun", remedy="--time-limit 10min")
    request = Request(
        cwd=here,
        kernel=kernel,
        argv=command,
        hardware=GuestHardware(
            nics=nics, model=model(nic), queues=queues, cpus=cpus, memory_bytes=units.parse_size(memory)
        ),
        accel=accel,
        time_limit_s=time_limit_ns / 1e9,
        out=out,
        data_plane=data_plane,
    )
    try:
        with terminated_by_exception():
            result = run_guest(
                request,
                stdout=_writer(sys.stdout.buffer.fileno()),
                stderr=_writer(sys.stderr.buffer.fileno()),
                say=_say_nothing if quiet else _say,
                console=_writer(sys.stderr.buffer.fileno()) if console else None,
            )
    except TimeLimitError as error:
        longer = f"--time-limit {units.format_duration(2 * time_limit_ns)}"
        raise TimeLimitError(error.cause, remedy=longer) from error
    if result.files and not quiet:
        _say(f"{len(result.files)} files in {out}")
    raise typer.Exit(result.outcome.exit_code)


@kernels.command("list")
def list_kernels(
    refresh: Annotated[bool, typer.Option("--refresh", help="ask Debian anew for what there is")] = False,
    json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Show the kernels in the cache, and those that Debian has.

    Example: xskit vm kernels list
    """
    from xskit.vm.errors import FetchError
    from xskit.vm.kernels import as_dict, available, cached

    here = cached()
    try:
        with _step() as say:
            offered = list(available(say, refresh=refresh).values())
    except FetchError as error:
        if refresh:
            raise
        offered = []
        print(f"xskit: {error.cause}", file=sys.stderr)
    if json:
        result = {
            "cached": [as_dict(kernel) for kernel in here],
            "available": [{"version": entry.version, "release": entry.release} for entry in offered],
        }
        print(json_module.dumps(result, indent=2))
        return
    releases = {kernel.release for kernel in here}
    names = {kernel.version for kernel in here}
    for kernel in here:
        print(f"{kernel.version:<12} {kernel.release:<28} here      {kernel.origin}")
    for entry in offered:
        if entry.release not in releases:
            state = "newer   " if entry.version in names else "        "
            print(f"{entry.version:<12} {entry.release:<28} {state}  {entry.megabytes:.0f} MB to fetch")


@kernels.command("fetch")
def fetch_kernel(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="such as 6.12", show_default=False)],
) -> None:
    """Fetch a kernel from Debian, newest release of its version, and what a guest needs besides: QEMU and busybox.

    Example: xskit vm kernels fetch 6.12
    """
    from xskit.netconf.signals import terminated_by_exception
    from xskit.vm import qemu
    from xskit.vm.devices import MODELS
    from xskit.vm.kernels import fetch

    with terminated_by_exception(), _step() as say:
        kernel = fetch(version, say)
        qemu.qemu(max(model.qemu for model in MODELS.values()), say)
        qemu.busybox(say)
    print(f"{kernel.version} {kernel.release}")


@kernels.command("add")
def add_kernel(
    image: Annotated[Path, typer.Argument(metavar="BZIMAGE", help="arch/x86/boot/bzImage", show_default=False)],
    modules: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where `make modules_install INSTALL_MOD_PATH=DIR` put them")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="by which --kernel finds it; else the file's name")
    ] = None,
) -> None:
    """Add a kernel of your own; what its modules lack must be built in: virtio PCI and console, 9p, overlayfs.

    Example: xskit vm kernels add arch/x86/boot/bzImage --name patched
    """
    from xskit.netconf.signals import terminated_by_exception
    from xskit.vm.kernels import add

    with terminated_by_exception():
        kernel = add(image, modules, name)
    print(f"{kernel.version} {kernel.release}")


def _writer(fd: int) -> Callable[[bytes], None]:
    """Writes all, at once: what a guest prints is to be seen when it prints it."""
    import os

    def write(content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]

    return write


def _say(line: str) -> None:
    print(f"xskit: {line}", file=sys.stderr, flush=True)


def _say_nothing(line: str) -> None:
    pass


@contextmanager
def _step() -> Iterator[Callable[[str], None]]:
    """A spinner on a terminal, that names the step at hand; lines elsewhere."""
    if not sys.stderr.isatty():
        yield _say
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
