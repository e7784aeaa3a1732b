"""Which interfaces can be ports, by link type, kind and driver: one table, with reasons.

A port is a bump in the wire. It must hand over every Ethernet frame that arrives, whatever its destination, and send
every frame, whatever its source. An interface that cannot is refused. An interface where that depends on what lies
behind it is accepted with a warning, and so is an unknown kind.

The first row that matches decides. Kinds are those of rtnetlink (IFLA_INFO_KIND, `ip -details link`), link types those
of linux/if_arp.h, drivers those of `ethtool -i`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from xskit.abi import netlink as nl
from xskit.netconf.interfaces import Interface

__all__ = ["LINK_TYPES", "PORT_KINDS", "Admission", "PortKind", "Ruling", "rule"]


class Admission(StrEnum):
    """Whether an interface can be a port."""

    TAKEN = "yes"
    WARNED = "with a warning"
    REFUSED = "no"


@dataclass(frozen=True)
class Option:
    """An attribute of the kind (IFLA_INFO_DATA) and the values that match, with ip(8)'s words for them."""

    number: int
    values: Mapping[int, str]

    def value(self, interface: Interface) -> str | None:
        """The word for the interface's value; None if the value does not match."""
        found = interface.options.get(self.number)
        return None if found is None else self.values.get(int.from_bytes(found, "little"))


@dataclass(frozen=True)
class PortKind:
    """A row of the table.

    Attributes:
        title: what it is: "a macvlan". {kind}, {value} and {driver} stand for the interface's kind, option and driver.
        admission: whether it can be a port.
        reason: why not, or what to heed: a clause that continues the title.
        kinds, drivers: any of them matches.
        option: must match as well.
        ethernet: must match as well: whether packets have Ethernet headers.
        alone: matches a wireless interface that carries only its own station's frames.
        instead: the command that helps. {ip} stands for ip(8) in the port's namespace, {run} for what starts another
            command there, {name} and {lower} for the interface and the one below it.
    """

    title: str
    admission: Admission
    reason: str = ""
    kinds: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    option: Option | None = None
    ethernet: bool | None = None
    alone: bool = False
    instead: str = ""

    def fits(self, interface: Interface, *, alone: bool = False) -> bool:
        """Whether the row is about this interface."""
        if interface.kind:
            named = interface.kind in self.kinds
        else:
            named = interface.driver in self.drivers or (self.alone and alone)
        return (
            named
            and (self.option is None or self.option.value(interface) is not None)
            and self.ethernet in (None, interface.link_type == nl.ARPHRD_ETHER)
        )


@dataclass(frozen=True)
class Ruling:
    """What holds for one interface: a clause such as "is a tun, whose packets ...", and the command that helps."""

    admission: Admission
    clause: str = ""
    remedy: str | None = None


def rule(interface: Interface, namespace: str | None = None, *, alone: bool = False) -> Ruling:
    """Whether an interface, in a named network namespace, can be a port.

    `alone` is the opposite of `Wireless.carries_others`.
    """
    ip = "ip" if namespace is None else f"ip -n {shlex.quote(namespace)}"
    run = "" if namespace is None else f"ip netns exec {shlex.quote(namespace)} "
    if interface.link_type == nl.ARPHRD_LOOPBACK:
        return Ruling(
            Admission.REFUSED, "is a loopback interface, which gives no packets to AF_XDP", VETH.format(ip=ip)
        )
    row = next((one for one in PORT_KINDS if one.fits(interface, alone=alone)), None)
    if interface.link_type != nl.ARPHRD_ETHER and (row is None or row.admission is not Admission.REFUSED):
        name = LINK_TYPES.get(interface.link_type, str(interface.link_type))
        return Ruling(
            Admission.REFUSED, f"has the link type {name!r}: its packets have no Ethernet header", VETH.format(ip=ip)
        )
    if row is None:
        return _unlisted(interface)
    value = row.option.value(interface) if row.option else ""
    title = row.title.format(kind=interface.kind, value=value, driver=interface.driver)
    instead = VETH if "{lower}" in row.instead and not interface.lower else row.instead
    words = {
        "ip": ip,
        "run": run,
        "kind": interface.kind,
        "name": shlex.quote(interface.name),
        "lower": shlex.quote(interface.lower),
    }
    return Ruling(row.admission, f"is {title}, {row.reason}" if row.reason else "", instead.format(**words) or None)


def _unlisted(interface: Interface) -> Ruling:
    """A kind that is not in the table, or hardware."""
    if interface.kind:
        return Ruling(
            Admission.WARNED,
            f"is of the kind {interface.kind!r}, which xskit does not know: check that packets from and to every MAC "
            f"address get through",
        )
    if not interface.arp:
        return Ruling(
            Admission.WARNED,
            "says that it needs no ARP (NOARP), as modems do: check that packets from and to every MAC address get "
            "through",
        )
    return Ruling(Admission.TAKEN)


VETH = "{ip} link add xk0 type veth peer name xk1"
"""A pair of Ethernet interfaces: one end is the port; the other end routes or bridges IP."""

