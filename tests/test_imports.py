"""Modules that Shiftboss loads at the start, which cost everyone memory and seconds."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.waiting import WAIT_SECONDS

OURS = frozenset({"bot", "cards", "handlers", "storage"})
HELP = OURS | {"annotated_doc", "shellingham", "typer"}
ENGINE = {
    "bot.app.container",
    "bot.engine.agent.memory_hooks",
    "bot.engine.workflow.runner",
    "handlers.router",
}
SERVER = {"apscheduler", "starlette", "uvicorn", "websockets"}
RUN = (
    HELP
    | ENGINE
    | {
        "aiosqlite",
        *("apscheduler", "tzlocal"),
        "annotated_types",
        "anyio",
        "cython_runtime",
        "dotenv",
        "greenlet",
        "h11",
        "httptools",
        "idna",
        "pydantic",
        "pydantic_core",
        "pydantic_settings",
        "python_multipart",
        "sniffio",
        "sqlalchemy",
        "starlette",
        "typing_extensions",
        "typing_inspection",
        "uvicorn",
        "uvloop",
        "websockets",
        "yaml",
    }
)
LATER = {
    "bot.dashboard.app",
    "bot.engine.agent.request_check",
    "bot.engine.agent.requested_files",
    "bot.engine.agent.requested_values",
    "bot.engine.llm.offline.backend",
    "bot.engine.memory.explicit_statements",
    "bot.engine.memory.self_statements",
    "bot.engine.schedule.time_phrases",
    "bot.setup.bitable_setup",
    "bot.sync.ports",
    "bot.transports.feishu.bitable",
    "cards.render.web",
}
"""Our own modules with many patterns or a large library, for a first message, task or page."""

UNUSED = {"argparse", "configparser", "multiprocessing"}
"""Of the standard library: what our libraries load for a command line and other processes."""

ONCE = {"alembic", "mako", "markupsafe", "pygments", "argparse", "configparser"}
"""To make the database, and not at later starts."""

HTTPX = {"certifi", "httpcore", "httpx"}
"""Not pygments and rich, which its own command line brings where they are installed."""

TELEGRAM = HTTPX | {"telegram", "telegramify_markdown"}
FEISHU = HTTPX
MODELS = {
    *("anthropic", "openai", "pydantic_ai", "genai_prices", "httpx2", "numpy", "opentelemetry"),
    *("mcp", "mcp_types", "cryptography", "jsonschema"),
}

_PROBE = """
import atexit, json, os, sys
def tell():
    with open(os.environ["LOADED"], "w") as file:
        there = [name for name, module in sys.modules.items() if module is not None]
        json.dump(there, file)
atexit.register(tell)
end = os._exit
os._exit = lambda status: (tell(), end(status))
from bot.__main__ import main
main()
"""


async def loaded(home: Path, *command: str, **settings: str) -> frozenset[str]:
    """The packages that a life of the program has loaded, without the standard library, and those
    of our modules that not every life should have. `run` is stopped as soon as it is ready."""
    note = home.parent / f"{home.name}.loaded"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROBE,
        *command,
        cwd=home.parent,
        env=environment(home, note, settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = b""
    async with asyncio.timeout(WAIT_SECONDS):
        async for line in process.stdout:
            printed += line
            if "run" in command and b"is ready" in line:
                process.terminate()
        assert await process.wait() == 0, printed.decode()
    modules = frozenset(json.loads(note.read_text()))
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    packages |= modules & UNUSED
    return frozenset(name for name in packages if not name.startswith("_")) | modules & (
        LATER | ENGINE
    )


def environment(home: Path, note: Path, settings: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
        if name in os.environ
    }
    paths = {"SHIFTBOSS_HOME": str(home), "LOADED": str(note)}
    return {**kept, **paths, "SHIFTBOSS_WEB_PORT": "0", "PYTHONUNBUFFERED": "1", **settings}


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the program has run before."""
    home = tmp_path_factory.mktemp("data") / "home"
    first = asyncio.run(loaded(home, "run"))
    assert first <= RUN | ONCE, sorted(first - RUN - ONCE)
    return home


async def test_help_imports_almost_nothing(tmp_path: Path) -> None:
    found = await loaded(tmp_path / "home", "--help")

    assert found <= HELP, sorted(found - HELP)


async def test_the_status_of_a_program_that_does_not_run_loads_no_engine(used_home: Path) -> None:
    found = await loaded(used_home, "status")

    assert found & {"sqlalchemy", "bot"}
    assert not found & (ENGINE | SERVER | MODELS), sorted(found)


async def test_a_hook_without_a_running_program_loads_no_engine(used_home: Path) -> None:
    found = await loaded(used_home, "hook", "session-start")

    assert found & {"sqlalchemy", "bot"}
    assert not found & (ENGINE | SERVER | MODELS), sorted(found)


async def test_a_start_with_nothing_configured_loads_no_platform_and_no_model(
    used_home: Path,
) -> None:
    found = await loaded(used_home, "run")

    assert found <= RUN, sorted(found - RUN)
    # Command lines, also our own, and process pools of libraries are left out.
    assert not found & (UNUSED | {"click", "rich", "typer"})


async def test_a_model_sdk_is_not_loaded_before_its_first_use(used_home: Path) -> None:
    async with ModelEmulator() as models:
        found = await loaded(
            used_home, "run", ANTHROPIC_API_KEY=models.key, ANTHROPIC_BASE_URL=models.url
        )

    assert found <= RUN, sorted(found - RUN)


async def test_each_platform_loads_its_own_library_only(used_home: Path) -> None:
    async with TelegramEmulator() as telegram:
        with_telegram = await loaded(
            used_home,
            "run",
            **telegram.settings,
        )
    async with FeishuEmulator() as feishu:
        with_feishu = await loaded(
            used_home,
            "run",
            **feishu.settings,
        )

    assert with_telegram <= RUN | TELEGRAM, sorted(with_telegram - RUN - TELEGRAM)
    assert with_feishu <= RUN | FEISHU, sorted(with_feishu - RUN - FEISHU)
    assert not (MODELS | {"alembic"}) & (with_telegram | with_feishu)
