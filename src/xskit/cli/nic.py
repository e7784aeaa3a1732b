"""The NIC models that guests may have, as every command with a guest takes them (vm/devices.py makes them)."""

from __future__ import annotations

from typing import Literal

__all__ = ["USUAL_NIC", "Nic"]

Nic = Literal["virtio-net", "igb", "e1000e", "vmxnet3"]
USUAL_NIC: Nic = "virtio-net"
