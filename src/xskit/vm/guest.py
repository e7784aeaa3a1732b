"""One guest and its one command: started, listened to, ended; nothing of it outlives this process.

xskit                                    guest
control  <--- ready, started, exit N --- second.sh
         ---- the command ------------->
ask      <--> nic unplug 1 / ok -------- xskit-vm
stdout, stderr <------------------------ the command
"""

from __future__ import annotations

import os
import secrets
import selectors
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from xskit.closing import Closing
from xskit.vm.children import dying_with_us
from xskit.vm.errors import GuestError, QemuAbortedError, TimeLimitError
from xskit.vm.hardware import CHANNELS, GuestHardware, command_line, nic_arguments
from xskit.vm.kernels import Kernel
from xskit.vm.qemu import Qemu
from xskit.vm.qmp import QmpClient

__all__ = ["BOOT_LIMIT_S", "Command", "CompletedCommand", "Guest"]

Sink = Callable[[bytes], None]

BOOT_LIMIT_S = 120.0
_CONSOLE_BYTES = 64 << 10
_NO_HOST_NETWORK = "is not connected to host network"  # QEMU warns of each hub, and it is meant so
_OUT = "/run/xskit-vm/out"


@dataclass(frozen=True)
class Command:
    """What a guest is to do.

    Attributes:
        argv: the command; no shell.
        cwd: where it runs: a folder of this machine.
        environment: all that it finds, besides XSKIT_OUT and a PATH that has xskit-vm in front.
    """

    argv: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def script(self, token: str) -> bytes:
        """As the guest is told it: the token that is to end the streams, and a script up to a line that ends it.

        Words and variables need not be text: what Python has read from the system goes back as it was.
        """
        variables = {**self.environment, "XSKIT_OUT": _OUT}
        variables["PATH"] = f"/run/xskit-vm/bin:{variables.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
        lines = [token]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        lines += [f"cd {shlex.quote(str(self.cwd))} || exit 125", f"exec {shlex.join(self.argv)}", "#xskit-end"]
        return os.fsencode("\n".join(lines) + "\n")


@dataclass(frozen=True)
class CompletedCommand:
    """How it went.

    Attributes:
        exit_code: of the command; 128 + N when a signal N ended it.
        release: of the kernel it ran on.
        boot_s: from the start of QEMU to the start of the command.
        elapsed_s: from the start of QEMU to the end of the command.
    """

    exit_code: int
    release: str
    boot_s: float
    elapsed_s: float


