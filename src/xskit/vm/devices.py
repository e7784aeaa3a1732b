"""The NIC models of a guest, as data: what QEMU calls them, and how they take their queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xskit.errors import UsageError

__all__ = ["MODELS", "NicModel", "model"]


@dataclass(frozen=True)
class NicModel:
    """One model.

    Attributes:
        name: as the user writes it.
        device: QEMU's name of it.
        driver: the guest's module.
        qemu: the first major version of QEMU that has it.
        options: always given, in the types that QEMU has for them.
        backend_queues: several queues need a backend that has as many (a multi-queue tap); else the device itself
            spreads one stream of packets, and the guest chooses how many queues it uses.
        max_queues: of the device.
        at_once: options by which it does its work when the guest asks for it, in the guest's own time: what happens in
            a guest whose clock counts instructions is then the same every time.
    """

    name: str
    device: str
    driver: str
    qemu: int = 6
    options: Mapping[str, str | bool] = field(default_factory=dict)
    backend_queues: bool = False
    max_queues: int = 1
    at_once: Mapping[str, str | int | bool] = field(default_factory=dict)


MODELS = {
    found.name: found
    for found in (
        # The driver maps the UMEM for DMA only when the device is behind an IOMMU in name.
        NicModel(
            "virtio-net",
            "virtio-net-pci",
            "virtio_net",
            options={"iommu_platform": True, "disable-legacy": "on"},
            backend_queues=True,
            max_queues=16,
            at_once={
                "ioeventfd": False,
                "tx": "timer",
                "x-txtimer": 50_000,
            },  # ns; else a thread of QEMU does it, some time
        ),
        NicModel("igb", "igb", "igb", qemu=8, max_queues=8),
        NicModel("e1000e", "e1000e", "e1000e"),
        NicModel("vmxnet3", "vmxnet3", "vmxnet3", max_queues=8),
    )
}


def model(name: str) -> NicModel:
    """A model by name.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in MODELS:
        raise UsageError(f"there is no NIC model {name!r}: there are {', '.join(MODELS)}")
    return MODELS[name]
