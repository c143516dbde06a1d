"""Settings of all tests: repeatable examples, no deadlines, slow files spread over the run."""

from __future__ import annotations

import compileall
import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.compiled_statements import share_compiled_statements
from tests.journeys.fork_server import FORK_SERVER_VARIABLE, start_fork_server
from tests.journeys.program import ShiftbossProcess
from tests.thoroughness import THOROUGH, sampled

# New examples are for the thorough run: a gate that finds one by luck says nothing of the change
# before it. A machine that is busy is no finding either.
settings.register_profile(
    "gate",
    derandomize=not THOROUGH,
    max_examples=sampled(100, 50),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gate")


@pytest.fixture
def postgres_url() -> str:
    """A new database of a PostgreSQL server, with an empty store in it."""
    # Starts a server with the first test that asks for it.
    from tests.postgresql_server import create_database

    return create_database()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


# `asyncio.Runner` puts a handler of its own in place of Python's, and looks at it again with
# `signal.getsignal`, which writes its repr: that of the fixture's task and so of its whole result,
# 96 MB and 2 s of CPU for an application. It leaves any other handler alone.
signal.signal(signal.SIGINT, _interrupt)

_SLOW_FOLDERS = {"journeys", "chaos", "benchmarks"}
_SLOW_SHARE = 0.8
"""Share of the run at which the last slow file begins."""

ShiftbossProcess.use_fork_server = not THOROUGH
if not THOROUGH:
    share_compiled_statements()

_ROOT = Path(__file__).parents[1]
_CODE = ("bot", "cards", "handlers", "storage", "tests")
_TEST_FILE = re.compile(r"/test_[^/]*\.py$")

# Workers and the programs they begin would each compile everything for themselves.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Compile once what all workers import, and load once what all programs of theirs do. Test
    files are compiled by pytest, in its own way."""
    for folder in _CODE:
        compileall.compile_dir(_ROOT / folder, quiet=2, rx=_TEST_FILE)
    os.environ[FORK_SERVER_VARIABLE] = start_fork_server()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without garbage collections, and keep what was collected out of later ones: all of
    it stays to the end, and looking at it again and again took a third of the collection."""
    gc.disable()
    try:
        _import_own_share(session)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_own_share(session: pytest.Session) -> None:
    """Have each worker begin with other test files, for pytest to rewrite each file in one of them
    and the others to read it."""
    name, count = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("", "_COUNT"))
    if not name or [Path(each) for each in session.config.args] != [Path("tests")]:
        return
    files = sorted((_ROOT / "tests").rglob("test_*.py"))
    for path in files[int(name.removeprefix("gw")) % int(count) :: int(count)]:
        # What is wrong with it is told when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(_ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, and spread the files whose tests mostly wait over the run.

    Otherwise several would wait at once, and the last ones alone at the end.
    """
    files = list(dict.fromkeys(item.path for item in items))
    slow = [path for path in files if _SLOW_FOLDERS.intersection(path.parts)]
    quick = [path for path in files if path not in set(slow)]
    position = {path: n / len(quick) for n, path in enumerate(quick)}
    position |= {path: _SLOW_SHARE * n / len(slow) for n, path in enumerate(slow)}
    position |= {path: -1.0 for path in files if path.name == "test_architecture.py"}
    items.sort(key=lambda item: position[item.path])
