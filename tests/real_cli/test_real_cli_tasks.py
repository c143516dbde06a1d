"""Opt-in: real coding CLIs under the real program do five kinds of tasks. See docs/agents.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.journeys.platform_world import platform_world
from tests.real_cli.builders import (
    EXTRA_ENV,
    FOLDER,
    NAMES,
    AnyModelName,
    home_files,
    is_installed,
    service_variables,
    shell_call,
    side_request_reply,
)
from tests.real_model.task_kinds import TASK_KINDS, TaskKind, run_task_kind, write_given_files

pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="SHIFTBOSS_REAL_CLI names no folder"),
    pytest.mark.timeout(1800),
]
PATIENCE = 300.0
_PLAN_FIELD = '"steps"'


def do_the_task(asked: ReceivedRequest) -> ScriptedReply:
    """Plan one step, do it by one command, and report what it brought."""
    if aside := side_request_reply(asked):
        return aside
    told = " ".join(asked.user_texts)
    kind = next((kind for kind in TASK_KINDS if kind.instruction in told), None)
    if kind is None:
        return ScriptedReply(text="Of which task?")
    if _PLAN_FIELD in asked.last_text:
        return _json_reply({"plan": "", "steps": [{"title": kind.instruction}], "answer": ""})
    if asked.tool_results:
        return _json_reply({"status": "done", "summary": kind.report, "files": []})
    return ScriptedReply(text="I do it.", calls=(shell_call(asked.tools, kind.command),))


def boast(asked: ReceivedRequest) -> ScriptedReply:
    """Plan and report as above, and do nothing."""
    reply = do_the_task(asked)
    if not reply.calls:
        return reply
    kind: TaskKind = next(k for k in TASK_KINDS if k.instruction in " ".join(asked.user_texts))
    return _json_reply({"status": "done", "summary": kind.report, "files": []})


def _json_reply(value: Mapping[str, Any]) -> ScriptedReply:
    return ScriptedReply(text=f"```json\n{json.dumps(value)}\n```")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    write_given_files(tmp_path)
    return made


def connect(name: str, models: ModelEmulator, home: Path) -> dict[str, str]:
    """Write the CLI's settings into the home; return those of the program."""
    models.known_models = AnyModelName()  # type: ignore[assignment] # stands in for a set of names
    agent = {"set": dict(EXTRA_ENV.get(name, {})), "files": dict(home_files(name, models))}
    path = [f"{FOLDER}/bin", f"{FOLDER}/node_modules/.bin"]
    (home / "agents.yaml").write_text(yaml.safe_dump({"path": path, "agents": {name: agent}}))
    return {"SHIFTBOSS_MODEL": f"acp:{name}", **service_variables(models)}


@pytest.mark.parametrize("name", NAMES)
async def test_a_real_cli_does_every_kind_of_task(name: str, home: Path, tmp_path: Path) -> None:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed there")
    async with ModelEmulator() as models:
        models.replies(do_the_task)
        async with platform_world(home, **connect(name, models, home)) as here:
            outcomes = [await run_task_kind(here, kind, tmp_path, PATIENCE) for kind in TASK_KINDS]

    assert [each for each in outcomes if not (each.claimed and each.done)] == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_cli_that_left_no_file_has_not_succeeded(
    name: str, home: Path, tmp_path: Path
) -> None:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed there")
    async with ModelEmulator() as models:
        models.replies(boast)
        async with platform_world(home, **connect(name, models, home)) as here:
            writing = [kind for kind in TASK_KINDS if kind.name in {"write", "edit", "translate"}]
            outcomes = [await run_task_kind(here, kind, tmp_path, PATIENCE) for kind in writing]

    assert [each for each in outcomes if each.claimed or each.done] == []
