"""Real coding CLIs with a model of ours behind them: an emulated service on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.table import BUILT_IN, Agent
from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import Purpose, RunRequest
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Call, Reply

FOLDER = os.environ.get("SHIFTBOSS_REAL_CLI", "")
"""Where `npm install --prefix` has put them; `bin/node` there goes before the one on PATH."""

NAMES = ("claude-code", "opencode", "qwen", "codex", "gemini", "codebuddy")
NO_VERSION = ("codebuddy",)
MADE = "made.txt"
DONE = {"status": "done", "summary": "The file is made.", "files": [MADE]}
_TRIED = f"I have tried.\n```json\n{json.dumps(DONE)}\n```"
# Our service takes no more than this.
_GIVEN = {
    "claude-code": {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000"},
    "gemini": {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
}
_SCRIPTS = "functions::exec"
_SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", _SCRIPTS)
# Codex's own sandbox lets nothing be written: a model has to ask to be let out.
_OUT = {
    "cmd": f"touch {MADE}",
    "sandbox_permissions": "require_escalated",
    "justification": "May I write it?",
}


class Whatever:
    """Each CLI has models of its own by name: all are known."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(("local-model",))


def is_here(name: str) -> bool:
    return bool(FOLDER) and shutil.which(BUILT_IN[name].command[0], path=_path()) is not None


def _path() -> str:
    root = Path(FOLDER)
    return f"{root / 'bin'}:{root / 'node_modules' / '.bin'}:{os.environ['PATH']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """One CLI in a home of its own."""

    agent: Agent
    models: Models
    root: Path
    workspace: Path

    def backend(self, **house: Any) -> AcpBackend:
        around = {
            "PATH": _path(),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "ANTHROPIC_BASE_URL": self.models.url,
            "ANTHROPIC_API_KEY": self.models.key,
            "OPENAI_BASE_URL": self.models.openai_url,
            "OPENAI_API_KEY": self.models.key,
            "OPENAI_MODEL": "local-model",
            "GOOGLE_GEMINI_BASE_URL": self.models.url,
            "GEMINI_API_KEY": self.models.key,
            "CODEBUDDY_BASE_URL": self.models.openai_url,
            "CODEBUDDY_API_KEY": self.models.key,
        }
        given: dict[str, Any] = {
            "root": self.root,
            "around": around,
            "slots": asyncio.Semaphore(1),
            "new_id": lambda: os.urandom(4).hex(),
            "idle": 120.0,
        }
        return AcpBackend(lambda: self.agent, House(**(given | house)))

    def step(self, prompt: str, **more: Any) -> RunRequest:
        asked: dict[str, Any] = {
            "purpose": Purpose.STEP,
            "prompt": prompt,
            "system": "You work on one step of a task.",
            "model": "",
            "language": "en",
            "workspace": self.workspace,
            "result": StepAnswer,
            "persona": "pragmatist",
        }
        return RunRequest(**(asked | more))


def real(name: str, models: Models, root: Path) -> Real:
    given = {**BUILT_IN[name].given, **_GIVEN.get(name, {})}
    agent = replace(BUILT_IN[name], files=_files(name, models), given=given)
    workspace = root / "workspace"
    workspace.mkdir(parents=True)
    models.known = Whatever()  # type: ignore[assignment] # stands in for a set of names
    return Real(agent=agent, models=models, root=root, workspace=workspace)


def _files(name: str, models: Models) -> Mapping[str, str]:
    match name:
        case "opencode":
            return {".config/opencode/opencode.json": _opencode(models)}
        case "codex":
            return {".codex/config.toml": _codex(models)}
        case _:
            return {}


def _opencode(models: Models) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Local",
        "options": {"baseURL": models.openai_url, "apiKey": models.key},
        "models": {"local-model": {"name": "Local"}},
    }
    told = {"model": "local/local-model", "provider": {"local": provider}}
    return json.dumps(told)


def _codex(models: Models) -> str:
    return f"""model = "gpt-6.1-sol"
model_provider = "local"

[model_providers.local]
name = "Local"
base_url = "{models.openai_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


def says(text: str, **how: Any) -> Callable[[Asked], Reply]:
    """Says so to whatever it is asked to work on."""
    return lambda asked: _aside(asked) or Reply(text=text, **how)


def makes_a_file(asked: Asked) -> Reply:
    """Runs one command, then hands in its result."""
    if aside := _aside(asked):
        return aside
    shell = next((name for name in _SHELLS if name in asked.tools), "")
    if not shell:
        return Reply(text=_TRIED)
    refused = any(word in asked.last for word in ("Not allowed", "could not be read"))
    if refused or any(tool == shell for tool, _ in asked.results):
        return Reply(text=_TRIED)
    if shell == _SCRIPTS:
        call = Call(name=shell, raw=f"text(await tools.exec_command({json.dumps(_OUT)}))")
    else:
        call = Call(name=shell, arguments=_arguments(asked.tools[shell]))
    return Reply(text="I make it.", calls=(call,))


def _arguments(form: Mapping[str, Any]) -> dict[str, Any]:
    """The same command for each shell, in the words of its form."""
    known, required = form.get("properties", {}), form.get("required", [])
    if "cmd" in known:
        return dict(_OUT)
    arguments: dict[str, Any] = {"command": f"touch {MADE}", "description": "Make a file"}
    return arguments | ({"is_background": False} if "is_background" in required else {})


def _aside(asked: Asked) -> Reply | None:
    """What they ask beside the work, without tools: a title, or which model is to do it."""
    if asked.tools:
        return None
    return Reply(text=json.dumps(_filled(asked.schema)) if asked.schema else "A title")


def _filled(schema: Mapping[str, Any]) -> dict[str, Any]:
    whole = {"INTEGER": 1, "NUMBER": 1, "BOOLEAN": False}
    forms = schema.get("properties", {}).items()
    return {name: whole.get(str(form.get("type")).upper(), "x") for name, form in forms}
