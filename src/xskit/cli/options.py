"""Options of a command made from the fields of the settings models: one place says what can be set, and how.

A field `jitter_distribution` of a direction becomes --jitter-distribution, for both directions, and hidden from the
list, because that would be three times as long, --forward-jitter-distribution and --reverse-jitter-distribution.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from xskit.emulator.settings import DirectionSettings, EngineSettings, LabSettings, LinkSettings, read

DIRECTIONS = ("forward", "reverse")


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with one option for each setting.

    `command` gets them as keyword arguments `link`, `engine` and, if it has such a parameter, `lab`, in the form that
    the models take. Options that were not given are left out. Its other parameters stay unchanged.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters.values()
        if parameter.name not in ("link", "engine", "lab")
    ]
    link = {name: _option(name, field) for name, field in DirectionSettings.model_fields.items()}
    for direction in DIRECTIONS:
        link |= {
            f"{direction}_{name}": _option(f"{direction}_{name}", field, hidden=True)
            for name, field in DirectionSettings.model_fields.items()
        }
    engine = {name: _option(name, field) for name, field in EngineSettings.model_fields.items()}
    lab = {name: _option(name, field) for name, field in LabSettings.model_fields.items() if "lab" in parameters}

    def called(**given: Any) -> Any:
        mine = {parameter.name: given[parameter.name] for parameter in own}
        if "lab" in parameters:
            mine["lab"] = _given(given, lab)
        return command(**mine, link=_link(_given(given, link)), engine=_given(given, engine))

    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__signature__ = inspect.Signature([*link.values(), *lab.values(), *engine.values(), *own])  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in called.__signature__.parameters.values()}  # type: ignore[attr-defined]
    return called


def read_link(values: Mapping[str, Any]) -> LinkSettings:
    """The settings of a link from options.

    Raises:
        SettingsError: names the option.
    """
    return read(LinkSettings, values, spelled=_option_name)


def read_engine(values: Mapping[str, Any]) -> EngineSettings:
    """The settings of the engine from options.

    Raises:
        SettingsError: names the option.
    """
    return read(EngineSettings, values, spelled=_option_name)


def read_lab(values: Mapping[str, Any]) -> LabSettings:
    """The settings of a lab from options.

    Raises:
        SettingsError: names the option.
    """
    return read(LabSettings, values, spelled=_option_name)


def _option_name(path: Sequence[str]) -> str:
    words = path[:2] if path[0] in DIRECTIONS else path[:1]
    return "--" + "-".join(words).replace("_", "-")


def _option(name: str, field: FieldInfo, *, hidden: bool = False) -> inspect.Parameter:
    spelling = "--" + name.replace("_", "-")
    choices = _choices(field.annotation)
    kinds = {type(choice) for choice in choices} or {_kind(field)}
    kind = kinds.pop() if len(kinds) == 1 else str
    metavar = "|".join(map(str, choices)) or spelling.rpartition("-")[2].upper()
    option = typer.Option(
        spelling,
        help=field.description,
        metavar=None if kind is bool else metavar,
        hidden=hidden,
        show_default=False,
        autocompletion=(lambda: [str(choice) for choice in choices]) if choices else None,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _kind(field: FieldInfo) -> type:
    """How typer reads an option: as a plain flag or number, or as text that the model reads."""
    plain = field.annotation in (bool, int) and not any(isinstance(part, BeforeValidator) for part in field.metadata)
    return cast(type, field.annotation) if plain else str


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal, also of one that may be left out."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) is Literal:
            return get_args(part)
    return ()


def _given(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the user wrote; a list of numbers is written with commas."""
    found = {name: values[name] for name in options if values[name] is not None}
    if isinstance(found.get("cpus"), str):
        found["cpus"] = found["cpus"].split(",")
    return found


def _link(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options of one direction into its table."""
    link: dict[str, Any] = {}
    for name, value in values.items():
        first, _, rest = name.partition("_")
        if first in DIRECTIONS:
            link.setdefault(first, {})[rest] = value
        else:
            link[name] = value
    return link
