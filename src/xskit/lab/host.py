"""A host: a network namespace with processes in it. This machine can be one too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from xskit.arguments import literal
from xskit.errors import UsageError
from xskit.netconf.changes import StartedProcess
from xskit.netconf.commands import expect_children, start
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import inside


class Host:
    """One end of links. Made by `Lab.host` and `Lab.machine`.

    Attributes:
        name: other hosts of the lab know it by this name.
        namespace: of the network namespace, for `ip netns exec`; None is the one in which the lab was made.
        addresses: one for each link, in order: IPv4, or IPv6 if the link has only that.
        addresses6: the IPv6 address on each link, in the same order; None if the link has none.
        interfaces: their names, in the same order.
    """

    def __init__(
        self,
        name: str,
        namespace: str | None,
        journal: Journal,
        names: Mapping[str, list[str]],
        lab: object = None,
    ) -> None:
        self._lab = lab  # lives as long as its hosts are used
        self.name = name
        self.namespace = namespace
        self.addresses: list[str] = []
        self.addresses6: list[str | None] = []
        self.interfaces: list[str] = []
        self._journal = journal
        expect_children(journal)
        self._names = names

    @property
    def address(self) -> str:
        """The address on its first link: IPv4, or IPv6 if the link has only that.

        Raises:
            UsageError: it has no link yet.
        """
        if not self.addresses:
            raise UsageError(f"host {self.name} has no address yet: it is on no link")
        return self.addresses[0]

    @property
    def address6(self) -> str:
        """Its IPv6 address on the first link that has one.

        Raises:
            UsageError: none of its links has IPv6.
        """
        for address in self.addresses6:
            if address is not None:
                return address
        raise UsageError(f"host {self.name} has no IPv6 address: none of its links has IPv6")

    def spawn(self, *argv: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a command on this host. It ends with the lab at the latest, even if a forked process started it.

        Args:
            argv: the command and its arguments; the names of the lab's hosts are in its /etc/hosts.
            options: as of subprocess.Popen.

        Raises:
            UsageError: there is no such command, it cannot be executed, or `argv` is something else than words.
        """
        change = StartedProcess(_words(argv), self.namespace, dict(self._names), options=options)
        start(self._journal, change)
        assert change.process is not None
        return change.process

    def run(
        self, *argv: str, input: Any = None, timeout: float | None = None, check: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a command on this host to its end, as subprocess.run.

        Raises:
            subprocess.TimeoutExpired: it took longer than `timeout` seconds, and was ended.
            subprocess.CalledProcessError: with `check`, it failed.
        """
        if options.pop("capture_output", False):
            options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.spawn(*argv, **options)
        with process:
            try:
                out, err = process.communicate(input, timeout=timeout)
            except BaseException:
                process.kill()
                process.wait()
                raise
        result = subprocess.CompletedProcess(list(argv), process.returncode, out, err)
        if check:
            result.check_returncode()
        return result

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is on this host in the block: sockets that it opens are the host's."""
        with inside(self.namespace):
            yield

    def __repr__(self) -> str:
        return f"<Host {self.name} {', '.join(self.addresses)}>"


def _words(argv: Sequence[Any]) -> list[str]:
    """The words of a command, paths and bytes among them as strings.

    Raises:
        UsageError: one is something else, or has a NUL byte.
    """
    words = []
    for word in argv:
        if isinstance(word, (list, tuple)):
            call = f"run({', '.join(map(literal, word))})"
            raise UsageError(
                "each word of a command must be an argument of its own, not all of them a list", remedy=call
            )
        if not isinstance(word, (str, bytes, os.PathLike)):
            raise UsageError(
                f"each word of a command must be a string, not {literal(word)}", remedy=f"run({str(word)!r})"
            )
        words.append(os.fsdecode(word))
        if "\0" in words[-1]:
            raise UsageError(f"a word of a command must not contain a NUL byte: {literal(words[-1])}")
    return words
