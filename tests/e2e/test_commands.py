"""Help with examples that work, versions, restore, closed output: what every command has in common."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.e2e.rig import XSKIT, Bridge, Outer, code_unless_late
from xskit.cli.main import COMMANDS

pytestmark = pytest.mark.e2e

GROUPS = ("vm", "experiment")
"""They have commands of their own."""


def xskit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([XSKIT, *arguments], capture_output=True, text=True, check=False)


def examples(*of: str) -> list[list[str]]:
    """The commands that a help text shows."""
    lines = " ".join(xskit(*of, "--help").stdout.split("Example", 1)[1].partition("\n\n")[0].split())
    _, _, text = lines.partition(":")
    return [shlex.split(f"xskit {part}")[1:] for part in text.split("xskit ")[1:]]


# -- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_help_names_every_command(arguments):
    result = xskit(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    listed = result.stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed if line[2] != " "] == list(COMMANDS)  # the others go on from above


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in GROUPS])
def test_each_command_has_help_with_an_example(command):
    result = xskit(command, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "--json" in result.stdout
    assert all(example[0] == command for example in examples(command))
    assert examples(command)


@pytest.mark.root
def test_the_examples_of_run_work(machine: Outer):
    found = [*examples(), *examples("run")]
    assert len(found) >= 3
    for example in found:
        result = machine.xskit(*example)
        assert result.code == 0, (example, result.err)


@pytest.mark.root
def test_the_example_file_of_emulate_works(bridge: Bridge, tmp_path):
    shown = xskit("emulate", "--help").stdout.split("blue:\n")[1].split("\n\n")[0]
    text = textwrap.dedent(shown).replace("eth1", "xka").replace("blue/eth2", "xkb")
    (tmp_path / "wan.toml").write_text(text)
    (example,) = examples("emulate")
    arguments = ["100ms" if argument == "10s" else argument for argument in example]
    result = bridge.outer.xskit(*arguments, cwd=tmp_path)
    report = json.loads(result.out)
    assert (result.code, result.err) == (code_unless_late(report), "")
    assert [link["name"] for link in report["links"]] == ["wan"]


LOADED = """
import sys
from xskit.cli.main import _run
_run(sys.argv[2:])
heavy = set(sys.argv[1].split(",")) & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""


@pytest.mark.parametrize(
    ("heavy", "arguments"),
    [
        ("numba,numpy,scipy,pydantic,rich,pyroute2,asyncio", ["--help"]),
        ("numba,numpy,scipy,rich,pyroute2,asyncio", ["run", "--help"]),
        ("numba,numpy,scipy,rich,pyroute2,asyncio", ["run", "--owd", "20", "--", "true"]),
        ("numba,numpy,scipy,rich,pyroute2,asyncio", ["emulate", "--help"]),
        ("numba,numpy,scipy,rich,pyroute2,asyncio", ["restore"]),
        ("numba,numpy,scipy,rich,pyroute2,asyncio", ["version", "--verbose"]),
    ],
)
def test_what_is_heavy_is_not_loaded_in_vain(heavy, arguments):
    result = subprocess.run(
        [sys.executable, "-c", LOADED, heavy, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.root
def test_a_warm_run_loads_compiled_code_without_the_compiler(machine: Outer, tmp_path):
    machine.xskit("run", "--", "true")
    code = LOADED.replace("_run(sys.argv[2:])", f"_run(['run', '--report', '{tmp_path}/report.json', '--', 'true'])")
    result = machine.run(sys.executable, "-c", code, "scipy.linalg,rich,numba.np.arraymath,pyroute2")
    assert result.code == 0, result.err


# -- mistakes ------------------------------------------------------------------------------------------------------


def test_a_command_that_is_not_there():
    result = xskit("rum", "--owd", "1ms")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "xskit: no such command 'rum'. Did you mean 'run'?\ntry: xskit --help\n"


@pytest.mark.parametrize("command", ["emulate", "vm", "vm run", "bench rxdrop", "experiment run"])
def test_a_mistake_points_to_the_help_of_the_very_command(command: str):
    result = xskit(*command.split(), "--bogus")
    assert result.returncode == 2
    assert result.stderr.endswith(f"try: xskit {command} --help\n")


def test_a_mistake_with_json_is_also_json():
    result = xskit("version", "--json", "--nonsense")
    assert result.returncode == 2
    error = json.loads(result.stdout)["error"]
    assert result.stderr == f"xskit: {error['cause']}\ntry: {error['remedy']}\n"


INTERRUPTED = """
import sys, tomllib
from importlib.metadata import EntryPoint
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
with open(sys.argv[1], "rb") as file:
    EntryPoint("xskit", tomllib.load(file)["project"]["scripts"]["xskit"], "console_scripts").load()()
"""


def test_an_interrupt_while_the_program_is_read():
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    result = subprocess.run([sys.executable, "-c", INTERRUPTED, pyproject], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


# -- output that nobody reads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["--help", "version --verbose", "version --verbose --json"])
def test_a_closed_output_is_no_mistake(arguments):
    """The reader is gone before xskit prints."""
    shell = f"(sleep 0.1; exec {XSKIT} {arguments}; ) | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("1\n", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("arguments", "code"), [("version --verbose", 0), ("--nonsense", 2)])
def test_streams_that_the_caller_has_closed(closed, arguments, code):
    shell = f"({XSKIT} {arguments} {closed}); echo $?"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == str(code)
    assert "Traceback" not in result.stderr


@pytest.mark.root
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_without_streams_gives_the_commands_code(machine: Outer, closed):
    result = machine.run("bash", "-c", f"({XSKIT} run -- sh -c 'exit 3' {closed}); echo $?")
    assert result.out == "3\n"
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("exec {} version > /dev/full", "the disk is full\ntry: df"),
        ("ulimit -f 0; exec {} version > {}", "File too large\ntry: ulimit -f"),
    ],
)
def test_output_that_cannot_be_written(command, told, tmp_path):
    shell = command.format(XSKIT, tmp_path / "out")
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, f"xskit: the output cannot be written: {told}\n")


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&1 >/dev/null | true"])
def test_a_mistake_that_cannot_be_told_is_one_all_the_same(where):
    shell = f"(sleep 0.1; exec {XSKIT} --nonsense) {where}; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("2\n", "")