_OWN_MAC = "which accepts only packets to its own MAC address, even in promiscuous mode"
_NO_TARGET = (
    "whose packets each need a destination set by a BPF program or a flow rule: those that AF_XDP sends have none and "
    "are dropped"
)
_PASSTHRU = "{ip} link del {name} && {ip} link add link {lower} name {name} type macvlan mode passthru"
_HELP = "ip link help {kind}"  # without "external" it has one destination for all packets
_EXTERNAL = {0: "external"}  # a flag
_WITHOUT_ETHERNET = (
    "amt", "bareudp", "caif", "can", "gre", "gtp", "ip6gre", "ip6tnl", "ipip", "ipoib", "lowpan", "nlmon", "ovpn",
    "pfcp", "ppp", "rmnet", "sit", "vcan", "vsockmon", "vti", "vti6", "vxcan", "wireguard", "wwan", "xfrm",
)  # fmt: skip

TAKEN, WARNED, REFUSED = Admission.TAKEN, Admission.WARNED, Admission.REFUSED

PORT_KINDS: tuple[PortKind, ...] = (
    # -- pairs and taps
    PortKind(
        "a netkit device in l3 mode",
        REFUSED,
        "which carries IP packets without Ethernet addresses",
        kinds=("netkit",),
        option=Option(nl.IFLA_NETKIT_MODE, {1: "l3"}),
        instead=VETH,
    ),
    PortKind("one end of a {kind} pair", TAKEN, kinds=("veth", "netkit")),
    PortKind("a tap", TAKEN, kinds=("tun",), ethernet=True),
    PortKind(
        "a tun",
        REFUSED,
        "whose packets have no Ethernet header",
        kinds=("tun",),
        instead="{ip} tuntap add xk0 mode tap",
    ),
    # -- on top of another interface
    PortKind(
        "a macvlan in {value} mode",
        REFUSED,
        _OWN_MAC,
        kinds=("macvlan",),
        option=Option(nl.IFLA_MACVLAN_MODE, {1: "private", 2: "vepa", 4: "bridge"}),
        instead=_PASSTHRU,
    ),
    PortKind(
        "a macvlan in source mode",
        REFUSED,
        "which accepts only packets from the MAC addresses on its list",
        kinds=("macvlan",),
        option=Option(nl.IFLA_MACVLAN_MODE, {16: "source"}),
        instead=_PASSTHRU,
    ),
    PortKind("a macvlan in passthru mode", TAKEN, kinds=("macvlan",)),
    PortKind(
        "a tap on another interface (of kind {kind})",
        REFUSED,
        "which connects the program that opened it with the interface below: a port there would cut the program off",
        kinds=("macvtap", "ipvtap"),
        instead="{ip} tuntap add xk0 mode tap",
    ),
    PortKind(
        "an ipvlan",
        REFUSED,
        "which accepts packets by IP address and sends them with the MAC address of the interface below",
        kinds=("ipvlan",),
        instead=VETH,
    ),
    PortKind("a VLAN", TAKEN, kinds=("vlan",)),
    PortKind("a MACsec interface", TAKEN, kinds=("macsec",)),
    # -- several interfaces as one
    PortKind(
        "a bridge",
        WARNED,
        "which also hands over copies of the packets that its own ports exchange",
        kinds=("bridge",),
    ),
    PortKind("an internal port of Open vSwitch", TAKEN, kinds=("openvswitch",)),
    PortKind(
        "a bond in {value} mode",
        WARNED,
        "which replaces the source MAC address of packets by that of one of its interfaces",
        kinds=("bond",),
        option=Option(nl.IFLA_BOND_MODE, {5: "balance-tlb", 6: "balance-alb"}),
    ),
    PortKind("a bond", TAKEN, kinds=("bond",)),
    PortKind("a team", TAKEN, kinds=("team",)),
    PortKind(
        "an HSR or PRP ring",
        WARNED,
        "which is made for one station: packets from other MAC addresses may be lost or duplicated",
        kinds=("hsr",),
    ),
    PortKind("a B.A.T.M.A.N. mesh", TAKEN, kinds=("batadv",)),
    PortKind("a port of a switch", TAKEN, kinds=("dsa",)),
    PortKind("a virtual wireless interface over Ethernet", TAKEN, kinds=("virt_wifi",)),
    # -- tunnels that carry Ethernet
    PortKind(
        "a tunnel of kind {kind} in external mode",
        REFUSED,
        _NO_TARGET,
        kinds=("vxlan",),
        option=Option(nl.IFLA_VXLAN_COLLECT_METADATA, {1: "external"}),
        instead=_HELP,
    ),
    PortKind(
        "a tunnel of kind {kind} in external mode",
        REFUSED,
        _NO_TARGET,
        kinds=("geneve",),
        option=Option(nl.IFLA_GENEVE_COLLECT_METADATA, _EXTERNAL),
        instead=_HELP,
    ),
    PortKind(
        "a tunnel of kind {kind} in external mode",
        REFUSED,
        _NO_TARGET,
        kinds=("gretap", "ip6gretap", "erspan", "ip6erspan"),
        option=Option(nl.IFLA_GRE_COLLECT_METADATA, _EXTERNAL),
        instead=_HELP,
    ),
    PortKind(
        "an ERSPAN tunnel",
        WARNED,
        "which is made for copies of packets in one direction: check that its far end sends packets back",
        kinds=("erspan", "ip6erspan"),
    ),
    PortKind("a tunnel of kind {kind}", TAKEN, kinds=("vxlan", "geneve", "gretap", "ip6gretap")),
    PortKind("a simulated NIC", TAKEN, kinds=("netdevsim",)),
    # -- Ethernet by name only
    PortKind("a dummy", REFUSED, "which gets no packets and drops what is sent to it", kinds=("dummy",), instead=VETH),
    PortKind("an ifb", REFUSED, "which accepts only packets that tc redirects to it", kinds=("ifb",), instead=VETH),
    PortKind("a VRF", REFUSED, "which routes IP packets and keeps no Ethernet header", kinds=("vrf",), instead=VETH),
    # -- tunnels and links without Ethernet
    PortKind(
        "a link of kind {kind}",
        REFUSED,
        "whose packets have no Ethernet header",
        kinds=_WITHOUT_ETHERNET,
        instead=VETH,
    ),
    # -- hardware, and by driver what filters behind it
    PortKind(
        "a wireless client",
        REFUSED,
        "whose frames carry only its own MAC address",
        alone=True,
        instead="{run}iw dev {name} set 4addr on",
    ),
    PortKind(
        "a Hyper-V adapter",
        WARNED,
        "whose switch drops packets from other MAC addresses until the host runs "
        "Set-VMNetworkAdapter -VMName NAME -MacAddressSpoofing On",
        drivers=("hv_netvsc",),
    ),
    PortKind(
        "a cloud adapter ({driver})",
        WARNED,
        "whose network drops packets from and to MAC addresses other than its own",
        drivers=("ena", "gve", "mana"),
    ),
    PortKind(
        "a VMware adapter",
        WARNED,
        "whose switch drops packets from and to other MAC addresses until its port group accepts promiscuous mode and "
        "forged transmits",
        drivers=("vmxnet3",),
    ),
    PortKind(
        "a virtual function ({driver})",
        WARNED,
        "whose NIC drops packets from and to other MAC addresses until the host runs "
        "ip link set PF vf N trust on spoofchk off",
        drivers=("iavf", "i40evf", "ixgbevf", "igbvf", "fm10kvf", "hinic_vf"),
    ),
    PortKind(
        "a mobile modem ({driver})",
        WARNED,
        "whose network accepts only IP packets from the address that it assigned",
        drivers=("qmi_wwan", "cdc_mbim", "huawei_cdc_ncm", "sierra_net", "hso"),
    ),
    PortKind(
        "a mainframe adapter ({driver})",
        WARNED,
        "which gets packets to other MAC addresses only if its bridge_role is set (in sysfs)",
        drivers=("qeth", "qeth_l3"),
    ),
)
"""The kinds of Linux (rtnl_link_ops, 6.18), and drivers of hardware behind which packets are filtered."""

