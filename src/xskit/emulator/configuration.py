"""A file of links, as `xskit emulate` reads it.

[engine]                      # all of it may be left out
workers = 2

[link.wan]
ports = ["eth1", "blue/eth2"] # forward goes from the first to the second; blue is a network namespace
owd = "20ms"                  # both directions
forward = { rate = "10Mbit", queue = "100ms" }

[link.wan.reverse]            # the same, written as a table of its own
loss = "0.5%"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xskit.emulator.mistakes import SettingsError, unknown_key
from xskit.emulator.ports import LinkSpec, PortSpec, parse_port
from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings, read
from xskit.files import read as read_file
from xskit.netconf.names import shown

__all__ = ["Configuration", "parse_configuration", "read_configuration"]

MOST_BYTES = 1 << 20

_TABLES = ("engine", "link")
_LINK_KEYS = ("ports", *LinkSettings.model_fields, *DirectionSettings.model_fields)
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)")


@dataclass(frozen=True)
class Configuration:
    """What a file asks for."""

    engine: EngineSettings
    links: list[LinkSpec]


def read_configuration(path: Path) -> Configuration:
    """Read a file.

    Raises:
        ReadError: it cannot be read, or is longer than 1 MiB.
        SettingsError: a mistake, with file, table and key, or with the line where the file is not TOML.
    """
    try:
        text = read_file(path, MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: byte {error.start} is not UTF-8, and TOML is") from error
    return parse_configuration(text, str(path))


def parse_configuration(text: str, name: str) -> Configuration:
    """Read a text; `name` stands for its file in errors.

    Raises:
        SettingsError: as read_configuration.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(_syntax(name, str(error))) from None
    except RecursionError:
        raise SettingsError(f"{name}: lists or tables lie too deep inside each other") from None
    for key in tables:
        if key not in _TABLES:
            raise SettingsError(f"{name}: {shown(key)}: {unknown_key(key, _TABLES)}")
    links = tables.get("link", {})
    if not isinstance(links, Mapping) or not links:
        raise SettingsError(f"{name}: there is no link: write a table [link.NAME] with two ports")
    found = [_link(name, title, table) for title, table in links.items()]
    _check_ports(name, found)
    return Configuration(read(EngineSettings, tables.get("engine", {}), name, "[engine]"), found)


def _link(file: str, title: str, table: Any) -> LinkSpec:
    place = f"[link.{shown(title)}]"
    if not title.isprintable():
        raise SettingsError(f"{file}: {place}: a link's name has only characters that can be printed")
    if not isinstance(table, Mapping):
        raise SettingsError(
            f"{file}: link.{shown(title)} is no table: write {place} on a line of its own, and its keys below"
        )
    for key in table:
        if key not in _LINK_KEYS:
            raise SettingsError(f"{file}: {place}: {shown(key)}: {unknown_key(key, _LINK_KEYS)}")
    settings = read(LinkSettings, {key: value for key, value in table.items() if key != "ports"}, file, place)
    return LinkSpec(title, _ports(f"{file}: {place}: ports", table.get("ports")), settings)


def _ports(place: str, value: Any) -> tuple[PortSpec, PortSpec]:
    if value is None:
        raise SettingsError(f'{place}: this key is missing: write ports = ["eth1", "eth2"]')
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(port, str) for port in value):
        raise SettingsError(f'{place}: two interfaces are wanted, ["eth1", "eth2"], not {value!r}')
    try:
        return parse_port(value[0]), parse_port(value[1])
    except SettingsError as error:
        raise SettingsError(f"{place}: {error.cause}", remedy=error.remedy) from None


def _check_ports(file: str, links: list[LinkSpec]) -> None:
    owner: dict[PortSpec, str] = {}
    for link in links:
        for port in link.ports:
            if port in owner:
                other = "both ends" if owner[port] == link.name else f"[link.{owner[port]}] too"
                raise SettingsError(f"{file}: [link.{link.name}]: ports: {port} is in {other}")
            owner[port] = link.name


def _syntax(file: str, words: str) -> str:
    match = _PLACE.fullmatch(words)
    if match is None:
        return f"{file}: {words}"
    said, line, column = match.groups()
    place = f"line {line}, column {column}" if line else "at its end"
    return f"{file}: {place}: {said[0].lower()}{said[1:]}"
