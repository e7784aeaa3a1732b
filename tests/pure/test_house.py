"""The walls of the house that no tool checks: no module imports itself through others, no name has two meanings."""

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


SHARED = {
    "Parameters": "each stage has one, under this name (engine/source.py)",
    "State": "as Parameters",
}
"""Public names that several modules define on purpose, and why."""


def public_names(tree: ast.Module) -> Iterator[str]:
    """Public classes that a module defines, and type aliases: names in CamelCase that are set at its top."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name) and camel(target.id))


def camel(name: str) -> bool:
    """BindMode, not MODES or Mode_2."""
    return name[0].isupper() and "_" not in name and not name.isupper()


def defined_twice(root: Path) -> dict[str, list[str]]:
    """Public class names that more than one module below a folder defines, with these modules."""
    homes: dict[str, list[str]] = {}
    for module, path in modules(root).items():
        for name in set(public_names(ast.parse(path.read_text()))):
            if not name.startswith("_"):
                homes.setdefault(name, []).append(module)
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_a_public_class_name_means_one_thing():
    found = {name: homes for name, homes in defined_twice(SOURCE).items() if name not in SHARED}
    assert not found, f"one name, several meanings: {found}"


def test_names_that_are_shared_on_purpose_are_shared():
    assert set(SHARED) <= set(defined_twice(SOURCE))


def test_names_with_two_meanings_are_found(tmp_path):
    (tmp_path / "a.py").write_text("class Mode: ...\nclass _Private: ...\nMODES = 1\nKind = int\n")
    (tmp_path / "b.py").write_text("from a import Mode\nclass _Private: ...\nMODES = 2\n")
    assert defined_twice(tmp_path) == {}
    (tmp_path / "c.py").write_text("Mode = str\nKind: type = str\n")
    assert defined_twice(tmp_path) == {"Kind": ["a", "c"], "Mode": ["a", "c"]}