LINK_TYPES: Mapping[int, str] = {
    0: "NET/ROM", 2: "experimental Ethernet", 3: "AX.25", 4: "PROnet token ring", 5: "Chaosnet", 6: "IEEE 802",
    7: "ARCnet", 8: "AppleTalk", 15: "frame relay", 19: "ATM", 23: "Metricom STRIP", 24: "FireWire", 27: "EUI-64",
    32: "InfiniBand", 256: "SLIP", 257: "CSLIP", 258: "SLIP6", 259: "CSLIP6", 260: "KISS", 264: "ADAPT", 270: "ROSE",
    271: "X.25", 272: "X.25", 280: "CAN", 290: "MCTP", 512: "PPP", 513: "HDLC", 516: "LAPB", 517: "DDCMP",
    518: "raw HDLC", 519: "raw IP", 768: "IP in IP", 769: "IPv6 tunnel", 770: "frame relay", 771: "SKIP",
    772: "loopback", 773: "LocalTalk", 774: "FDDI", 775: "AP1000", 776: "IPv6 in IPv4", 777: "IP over DDP",
    778: "GRE", 779: "PIM", 780: "HIPPI", 781: "Nexus", 782: "Econet", 783: "IrDA", 784: "Fibre Channel",
    785: "Fibre Channel", 786: "Fibre Channel", 787: "Fibre Channel", 800: "token ring", 801: "IEEE 802.11",
    802: "IEEE 802.11 with Prism headers", 803: "IEEE 802.11 with radiotap headers", 804: "IEEE 802.15.4",
    805: "IEEE 802.15.4 monitor", 820: "Phonet", 821: "Phonet pipe", 822: "CAIF", 823: "GRE over IPv6",
    824: "netlink", 825: "6LoWPAN", 826: "vsock monitor", 0xFFFE: "none", 0xFFFF: "void",
}  # fmt: skip
"""ARPHRD_* other than Ethernet (linux/if_arp.h). None has an Ethernet header, so none can be a port."""
