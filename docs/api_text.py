"""A class or a function as a page of the reference shows it: signature, members, docstrings, as Markdown."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):$", re.MULTILINE)
_TITLES = {"Args": "Arguments"}
_GIVEN = {"Host", "LabLink", "Link", "LinkDirection", "LinkPlan", "Packet", "Port", "Report"}
"""Classes whose instances are handed out: how they are made is nobody's business."""


def public_text(thing: Any) -> str:
    """A public name: heading, signature, docstring, and what a class has."""
    if isinstance(thing, type):
        return class_text(thing)
    name = f"xskit.{thing.__name__}"
    return f"## {name}\n\n```text\n{_signature(name, thing)}\n```\n\n{_docstring(thing)}"


def class_text(kind: type) -> str:
    """Heading, signature, docstring, attributes, members."""
    name = kind.__name__
    parts = [f"## xskit.{name}"]
    if issubclass(kind, Exception):
        parts.append(f"```text\nclass xskit.{name}({kind.__bases__[0].__name__})\n```")
    elif issubclass(kind, BaseModel):
        parts.append(f"```text\nclass xskit.{name}(**keys)\n```\n\nIts keys are those of the [settings](settings.md).")
    elif name not in _GIVEN:
        parts.append(f"```text\n{_signature('xskit.' + name, kind)}\n```")
    parts.append(_docstring(kind))
    attributes = list(_attributes(kind))
    if attributes:
        parts.append("**Attributes**\n\n" + "\n".join(f"- `{one}`: {text}" for one, text in attributes))
    parts += [_member(one, member, name) for one, member in _members(kind)]
    return "\n\n".join(part for part in parts if part)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the class itself defines, in the order of the source."""
    for name, member in vars(kind).items():
        plain = getattr(member, "__func__", member)
        if not name.startswith(("_", "model_")) and (inspect.isfunction(plain) or isinstance(plain, property)):
            yield name, member


def _member(name: str, member: Any, owner: str) -> str:
    if isinstance(member, property):
        result = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
        title = f"{owner}.{name} -> {_plain(str(result))}"
        return f"### {owner}.{name}\n\n```text\n{title}\n```\n\n{_docstring(member.fget)}"
    function = getattr(member, "__func__", member)
    return f"### {owner}.{name}\n\n```text\n{_signature(f'{owner}.{name}', function)}\n```\n\n{_docstring(function)}"


def _signature(name: str, function: Any) -> str:
    """One line, or one parameter a line where that would be long."""
    signature = inspect.signature(function)
    known = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    short = signature.replace(parameters=known)
    text = _plain(f"{name}{short}").removesuffix(" -> None")
    if len(text) <= 100:
        return text
    body, _, result = text.rpartition(")")
    inner = body[len(name) + 1 :]
    lines = re.split(r", (?=\*?\*?[a-z_]+(?::|,|$)|\*,)", inner)
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){result}"


def _plain(text: str) -> str:
    """Annotations are text in this code; quotes around them say nothing. Defaults keep theirs."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)


def _docstring(thing: Any) -> str:
    """Paragraphs as they are, sections as lists."""
    text = inspect.cleandoc(thing.__doc__ or "")
    pieces = _SECTION.split(text)
    parts = [pieces[0].strip()]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = textwrap.dedent(body.strip("\n"))
        items = re.split(r"\n(?=\S)", lines) if title != "Returns" else [lines]
        listed = [re.sub(r"\s*\n\s+", " ", item).strip() for item in items]
        marked = [re.sub(r"^([\w., ]+):", r"`\1`:", item) for item in listed] if title != "Returns" else listed
        parts.append(f"**{_TITLES.get(title, title)}**\n\n" + "\n".join(f"- {item}" for item in marked))
    return "\n\n".join(part for part in parts if part)


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Attributes that are explained where they are set: `self.length = ...` and a string on the line below."""
    source = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    for body in [node.body for node in ast.walk(source) if isinstance(node, ast.ClassDef | ast.FunctionDef)]:
        for setting, said in pairwise(body):
            if not (isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant)):
                continue
            if isinstance(setting, ast.Assign | ast.AnnAssign) and isinstance(said.value.value, str):
                target = setting.targets[0] if isinstance(setting, ast.Assign) else setting.target
                name = getattr(target, "attr", getattr(target, "id", "_"))
                if not name.startswith("_"):
                    yield name, " ".join(said.value.value.split())