class Guest(Closing):
    """A running QEMU; a context manager that ends it.

    Args:
        qemu: to run.
        kernel: to boot.
        initramfs: that goes with it.
        hardware: of the guest.
        out: folder that the command finds as $XSKIT_OUT.
        kvm: run on the host's own CPUs.
        append: further words for the kernel.
        console: told everything that the guest's console says, besides what an error quotes.
        taps: as of `command_line`.
    """

    def __init__(
        self,
        qemu: Qemu,
        kernel: Kernel,
        initramfs: Path,
        hardware: GuestHardware,
        *,
        out: Path,
        kvm: bool = False,
        append: Sequence[str] = (),
        console: Sink | None = None,
        taps: Sequence[Sequence[int]] = (),
    ) -> None:
        self.hardware = hardware
        self._watched = _watched(kernel, hardware, kvm=kvm)
        self._console_sink = console
        self._console = b""
        self._stack = ExitStack()
        self._started = time.monotonic()
        self.ready: tuple[str, ...] | None = None
        """Release and CPUs, as the guest tells them when it is up."""
        self._streams: dict[str, _Stream] = {}
        self._lines: dict[str, bytes] = {"control": b"", "ask": b""}
        self._exit_code: int | None = None
        self._failure: str | None = None
        self._command_started: float | None = None
        with ExitStack() as stack:
            theirs: dict[str, socket.socket] = {}
            self._ours: dict[str, socket.socket] = {}
            for name in (*CHANNELS, "console", "monitor"):
                ours, other = socket.socketpair()
                self._ours[name] = stack.enter_context(ours)
                theirs[name] = other
            line = command_line(
                qemu,
                hardware,
                kernel=kernel.image,
                initramfs=initramfs,
                out=out,
                channels={name: other.fileno() for name, other in theirs.items()},
                kvm=kvm,
                append=append,
                taps=taps,
            )
            try:
                self._process = subprocess.Popen(
                    line,
                    env={**os.environ, **qemu.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=[other.fileno() for other in theirs.values()] + [fd for tap in taps for fd in tap],
                    start_new_session=True,  # the terminal's Ctrl-C is for us to deal with
                    preexec_fn=dying_with_us(),
                )
            finally:
                for other in theirs.values():
                    other.close()
            assert self._process.stderr is not None
            stack.enter_context(self._process.stderr)
            stack.callback(self._end)
            self._qmp = QmpClient(self._ours["monitor"])
            self._stack = stack.pop_all()
        self._asked: threading.Thread | None = None

    # -- what the caller does --------------------------------------------------------------------------------------

    def wait_ready(self, limit_s: float = BOOT_LIMIT_S) -> None:
        """Return when the guest is up.

        Raises:
            GuestError: it is not, within the limit.
        """
        self._listen(lambda: self.ready is not None, self._started + limit_s)
        if self.ready is None:
            raise self._dead(f"the guest did not come up within {limit_s:.0f} s")

    def run(
        self, command: Command, *, stdout: Sink, stderr: Sink, time_limit_s: float | None = None
    ) -> CompletedCommand:
        """Run the command to its end, and stream what it prints.

        Raises:
            TimeLimitError: it had not ended within the limit, counted from when it could start.
            GuestError: the guest did not come up, or died.
        """
        token = f"\0xskit-{secrets.token_hex(16)}"
        self._streams = {"stdout": _Stream(stdout, token.encode()), "stderr": _Stream(stderr, token.encode())}
        self.wait_ready()
        assert self.ready is not None
        self._ours["control"].sendall(command.script(token[1:]))
        self._listen(self._complete, float("inf") if time_limit_s is None else time.monotonic() + time_limit_s)
        if not self._complete():
            raise TimeLimitError(f"the time limit of {time_limit_s:g} s is over")
        assert self._exit_code is not None
        assert self._command_started is not None
        return CompletedCommand(
            exit_code=self._exit_code,
            release=self.ready[0],
            boot_s=self._command_started - self._started,
            elapsed_s=time.monotonic() - self._started,
        )

    def close(self) -> None:
        """End the guest at once; twice is fine."""
        self._stack.close()
        if self._asked is not None:
            self._asked.join()

    # -- listening -------------------------------------------------------------------------------------------------

    def _complete(self) -> bool:
        return self._exit_code is not None and all(stream.complete for stream in self._streams.values())

    def _listen(self, done: Callable[[], bool], deadline: float) -> None:
        """Take in what comes until `done`, or until the deadline has passed.

        Raises:
            GuestError: QEMU has ended, or the guest says that it cannot go on.
        """
        names = [name for name in self._ours if name != "monitor"]
        with selectors.DefaultSelector() as selector:
            for name in names:
                selector.register(self._ours[name], selectors.EVENT_READ, name)
            while not done():
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                for key, _ in selector.select(min(left, 3600.0)):
                    content = _receive(self._ours[key.data])
                    if content:
                        self._take(key.data, content)
                    else:
                        selector.unregister(key.fileobj)
                if self._failure is not None:
                    raise self._dead(f"the guest cannot go on: {self._failure}")
                if not done() and not selector.get_map():
                    raise self._dead("the guest has died")

    def _take(self, name: str, content: bytes) -> None:
        if name == "console":
            self._console = (self._console + content)[-_CONSOLE_BYTES:]
            if self._console_sink is not None:
                self._console_sink(content)
        elif name in self._streams:
            self._streams[name].take(content)
        elif name in self._lines:
            *lines, self._lines[name] = (self._lines[name] + content).split(b"\n")
            for line in lines:
                self._told(name, line.decode(errors="replace").strip())

    def _told(self, name: str, line: str) -> None:
        word, _, rest = line.partition(" ")
        if name == "ask":
            self._asked = threading.Thread(target=self._answer, args=(line,), name="xskit-guest-asks", daemon=True)
            self._asked.start()
        elif word == "ready":
            self.ready = tuple(rest.split())
        elif word == "started":
            self._command_started = time.monotonic()
        elif word == "exit":
            self._exit_code = int(rest)
        elif word == "failed":
            self._failure = rest

    # -- what the command asks for ---------------------------------------------------------------------------------

    def _answer(self, line: str) -> None:
        """In a thread: unplugging takes the guest's driver a while, and what it prints is to be heard meanwhile."""
        try:
            answer = f"ok {self._obey(line)}"
        except GuestError as error:
            answer = f"no {error.cause}"
        with suppress(OSError):
            self._ours["ask"].sendall(answer.strip().encode() + b"\n")

    def _obey(self, line: str) -> str:
        match line.split():
            case ["nic", action, number] if number.isdigit() and int(number) < self.hardware.nics:
                device = f"nic{number}"
                match action:
                    case "unplug":
                        self._qmp.unplug(device)
                    case "plug":
                        self._qmp.plug(nic_arguments(self.hardware, int(number)))
                    case "up" | "down":
                        self._qmp.set_link(device, up=action == "up")
                    case _:
                        raise GuestError(f"a NIC cannot be told {action!r}: unplug, plug, up, down")
                return ""
            case _:
                raise GuestError(
                    f"{line!r} is not understood: nic unplug N, nic plug N, nic up N or nic down N, "
                    f"N from 0 to {self.hardware.nics - 1}"
                )

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def _dead(self, cause: str) -> GuestError:
        """The error, with the last words of the console and of QEMU; and how to see more of a boot that failed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)  # its sockets are closed a little before it is gone
        code = self._process.poll()
        aborted = code in (-signal.SIGABRT, -signal.SIGSEGV)
        if code is not None and code < 0:
            cause += f": QEMU was ended by {signal.Signals(-code).name}"
        self._end()
        while content := _receive(self._ours["console"]):
            self._take("console", content)
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode(errors="replace")
        console = self._console.decode(errors="replace").replace("\r", "")
        told = [line for line in words.splitlines() if _NO_HOST_NETWORK not in line]
        last = [line for line in [*console.splitlines()[-15:], *told[-5:]] if line.strip()]
        kind = QemuAbortedError if aborted else GuestError
        remedy = self._watched if self.ready is None else None
        return kind("\n  | ".join([cause if last else f"{cause}, without a word", *last]), remedy=remedy)


class _Stream:
    """One stream of the command, up to the token that ends it."""

    def __init__(self, sink: Sink, token: bytes) -> None:
        self._sink = sink
        self._token = token[1:]
        self._held = b""
        self.complete = False

    def take(self, content: bytes) -> None:
        """Pass on what cannot be the beginning of the token."""
        content = self._held + content
        if content.endswith(self._token):
            self.complete = True
            content, self._held = content[: -len(self._token)], b""
        else:
            keep = next(
                (n for n in range(min(len(self._token), len(content)), 0, -1) if self._token.startswith(content[-n:])),
                0,
            )
            content, self._held = content[: len(content) - keep], content[len(content) - keep :]
        if content:
            self._sink(content)


def _watched(kernel: Kernel, hardware: GuestHardware, *, kvm: bool) -> str:
    """The command that shows how far such a guest comes; emulated, since KVM may be what it fails under."""
    words = ["xskit", "vm", "run", "--console", *(["--accel", "tcg"] if kvm else []), "--kernel", kernel.version]
    return shlex.join([*words, "--nic", hardware.model.name, "--", "true"])


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""
