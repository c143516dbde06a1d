"""The map stays true: sizes, names, types, style and imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("bot", "handlers", "cards", "storage")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
MIGRATIONS = ROOT / "storage" / "migrations" / "versions"

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_FILES_IN_A_FOLDER = 16
LINES_PER_BROAD_EXCEPT = 1000


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_fits_in_a_head(path: Path) -> None:
    if MIGRATIONS in path.parents:
        pytest.skip("a migration is one list of statements")
    source = path.read_text(encoding="utf-8")

    assert source.count("\n") <= MAX_MODULE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, node.name


@pytest.mark.parametrize("floor", FLOORS)
def test_a_folder_fits_on_a_screen(floor: str) -> None:
    folders = [ROOT / floor, *(path for path in (ROOT / floor).rglob("*") if path.is_dir())]

    crowded = {
        str(folder): n
        for folder in folders
        if (n := len(list(folder.glob("*.py")))) > MAX_FILES_IN_A_FOLDER
    }
    assert crowded == {}


def test_package_inits_stay_empty() -> None:
    talkative = [p for p in MODULES if p.name == "__init__.py" and p.read_text().strip()]
    assert talkative == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_broad_excepts_are_rare() -> None:
    sources = [path.read_text(encoding="utf-8") for path in MODULES]
    broad = sum(source.count("except Exception") for source in sources)
    lines = sum(source.count("\n") for source in sources)

    assert broad <= lines / LINES_PER_BROAD_EXCEPT


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        # Without its cache it is the longest of all tests.
        pytest.param(("mypy",), marks=pytest.mark.timeout(600)),
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
