"""The changes that xskit makes to a host, one file a kind."""

from xskit.netconf.changes.addresses import SetAddress
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.changes.files import TemporaryFile
from xskit.netconf.changes.hardware import AddFlowRule, SetChannels, SetRings
from xskit.netconf.changes.links import SetLinkUp, SetMtu, SetPromiscuous
from xskit.netconf.changes.namespaces import CreateNamespace
from xskit.netconf.changes.napi import SetNapi
from xskit.netconf.changes.neighbours import SetNeighbour
from xskit.netconf.changes.offloads import SetOffload
from xskit.netconf.changes.processes import StartedProcess
from xskit.netconf.changes.routes import AddRoute
from xskit.netconf.changes.sysctls import SetSysctl
from xskit.netconf.changes.veth import CreateVeth, VethEnd

__all__ = [
    "AddFlowRule",
    "AddRoute",
    "Change",
    "CreateNamespace",
    "CreateVeth",
    "Fate",
    "Restored",
    "SetAddress",
    "SetChannels",
    "SetLinkUp",
    "SetMtu",
    "SetNapi",
    "SetNeighbour",
    "SetOffload",
    "SetPromiscuous",
    "SetRings",
    "SetSysctl",
    "StartedProcess",
    "TemporaryFile",
    "VethEnd",
]
