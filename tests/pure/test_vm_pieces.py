"""The pieces of a guest that need none: archive, modules, command line, the ends of streams, the words of apt."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.cli.nic import Nic
from xskit.errors import UsageError
from xskit.vm import cpio
from xskit.vm.apt import Package, Suite, _parse_show, explain_apt
from xskit.vm.devices import MODELS, model
from xskit.vm.guest import Command, _Stream
from xskit.vm.hardware import CHANNELS, GuestHardware, command_line, nic_arguments
from xskit.vm.kernels import newest
from xskit.vm.modules import aliases, dependencies, index, load_order
from xskit.vm.qemu import Qemu, read_version

# --- cpio ---------------------------------------------------------------------------------------------------------


def _read_archive(data: bytes) -> list[tuple[str, int, bytes]]:
    """A second reader of newc, by its description: 110 bytes of header, name and content each padded to four."""
    found, offset = [], 0
    while True:
        assert data[offset : offset + 6] == b"070701"
        fields = [int(data[offset + 6 + 8 * n : offset + 14 + 8 * n], 16) for n in range(13)]
        size, name_size = fields[6], fields[11]
        name = data[offset + 110 : offset + 110 + name_size - 1].decode()
        start = (offset + 110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert start == len(data)
            return found
        found.append((name, fields[1], data[start : start + size]))
        offset = (start + size + 3) // 4 * 4


@given(st.lists(st.tuples(st.text("abc/", min_size=1, max_size=9), st.binary(max_size=9)), max_size=5))
def test_an_archive_reads_back_whatever_the_lengths(files: list[tuple[str, bytes]]) -> None:
    data = cpio.archive(cpio.file(name, content) for name, content in files)
    assert [(name, content) for name, _, content in _read_archive(data)] == files


def test_an_archive_tells_kinds_and_modes() -> None:
    data = cpio.archive(
        [
            cpio.folder("bin"),
            cpio.file("bin/sh", b"x", executable=True),
            cpio.file("a", b""),
            cpio.link("init", "bin/sh"),
        ]
    )
    assert _read_archive(data) == [
        ("bin", stat.S_IFDIR | 0o755, b""),
        ("bin/sh", stat.S_IFREG | 0o755, b"x"),
        ("a", stat.S_IFREG | 0o644, b""),
        ("init", stat.S_IFLNK | 0o777, b"bin/sh"),
    ]


# --- modules ------------------------------------------------------------------------------------------------------


def _module(depends: str, *names: str) -> bytes:
    words = [b"license=GPL", *(f"alias={name}".encode() for name in names), f"depends={depends}".encode(), b"name=x"]
    return b"\x7fELF\0" + b"\0".join(words) + b"\0rest"


def test_a_module_says_what_it_needs_and_how_it_is_asked_for() -> None:
    module = _module("net-failover,failover", "rtnl-link-veth", "pci:v00001AF4d*", "devname:vfio")
    assert dependencies(module) == ["net_failover", "failover"]
    assert aliases(module) == ["rtnl_link_veth"]
    assert dependencies(_module("")) == []
    assert dependencies(b"\x7fELF no such section") == []


def test_modules_are_loaded_after_what_they_need_each_once_and_built_in_ones_not_at_all() -> None:
    needs = {"a": ["b", "c"], "b": ["d", "builtin"], "c": ["d"], "d": [], "loop": ["pool"], "pool": ["loop"]}
    files = {name: Path(name) for name in needs}
    assert load_order(["c", "a", "absent"], files, needs.__getitem__) == ["d", "c", "b", "a"]
    assert sorted(load_order(["loop"], files, needs.__getitem__)) == ["loop", "pool"]


def test_modules_are_found_by_the_name_the_kernel_uses(tmp_path: Path) -> None:
    for name in ("net/9p/9pnet_virtio.ko.xz", "drivers/i2c/i2c-algo-bit.ko", "drivers/x.ko.zst", "drivers/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {name: path.name for name, path in index(tmp_path).items()} == {
        "9pnet_virtio": "9pnet_virtio.ko.xz",
        "i2c_algo_bit": "i2c-algo-bit.ko",
        "x": "x.ko.zst",
    }


# --- Debian's kernels ---------------------------------------------------------------------------------------------

_NAMES = [
    "linux-image-5.10.0-9-amd64",
    "linux-image-5.10.0-46-amd64",
    "linux-image-5.10.0-46-cloud-amd64",
    "linux-image-5.10.0-46-rt-amd64",
    "linux-image-6.1-amd64",
    "linux-image-6.1.0-57-amd64",
    "linux-image-6.12.94+deb12-amd64",
    "linux-image-6.12.117+deb12-amd64",
    "linux-image-6.12.117+deb12-cloud-amd64",
    "linux-image-6.19.14+deb13-amd64",
    "linux-binary-6.19.14+deb13-amd64",
    "linux-image-7.3.4+deb13-amd64",
    "linux-binary-7.3.4+deb13-amd64",
    "linux-modules-7.3.4+deb13-amd64",
    "linux-image-7.3.4+deb13-amd64-unsigned",
]


def test_of_each_version_the_newest_release_is_offered_with_all_its_packages() -> None:
    offered = newest([Package(name, "1", 10.0) for name in _NAMES])
    assert list(offered) == ["5.10", "6.1", "6.12", "6.19", "7.3"]
    assert {version: entry.release for version, entry in offered.items()} == {
        "5.10": "5.10.0-46-amd64",
        "6.1": "6.1.0-57-amd64",
        "6.12": "6.12.117+deb12-amd64",
        "6.19": "6.19.14+deb13-amd64",
        "7.3": "7.3.4+deb13-amd64",
    }
    assert offered["6.12"].packages == ("linux-image-6.12.117+deb12-amd64",)
    assert offered["6.19"].packages == ("linux-binary-6.19.14+deb13-amd64",)
    assert offered["7.3"].packages == ("linux-binary-7.3.4+deb13-amd64", "linux-modules-7.3.4+deb13-amd64")
    assert offered["7.3"].megabytes == 20.0


def test_what_apt_cache_shows_is_read_stanza_by_stanza() -> None:
    text = "Package: a\nVersion: 1:2-3\nSize: 2500000\nDescription: x\n y\n\nPackage: b\nVersion: 4\n\n"
    assert _parse_show(text) == [Package("a", "1:2-3", 2.5), Package("b", "4", 0.0)]


def test_security_suites_have_a_mirror_of_their_own() -> None:
    assert Suite("bookworm-security").line.endswith("/debian-security bookworm-security main")
    assert Suite("bookworm-backports").line.endswith("/debian bookworm-backports main")
    assert "signed-by=" in Suite("bookworm").line


@pytest.mark.parametrize(
    ("output", "cause", "remedy"),
    [
        ("Err:1 x\nE: Failed to fetch x  Could not resolve 'deb.debian.org'", "cannot be reached", "kernels add"),
        ("W: GPG error: NO_PUBKEY 0E98404D386FA1D9\nE: not signed", "does not verify", "debian-archive-keyring"),
        ("E: Write error - write (28: No space left on device)", "could not write", "XSKIT_CACHE"),
        ("Reading...\nE: Unable to locate package x", "Unable to locate package x", None),
        ("", "no reason given", None),
    ],
)
def test_a_failed_apt_is_explained(output: str, cause: str, remedy: str | None) -> None:
    error = explain_apt(output)
    assert cause in error.cause
    assert remedy is None if error.remedy is None else remedy is not None and remedy in error.remedy


# --- QEMU ---------------------------------------------------------------------------------------------------------


def test_qemu_says_its_version() -> None:
    assert read_version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)") == (10, 0)
    assert read_version("QEMU emulator version 7.2.22") == (7, 2)
    assert read_version("error while loading shared libraries") is None


def _line(hardware: GuestHardware, **more: object) -> list[str]:
    names = (*CHANNELS, "console", "monitor")
    arguments = {"channels": {name: 10 + n for n, name in enumerate(names)}, **more}
    return command_line(
        Qemu(("qemu", "-L", "share"), (10, 0)),
        hardware,
        kernel=Path("/k/vmlinuz"),
        initramfs=Path("/k/i.cpio"),
        out=Path("/c,d"),
        **arguments,  # type: ignore[arg-type]
    )


def _options(line: list[str], name: str) -> list[str]:
    return [line[place + 1] for place, word in enumerate(line) if word == name]


def test_nics_stand_behind_ports_of_their_own_and_two_share_a_hub() -> None:
    line = _line(GuestHardware(nics=4, model=model("igb"), cpus=3, memory_bytes=512 << 20))
    assert line[:3] == ["qemu", "-L", "share"]
    assert _options(line, "-netdev") == [f"hubport,id=net{n},hubid={n // 2}" for n in range(4)]
    devices = _options(line, "-device")
    assert [entry for entry in devices if entry.startswith("igb")] == [
        f"igb,id=nic{n},netdev=net{n},bus=port{n},mac=52:54:00:00:00:0{n + 1},romfile=" for n in range(4)
    ]
    assert sum(entry.startswith("pcie-root-port") for entry in devices) == 4
    assert _options(line, "-smp") == ["3"]
    assert _options(line, "-m") == ["512M"]


def test_virtio_net_is_where_its_driver_does_zero_copy_and_has_a_vector_for_each_ring() -> None:
    nic = next(entry for entry in _options(_line(GuestHardware()), "-device") if entry.startswith("virtio-net"))
    assert "iommu_platform=on,disable-legacy=on" in nic
    assert "mq=" not in nic
    line = _line(GuestHardware(queues=4), taps=[[30, 31, 32, 33], [34, 35, 36, 37]])
    nic = next(entry for entry in _options(line, "-device") if entry.startswith("virtio-net"))
    assert nic.endswith("mq=on,vectors=10")
    assert _options(line, "-netdev")[1] == "tap,id=net1,vhost=off,fds=34:35:36:37"


def test_a_nic_is_plugged_in_with_the_types_that_qemu_wants() -> None:
    arguments = nic_arguments(GuestHardware(queues=2), 1)
    assert (arguments["iommu_platform"], arguments["disable-legacy"]) == (True, "on")
    assert (arguments["mq"], arguments["vectors"]) == (True, 6)
    assert (arguments["bus"], arguments["netdev"], arguments["id"]) == ("port1", "net1", "nic1")


def test_the_root_is_shared_read_only_and_only_the_folder_for_results_is_not() -> None:
    root, out = _options(_line(GuestHardware(nics=0)), "-virtfs")
    assert "path=/," in root
    assert "readonly=on" in root
    assert "path=/c,,d," in out
    assert "readonly" not in out


def test_kvm_runs_the_hosts_cpu_and_emulation_all_that_it_can() -> None:
    assert _options(_line(GuestHardware(), kvm=True), "-accel") == ["kvm"]
    assert _options(_line(GuestHardware(), kvm=True), "-cpu") == ["host"]
    assert _options(_line(GuestHardware()), "-accel") == ["tcg,thread=multi"]
    (append,) = _options(_line(GuestHardware(), append=["xskit.probe"]), "-append")
    assert "xskit.nic=virtio_net" in append.split()
    assert append.split()[-1] == "xskit.probe"


@pytest.mark.parametrize(
    "hardware",
    [{"nics": 3}, {"nics": 10}, {"nics": -2}, {"queues": 0}, {"queues": 17}, {"cpus": 0}, {"memory_bytes": 1 << 20},
     {"model": MODELS["e1000e"], "queues": 2}],
)  # fmt: skip
def test_hardware_that_cannot_be_is_refused(hardware: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        GuestHardware(**hardware)  # type: ignore[arg-type]


def test_commands_take_the_nic_models_that_there_are() -> None:
    assert get_args(Nic) == tuple(MODELS)


def test_an_unknown_nic_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"'ixgbe'.*virtio-net.*igb"):
        model("ixgbe")


# --- the channel --------------------------------------------------------------------------------------------------


@given(st.binary(max_size=30), st.lists(st.integers(1, 5), max_size=40))
def test_a_stream_ends_with_its_token_however_it_is_cut(content: bytes, cuts: list[int]) -> None:
    token = b"\0xskit-ab"
    heard: list[bytes] = []
    stream = _Stream(heard.append, token)
    rest = content + token[1:]
    for cut in [*cuts, len(rest)]:
        assert not stream.complete or not rest
        piece, rest = rest[:cut], rest[cut:]
        if piece:
            stream.take(piece)
    assert stream.complete
    assert b"".join(heard) == content


def test_a_command_reaches_a_shell_as_it_was_written(tmp_path: Path) -> None:
    command = Command(
        ["printf", "%s|", "a b", "$HOME", "it's", "", "*"], tmp_path, {"VALUE": "x'y\nz", "PATH": "/usr/bin:/bin"}
    )
    first, _, script = command.script("token").partition(b"\n")
    assert first == b"token"
    assert script.endswith(b"\n#xskit-end\n")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "a b|$HOME|it's||*|"
    seen = Command(["printenv", "VALUE", "XSKIT_OUT", "PWD"], tmp_path, {"VALUE": "x'y\nz", "PATH": "/usr/bin:/bin"})
    done = subprocess.run(
        ["sh", "-c", seen.script("t").partition(b"\n")[2]], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"x'y\nz\n/run/xskit-vm/out\n{tmp_path}\n"


def test_words_that_are_no_text_reach_a_shell_as_they_came(tmp_path: Path) -> None:
    odd = b"\xff\x80 \xe9"
    command = Command(["printf", "%s|%s", os.fsdecode(odd), "é"], tmp_path, {"PATH": "/usr/bin:/bin"})
    script = command.script("t").partition(b"\n")[2]
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout == odd + b"|\xc3\xa9"


def test_a_folder_that_is_not_there_is_no_place_for_a_command(tmp_path: Path) -> None:
    script = Command(["true"], tmp_path / "absent").script("t").partition(b"\n")[2]
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=False).returncode == 125
