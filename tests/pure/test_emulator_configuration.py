"""The file of `xskit emulate`: what it says, and what is said of mistakes in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xskit.emulator.configuration import parse_configuration, read_configuration
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.ports import PortSpec, parse_port
from xskit.emulator.settings import EngineSettings, link_settings
from xskit.errors import UsageError, XskitError
from xskit.netconf.ethtool import features
from xskit.netconf.interfaces import control_socket, look, mtu
from xskit.netconf.namespaces import MissingError

WHOLE = """
[engine]
workers = 2
memory = "256MiB"

[link.wan]
ports = ["eth1", "blue/eth2"]
owd = "20ms"
forward = { rate = "10Mbit", queue = "100ms" }

[link.wan.reverse]
loss = "0.5%"
queue = { kind = "droptail", limit = "64KiB" }

[link.lan]
ports = ["eth3", "eth4"]
"""


def test_a_whole_file():
    found = parse_configuration(WHOLE, "wan.toml")
    assert found.engine == EngineSettings.model_validate({"workers": 2, "memory": "256MiB"})
    wan, lan = found.links
    assert (wan.name, wan.ports) == ("wan", (PortSpec("eth1"), PortSpec("eth2", "blue")))
    assert wan.settings == link_settings(
        {
            "forward": {"owd": "20ms", "rate": "10Mbit", "queue": "100ms"},
            "reverse": {"owd": "20ms", "loss": 0.005, "queue": "64KiB"},
        }
    )
    assert (lan.name, lan.ports, lan.settings) == ("lan", (PortSpec("eth3"), PortSpec("eth4")), link_settings({}))


def test_the_engine_may_be_left_out():
    assert parse_configuration('[link.a]\nports = ["x", "y"]', "f").engine == EngineSettings()


def test_the_example_in_the_module():
    from xskit.emulator import configuration

    assert configuration.__doc__ is not None
    text = configuration.__doc__.partition("\n\n")[2]
    found = parse_configuration(text, "doc")
    assert found.engine.workers == 2
    assert found.links[0].settings.forward.rate == 10_000_000
    assert found.links[0].settings.reverse.loss == 0.005


LINK = '[link.a]\nports = ["x", "y"]\n'

MISTAKES = [
    ("", "f: there is no link: write a table [link.NAME] with two ports"),
    ("link = 3", "f: there is no link: write a table [link.NAME] with two ports"),
    ("[link]\na = 3", "f: link.a is no table: write [link.a] on a line of its own, and its keys below"),
    ("[lnk.a]", "f: lnk: unknown key; did you mean link?"),
    ("[xyz]", "f: xyz: unknown key; known keys are engine, link"),
    ("[link.a]\nowd = '1ms'", 'f: [link.a]: ports: this key is missing: write ports = ["eth1", "eth2"]'),
    ("[link.a]\nport = ['x', 'y']", "f: [link.a]: port: unknown key; did you mean ports?"),
    ("[link.a]\nports = ['x']", 'f: [link.a]: ports: two interfaces are wanted, ["eth1", "eth2"], not [\'x\']'),
    ("[link.a]\nports = 'xy'", 'f: [link.a]: ports: two interfaces are wanted, ["eth1", "eth2"], not \'xy\''),
    ("[link.a]\nports = ['x', 1]", 'f: [link.a]: ports: two interfaces are wanted, ["eth1", "eth2"], not [\'x\', 1]'),
    (
        "[link.a]\nports = ['x', '/y']",
        "f: [link.a]: ports: '/y' is no port: write eth1, or blue/eth1 for one in the network namespace blue",
    ),
    ("[link.a]\nports = ['x', 'x']", "f: [link.a]: ports: x is in both ends"),
    (LINK + "[link.b]\nports = ['z', 'y']", "f: [link.b]: ports: y is in [link.a] too"),
    (LINK + "jiter = '1ms'", "f: [link.a]: jiter: unknown key; did you mean jitter?"),
    (LINK + "[link.a.forward]\nowdd = '1ms'", "f: [link.a]: forward.owdd: unknown key; did you mean owd?"),
    (
        LINK + "forward = 3",
        "f: [link.a]: forward: expected a table, got 3",
    ),
    (LINK + "rate = '10mbps'", "f: [link.a]: rate: did you mean 10Mbit or 10MBps?"),
    (LINK + "queue = { limt = '1ms' }", "f: [link.a]: queue.limt: unknown key; did you mean limit?"),
    (LINK + "[engine]\nworkers = 3", "f: [engine]: workers: expected 1 or 2, got 3"),
    (LINK + "[engine]\nring_size = 100", "f: [engine]: ring_size must be a power of two, not 100"),
    (LINK + "owd = 20ms", "f: line 3, column 9: expected newline or end of document after a statement"),
    (LINK + "owd = ", "f: at its end: invalid value"),
    ("[link.a", "f: at its end: expected ']' at the end of a table declaration"),
    ("a = " + "[" * 10_000, "f: lists or tables lie too deep inside each other"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_mistake_is_told_with_its_place(text, sentence):
    with pytest.raises(SettingsError) as told:
        parse_configuration(text, "f")
    assert told.value.cause == sentence
    assert told.value.exit_code == 2


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(XskitError) as told:
        read_configuration(tmp_path / "none.toml")
    assert told.value.cause == f"there is no file {tmp_path}/none.toml"
    assert told.value.remedy == f"ls {tmp_path}"


def test_a_file_that_is_not_text(tmp_path):
    file = tmp_path / "f.toml"
    file.write_bytes(b"# ok\n\xff")
    with pytest.raises(SettingsError) as told:
        read_configuration(file)
    assert told.value.cause == f"{file}: byte 5 is not UTF-8, and TOML is"


def test_a_file_is_read(tmp_path):
    file = tmp_path / "f.toml"
    file.write_text(LINK)
    assert [link.name for link in read_configuration(file).links] == ["a"]


@pytest.mark.parametrize("text", ["eth1", "blue/eth1"])
def test_a_port_is_read_as_it_is_shown(text):
    assert str(parse_port(text)) == text


@pytest.mark.parametrize("text", ["eth0", "eth0.5", "b/é-1", "abcdefghijklmno", "a_b@c"])
def test_what_is_a_port(text):
    assert str(parse_port(text)) == text


@pytest.mark.parametrize("name", ["a b", "a\tb", "\x1b[31mred", "abcdefghijklmnop", "é" * 8, "a:1", ".", "..", "a\x7f"])
def test_what_no_interface_can_be_called(name):
    for text in (name, f"blue/{name}"):
        with pytest.raises(SettingsError) as told:
            parse_port(text)
        assert told.value.cause == (
            f"{text!r} is no port: {name!r} is not an interface name: a name has 1 to 15 bytes, without spaces, / and :"
        )
        assert told.value.cause.isprintable()
    with pytest.raises(UsageError, match=" is not an interface name: "):
        look(name)


@pytest.mark.parametrize("name", ["lo" + "x" * 14, "lo\0x"])
def test_a_name_that_an_ioctl_would_cut_finds_nothing(name):
    with control_socket() as control, pytest.raises(OSError, match="No such device"):
        features(control, name)
    with pytest.raises(MissingError) as told:
        mtu(name)
    assert told.value.cause.isprintable()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[link."a\\u001bb"]\nports = ["a", "b"]', "x.toml: [link.'a\\x1bb']: a link's name has only characters that "
         "can be printed"),
        ('[link.a]\nports = ["a", "b"]\n"c\\nd" = 1', "x.toml: [link.a]: 'c\\nd': unknown key; known keys are "),
        ('"\\u0007" = 1', "x.toml: '\\x07': unknown key; known keys are engine, link"),
        ('[link.a]\nports = ["a", "b\\n"]', "x.toml: [link.a]: ports: 'b\\n' is no port: "),
    ],
)  # fmt: skip
def test_nothing_unprintable_is_printed(text, sentence):
    with pytest.raises(SettingsError) as told:
        parse_configuration(text, "x.toml")
    assert told.value.cause.startswith(sentence)
    assert told.value.cause.isprintable()


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a/b/c", "/run/netns/a", "./a", "../a"])
def test_what_is_no_port(text):
    with pytest.raises(SettingsError):
        parse_port(text)


def test_reading_a_file_needs_no_compiler():
    code = "import sys, xskit.emulator.configuration; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