@pytest.mark.root
def test_a_closed_output_of_emulate(bridge: Bridge, tmp_path):
    file = tmp_path / "wan.toml"
    file.write_text('[link.wan]\nports = ["xka", "xkb"]\n')
    shell = f"{XSKIT} emulate {file} --duration 100ms --json | true; echo ${{PIPESTATUS[0]}}"
    result = bridge.outer.run("bash", "-c", shell)
    assert (result.out, result.err) == ("1\n", "")


@pytest.mark.root
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_the_lines_of_tables(bridge: Bridge, tmp_path, encoding):
    file = tmp_path / "wan.toml"
    file.write_text('[link.wan]\nports = ["xka", "xkb"]\n')
    result = bridge.outer.xskit(
        "emulate", str(file), "--duration", "100ms", env=os.environ | {"PYTHONIOENCODING": encoding}
    )
    assert "Traceback" not in result.err  # a machine that is busy may call the run invalid
    assert "? link ? direction ?" in result.out


# -- version and restore -------------------------------------------------------------------------------------------


def test_version():
    result = xskit("version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"xskit {json.loads(xskit('version', '--json').stdout)['xskit']}\n"
    option = xskit("--version")
    assert (option.returncode, option.stdout, option.stderr) == (0, result.stdout, "")
    assert "--version" in xskit("--help").stdout


@pytest.mark.root
def test_the_verbose_version_says_what_this_machine_can_do():
    facts = json.loads(xskit("version", "--verbose", "--json").stdout)
    assert list(facts) == [
        "xskit",
        "kernel",
        "machine",
        "python",
        "libraries",
        "cpus",
        "missing_privileges",
        "features",
    ]
    found = {feature["name"]: feature["available"] for feature in facts["features"]}
    assert all(found[name] for name in ("maps", "xskmap", "xdp_program", "link", "socket", "need_wakeup"))
    assert found["large_frames"] is False
    text = xskit("version", "--verbose").stdout
    assert f"kernel      {facts['kernel']} ({facts['machine']})\n" in text
    for feature in facts["features"]:
        assert feature["title"] in text


@pytest.mark.root
def test_features_cannot_be_tried_without_privileges(machine: Outer):
    facts = json.loads(machine.xskit_without_privileges("version", "--verbose", "--json").out)
    assert "CAP_BPF" in facts["missing_privileges"]
    found = {feature["name"]: feature["available"] for feature in facts["features"]}
    assert found["socket"] is None
    assert found["xdp_program"] is None


@pytest.mark.root
def test_restore_as_json(machine: Outer):
    result = machine.xskit("restore", "--json")
    assert result.code == 0
    assert all(set(line) == {"what", "fate", "detail", "remedy"} for line in json.loads(result.out))
