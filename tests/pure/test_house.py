"""The walls of the house that no tool checks: no module imports itself by way of others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def module_name(path: Path, root: Path) -> str:
    """The name that a file is imported by."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path) -> dict[str, Path]:
    """Every module below a folder, by name."""
    return {module_name(path, root): path for path in sorted(root.rglob("*.py"))}


def imported(tree: ast.AST, package: str, known: Mapping[str, Path]) -> Iterator[str]:
    """The known modules that a tree imports, wherever: at the top, in a function, under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -node.level + 1 or None] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{home}.{alias.name}" if f"{home}.{alias.name}" in known else home for alias in node.names]
        else:
            continue
        yield from (name for name in names if name in known)


def imports(root: Path) -> dict[str, set[str]]:
    """What each module below a folder imports of the others."""
    known = modules(root)
    found = {}
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found[name] = set(imported(ast.parse(path.read_text()), package, known)) - {name}
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of imports, its first module again at its end; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_circle_of_imports():
    found = circle(imports(SOURCE))
    assert not found, f"a circle of imports: {' -> '.join(found)}"


def test_generated_pipelines_import_nothing_that_imports_their_text():
    from xskit.engine.source import pipeline_source

    known = modules(SOURCE)
    text = set(imported(ast.parse(pipeline_source((), (), 0)), "", known))
    graph = imports(SOURCE) | {"generated": text}
    graph["xskit.engine.source"] |= {"generated"}
    assert "xskit.engine.fifo" in text
    assert not circle(graph)


def test_circles_are_found_wherever_the_import_stands(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from p import b\n")
    for text in (
        "import p.a",
        "from p.a import x",
        "from . import a",
        "from .a import x",
        "def f():\n    from p import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x",
    ):
        (package / "b.py").write_text(text)
        assert sorted(set(circle(imports(tmp_path)))) == ["p.a", "p.b"], text
    (package / "b.py").write_text("import p\nimport os\n")
    assert circle(imports(tmp_path)) == []
