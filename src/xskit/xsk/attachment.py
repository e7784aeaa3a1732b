"""The redirect program on an interface: native where the driver can, generic where not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from xskit.bpf.attach import BpfLink, XdpMode
from xskit.bpf.errors import AttachError
from xskit.bpf.redirect import Outcome, RedirectProgram
from xskit.xsk.opening import BindMode

__all__ = ["Attachment", "attach_best"]


@dataclass(slots=True)
class Attachment:
    """A program that is attached, until closed or until the process dies."""

    program: RedirectProgram
    link: BpfLink
    mode: XdpMode
    why: list[str]
    """Why native failed, where generic was got."""

    @classmethod
    def make(cls, ifindex: int, queues: int, mode: BindMode, *, drop_chatter: bool = False) -> Attachment:
        """Load the program for `queues` queues and attach it to an interface of the calling thread's namespace.

        Raises:
            AttachError, BpfError, PrivilegeError: as the bpf floor says; of two failures, the native one's.
        """
        with ExitStack() as undo:
            program = RedirectProgram.load(queues, drop_chatter=drop_chatter)
            undo.callback(program.close)
            link, got, why = attach_best(lambda where: program.attach(ifindex, where), mode)
            undo.pop_all()
        return cls(program, link, got, why)

    def outcomes(self) -> dict[Outcome, int]:
        """Packets by what became of them since it was attached."""
        return self.program.outcomes()

    def close(self) -> None:
        """Detach and unload; twice is fine."""
        self.link.close()
        self.program.close()


def attach_best(attach: Callable[[XdpMode], BpfLink], mode: BindMode) -> tuple[BpfLink, XdpMode, list[str]]:
    """Attach natively; generically where only that works or is asked for. The sentences say why not natively.

    Raises:
        AttachError: neither works; of two failures, the native one's.
    """
    if mode == "generic":
        return attach(XdpMode.GENERIC), XdpMode.GENERIC, []
    try:
        return attach(XdpMode.NATIVE), XdpMode.NATIVE, []
    except AttachError as native:
        if mode != "auto":
            raise
        try:
            return attach(XdpMode.GENERIC), XdpMode.GENERIC, [f"native: {native.cause}"]
        except AttachError:
            raise native from None
