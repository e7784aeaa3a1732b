"""The changes that xskit makes to a host, one file a kind."""

from xskit.netconf.changes.addresses import SetAddress
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.changes.links import SetLinkUp, SetMtu
from xskit.netconf.changes.namespaces import CreateNamespace
from xskit.netconf.changes.offloads import SetOffload
from xskit.netconf.changes.veth import CreateVeth, VethEnd

__all__ = [
    "Change",
    "CreateNamespace",
    "CreateVeth",
    "Fate",
    "Restored",
    "SetAddress",
    "SetLinkUp",
    "SetMtu",
    "SetOffload",
    "VethEnd",
]
