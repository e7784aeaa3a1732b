"""Errors in settings: they name the file, the table and the key, and say what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from xskit.arguments import literal
from xskit.errors import UsageError, XskitError


class SettingsError(UsageError):
    """What was asked for cannot be meant."""


class CapacityError(XskitError):
    """More is asked than memory was planned for, or than the machine has."""


def explain(
    error: ValidationError,
    model: type[BaseModel],
    where: Sequence[str],
    spelled: Callable[[Sequence[str]], str] = ".".join,
) -> SettingsError:
    """One sentence for the first mistake, and how many more there are. `spelled` writes a key's path."""
    mistakes = _once_for_both(error.errors(include_url=False))
    first, path = mistakes[0]
    place = ": ".join([*where, spelled(path)] if path else where)
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return SettingsError(f"{place}: {_sentence(first, model, path)}{more}" if place else _sentence(first, model, path))


def _once_for_both(mistakes: Sequence[Any]) -> list[tuple[Any, list[str]]]:
    """Each mistake with its path; one that came into both directions from the link's own table counts once."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for mistake in mistakes:
        path = [str(part) for part in mistake["loc"] if not str(part).startswith(("function-", "constrained-"))]
        below = path[1:] if path and path[0] in ("forward", "reverse") else path
        key = f"{below} {mistake['type']} {literal(mistake['input'])}"
        found[key] = (mistake, below if key in found else path)
    return list(found.values())


def _sentence(mistake: Any, model: type[BaseModel], path: Sequence[str]) -> str:
    kind = mistake["type"]
    if kind == "extra_forbidden":
        return unknown_key(path[-1], _keys_at(model, path[:-1]))
    if kind == "value_error":
        return str(mistake["ctx"]["error"])
    if kind == "literal_error":
        expected = mistake["ctx"]["expected"]
        return f"expected {expected}, got {_written(mistake['input'])}"
    if kind == "missing":
        return "this key is missing"
    if kind in _WANTED:
        return f"expected {_WANTED[kind].format(**mistake.get('ctx', {}))}, got {_written(mistake['input'])}"
    message = str(mistake["msg"])
    return f"{message[0].lower()}{message[1:]}, not {_written(mistake['input'])}"


def _written(value: Any) -> str:
    """As files have it: true and false begin with a small letter."""
    return str(value).lower() if isinstance(value, bool) else literal(value)


_WANTED = {
    "model_type": "a table",
    "tuple_type": "a list",
    "int_type": "a whole number",
    "int_parsing_size": "a whole number of at most 64 bits",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
}
"""What pydantic calls a mistake, and what would be right."""


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The sentence for a key that is not known: what was meant, or all that are."""
    names = sorted(known)
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known keys are {', '.join(names)}"
    return f"unknown key; {hint}"


def _keys_at(model: type[BaseModel], path: Sequence[str]) -> set[str]:
    """The keys that are known in the table at a path; of both directions and the whole link at its top."""
    fields = _fields(model)
    for part in path:
        inner = _model_in(fields[part].annotation) if part in fields else None
        if inner is None:
            break
        fields = _fields(inner)
    return set(fields)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a table; in a link's own table stand those of both directions, too."""
    fields = dict(model.model_fields)
    if {"forward", "reverse"} <= set(fields):
        both = _model_in(fields["forward"].annotation)
        fields |= both.model_fields if both else {}
    return fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if found := _model_in(part):
            return found
    return None
