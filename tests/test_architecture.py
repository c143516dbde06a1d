"""The map stays true: sizes, names, types, style and imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("bot", "handlers", "cards", "storage")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
MIGRATIONS = ROOT / "storage" / "migrations" / "versions"

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
LINES_PER_BROAD_EXCEPT = 1000


@cache
def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(source_of(path))


def test_modules_and_functions_stay_short() -> None:
    too_long = []
    for path in MODULES:
        if MIGRATIONS in path.parents:
            # A migration is one list of statements.
            continue
        name, lines = str(path.relative_to(ROOT)), source_of(path).count("\n")
        if lines > MAX_MODULE_LINES:
            too_long.append(f"{name}: {lines} lines")
        too_long += [
            f"{name}: {node.name}"
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
        ]

    assert too_long == []


def test_a_public_class_name_stands_in_one_module_only() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))

    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_package_inits_contain_no_code() -> None:
    """A docstring may say how the modules of a package work together."""
    trees = {path: tree_of(path) for path in MODULES if path.name == "__init__.py"}
    code = {path: tree.body[ast.get_docstring(tree) is not None :] for path, tree in trees.items()}
    assert [path for path, statements in code.items() if statements] == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if path.name != "__init__.py" and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def test_docstrings_say_what_a_thing_is_or_does() -> None:
    """One that begins with "What" names neither."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    vague = [
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'the module')}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, documented)
        and (ast.get_docstring(node, clean=False) or "").startswith("What ")
    ]
    assert vague == []


def test_broad_excepts_are_rare() -> None:
    broad = sum(source_of(path).count("except Exception") for path in MODULES)
    lines = sum(source_of(path).count("\n") for path in MODULES)

    assert broad <= lines / LINES_PER_BROAD_EXCEPT


_CODE_SPANS = re.compile(r"`([^`]+)`")


def test_the_map_in_the_docs_has_a_row_for_every_package() -> None:
    packages = {
        f"{path.parent.relative_to(ROOT)}/{path.stem}"
        for floor in ("bot", "bot/engine")
        for path in (ROOT / floor).iterdir()
        if (path / "__init__.py").exists() or (floor == "bot/engine" and path.suffix == ".py")
    }

    assert packages - _map_rows().keys() - {"bot/engine", "bot/engine/__init__"} == set()


def test_what_the_map_in_the_docs_names_exists() -> None:
    gone = [
        f"{place}: {name}"
        for place, names in _map_rows().items()
        for name in names
        if not _exists(ROOT / place, name)
    ]

    assert gone == []


def test_the_answers_beside_the_map_name_modules_that_exist() -> None:
    spans = [name for line in _map_lines() for name in _CODE_SPANS.findall(line)]
    named = [name for name in spans if name.startswith(("bot/", "handlers/", "cards/", "storage/"))]

    assert [name for name in named if not _exists(ROOT, name)] == []


def _map_rows() -> dict[str, list[str]]:
    """The names in the rows of the map, by their place."""
    found = defaultdict[str, list[str]](list)
    for line in _map_lines():
        if line.startswith("| `"):
            place, *names = _CODE_SPANS.findall(line)
            found[place] += names
    return found


def _map_lines() -> list[str]:
    return (ROOT / "docs/reference/map.md").read_text(encoding="utf-8").splitlines()


def _exists(place: Path, name: str) -> bool:
    """A module or folder below `place` or the root, or a class in the module `place`."""
    if name[0].isupper():
        return f"class {name}" in place.with_suffix(".py").read_text(encoding="utf-8")
    return any((at / f"{name}{end}").exists() for at in (place, ROOT) for end in ("", ".py"))


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        # Without its cache it is the longest of all tests: an hour, beside other work.
        pytest.param(("mypy",), marks=pytest.mark.timeout(3_600)),
        ("importlinter.cli", "lint-imports"),
    ],
    ids=["ruff check", "ruff format", "mypy", "import-linter"],
)
def test_the_gate_passes(command: tuple[str, ...]) -> None:
    if command[0] == "importlinter.cli":
        run = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as m; m()"]
    else:
        run = [sys.executable, "-m", *command]

    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
