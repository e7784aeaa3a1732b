"""Every setting is an option; what is wrong is named as it was written on the command line."""

from __future__ import annotations

import inspect

import pytest

from xskit.cli.options import read_engine, read_link, with_settings
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.settings import DirectionSettings, EngineSettings


def captured(**given):
    """What a command gets when these options are given."""
    found = {}

    def command(link: dict, engine: dict, other: int = 3) -> None:
        """Help."""
        found.update(link=link, engine=engine, other=other)

    wrapped = with_settings(command)
    parameters = inspect.signature(wrapped).parameters
    wrapped(**{name: parameter.default for name, parameter in parameters.items()} | given)
    return found


def test_every_setting_is_an_option():
    wrapped = with_settings(lambda link, engine: None)
    names = set(inspect.signature(wrapped).parameters)
    for name in DirectionSettings.model_fields:
        assert {name, f"forward_{name}", f"reverse_{name}"} <= names
    assert set(EngineSettings.model_fields) <= names


def test_every_setting_is_described():
    for model in (DirectionSettings, EngineSettings):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_options_go_where_they_belong():
    assert captured(owd="1ms", forward_owd="2ms", reverse_jitter_distribution="uniform", spin=True, cpus="0,1") == {
        "link": {"owd": "1ms", "forward": {"owd": "2ms"}, "reverse": {"jitter_distribution": "uniform"}},
        "engine": {"spin": True, "cpus": ["0", "1"]},
        "other": 3,
    }


def test_what_is_not_given_is_left_to_the_model():
    assert captured() == {"link": {}, "engine": {}, "other": 3}


def test_numbers_of_cpus_are_read():
    assert read_engine({"cpus": ["0", "1"], "workers": 2}).cpus == (0, 1)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"owd": "20"}, "--owd: 20 what? write 20ms"),
        ({"forward": {"owd": "20"}}, "--forward-owd: 20 what? write 20ms"),
        ({"reverse": {"queue": "10m"}}, "--reverse-queue: did you mean 10ms or 10min?"),
        (
            {"jitter_distribution": "pareto"},
            "--jitter-distribution: expected 'normal' or 'uniform', got 'pareto'",
        ),
    ],
)
def test_a_mistake_names_the_option(values, sentence):
    with pytest.raises(SettingsError) as told:
        read_link(values)
    assert told.value.cause == sentence


def test_a_mistake_of_the_engine_names_the_option():
    with pytest.raises(SettingsError) as told:
        read_engine({"ring_size": 1})
    assert told.value.cause == "--ring-size: expected 64 or more, got 1"
