"""Hosts in network namespaces of this machine, joined by emulated links; everything is taken back at the end."""

from xskit.lab.host import Host
from xskit.lab.lab import Lab, LabLink

__all__ = ["Host", "Lab", "LabLink"]
