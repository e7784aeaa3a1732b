"""Every refusal to attach, as the exact sentence that the user reads."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from xskit.bpf.attach_errors import Circumstances, attach_error
from xskit.bpf.errors import AttachError
from xskit.bpf.occupants import Occupant
from xskit.errors import PrivilegeError

VETH = Circumstances("redirect", "va", 7, "native", kind="veth", mtu_bytes=1500)
NIC = Circumstances("redirect", "eth1", 3, "native", mtu_bytes=1500)
OTHER = Occupant("native", 12, "foo")


@pytest.mark.parametrize(
    ("number", "circumstances", "cause", "remedy"),
    [
        (
            errno.EBUSY,
            replace(VETH, words="Can't replace active XDP program with BPF link", occupants=(OTHER,)),
            'cannot attach program "redirect" to va (native): EBUSY: another XDP program (id 12, name foo, native) '
            'is attached to va (the kernel: "Can\'t replace active XDP program with BPF link")',
            "ip link set dev va xdpdrv off",
        ),
        (
            errno.EBUSY,
            replace(
                VETH,
                words="Can't replace active BPF XDP link",
                occupants=(replace(OTHER, link_id=5, holders=((41, "xdp-bench"), (42, "helper"))),),
            ),
            'cannot attach program "redirect" to va (native): EBUSY: another XDP program (id 12, name foo, native) '
            "is attached to va, held there by process 41 (xdp-bench) and process 42 (helper) "
            '(the kernel: "Can\'t replace active BPF XDP link")',
            "kill 41 42",
        ),
        (
            errno.EBUSY,
            replace(VETH, occupants=(replace(OTHER, link_id=5, holders=((1, "this process"),)),)),
            'cannot attach program "redirect" to va (native): EBUSY: another XDP program (id 12, name foo, native) '
            "is attached to va, held there by this process itself",
            "close the link of that program first",
        ),
        (
            errno.EBUSY,
            replace(VETH, occupants=(Occupant("native", 12, None, link_id=5),)),
            'cannot attach program "redirect" to va (native): EBUSY: another XDP program (id 12, native) '
            "is attached to va",
            "bpftool link detach id 5",
        ),
        (
            errno.EEXIST,
            replace(
                VETH,
                words="Native and generic XDP can't be active at the same time",
                occupants=(Occupant("generic", 12, "foo"),),
            ),
            'cannot attach program "redirect" to va (native): EEXIST: another XDP program (id 12, name foo, generic) '
            "is attached to va, and native and generic XDP exclude each other "
            '(the kernel: "Native and generic XDP can\'t be active at the same time")',
            "ip link set dev va xdpgeneric off",
        ),
        (
            errno.EEXIST,
            replace(NIC, words="Cannot attach when an upper device already has a program"),
            'cannot attach program "redirect" to eth1 (native): EEXIST: the bond or team above eth1 already has an '
            'XDP program (the kernel: "Cannot attach when an upper device already has a program")',
            "attach to that device instead",
        ),
        (
            errno.EBUSY,
            NIC,
            'cannot attach program "redirect" to eth1 (native): EBUSY: another XDP program was attached, '
            "and is gone by now",
            "try again",
        ),
        (
            errno.ERANGE,
            replace(VETH, words="Peer MTU is too large to set XDP", peer="vb"),
            'cannot attach program "redirect" to va (native): ERANGE: the MTU of vb is above the 3506 bytes that fit '
            "into one page, and the program does not take multi-buffer packets "
            '(the kernel: "Peer MTU is too large to set XDP")',
            "ip link set dev vb mtu 3506, or load the program with frags",
        ),
        (
            errno.ERANGE,
            VETH,
            'cannot attach program "redirect" to va (native): ERANGE: the MTU of the peer of va is above the 3506 '
            "bytes that fit into one page, and the program does not take multi-buffer packets",
            "ip link set dev <the peer> mtu 3506, or load the program with frags",
        ),
        (
            errno.ENOSPC,
            replace(VETH, words="XDP expects number of rx queues not less than peer tx queues"),
            'cannot attach program "redirect" to va (native): ENOSPC: the peer of va has more TX queues than va '
            'has RX queues (the kernel: "XDP expects number of rx queues not less than peer tx queues")',
            "ethtool -L <the peer> tx 1",
        ),
        (
            errno.ENOTCONN,
            VETH,
            'cannot attach program "redirect" to va (native): ENOTCONN: the peer of va is gone',
            "ip link del va, and make the pair anew",
        ),
        (
            errno.ENOMEM,
            replace(NIC, words="Not enough Tx resources for XDP"),
            'cannot attach program "redirect" to eth1 (native): ENOMEM: the driver has too few queues left for XDP, '
            'or the kernel no memory (the kernel: "Not enough Tx resources for XDP")',
            "ethtool -L eth1 combined <half of what ethtool -l shows>",
        ),
        (
            errno.EOPNOTSUPP,
            replace(NIC, words="Can't set XDP while host is implementing GRO_HW/CSUM, disable GRO_HW/CSUM first"),
            'cannot attach program "redirect" to eth1 (native): EOPNOTSUPP: receive offloads are on that merge packets '
            '(the kernel: "Can\'t set XDP while host is implementing GRO_HW/CSUM, disable GRO_HW/CSUM first")',
            "ethtool -K eth1 lro off rx-gro-hw off",
        ),
        (
            errno.EOPNOTSUPP,
            replace(NIC, words="Underlying driver does not support XDP in native mode"),
            'cannot attach program "redirect" to eth1 (native): EOPNOTSUPP: the driver of eth1 has no native XDP, '
            "or not with the present settings "
            '(the kernel: "Underlying driver does not support XDP in native mode")',
            "mode='generic'",
        ),
        (
            errno.EINVAL,
            replace(NIC, mtu_bytes=9000, words="MTU too large for linear frames and XDP prog does not support frags"),
            'cannot attach program "redirect" to eth1 (native): EINVAL: the driver refuses, most likely because of the '
            "MTU of 9000 bytes "
            '(the kernel: "MTU too large for linear frames and XDP prog does not support frags")',
            "ip link set dev eth1 mtu 1500, or mode='generic'",
        ),
        (
            errno.EINVAL,
            replace(NIC, words="No free group of queues"),
            'cannot attach program "redirect" to eth1 (native): EINVAL: the driver refuses its present settings, '
            'and does not say which (the kernel: "No free group of queues")',
            "mode='generic'",
        ),
        (
            errno.EINVAL,
            NIC,
            'cannot attach program "redirect" to eth1 (native): EINVAL: the driver refuses its present settings, '
            "and does not say which",
            "mode='generic'",
        ),
        (
            errno.EINVAL,
            replace(NIC, mode="tcx egress"),
            'cannot attach program "redirect" to eth1 (tcx egress): EINVAL: this kernel has no tcx '
            "(it came with Linux 6.6)",
            "boot Linux 6.6 or later",
        ),
        (
            errno.ENETDOWN,
            NIC,
            'cannot attach program "redirect" to eth1 (native): ENETDOWN: eth1 is down, and this driver wants it up',
            "ip link set dev eth1 up",
        ),
        (
            errno.EIO,
            NIC,
            'cannot attach program "redirect" to eth1 (native): EIO: the kernel gives no reason',
            "mode='generic'",
        ),
        (
            errno.EIO,
            replace(NIC, mode="generic"),
            'cannot attach program "redirect" to eth1 (generic): EIO: the kernel gives no reason',
            None,
        ),
        (
            errno.EINVAL,
            replace(NIC, interface=None),
            "there is no interface with index 3 in this network namespace",
            "ip link show",
        ),
    ],
)
def test_each_refusal_has_its_sentence_and_its_remedy(number, circumstances, cause, remedy):
    error = attach_error(number, circumstances)
    assert isinstance(error, AttachError)
    assert (error.cause, error.remedy) == (cause, remedy)
    assert error.errno == number
    if circumstances.interface is not None:
        assert error.words == circumstances.words


def test_without_rights():
    error = attach_error(errno.EPERM, NIC)
    assert isinstance(error, PrivilegeError)
    assert error.cause.startswith('attaching program "redirect" needs CAP_BPF and CAP_NET_ADMIN')
