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

from bot.engine.llm.acp.agent_config import BUILT_IN_AGENTS, AcpAgentConfig
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.acp.runtime import AcpRuntime
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import RunPurpose, RunRequest
from tests.emulators.acp.fake_cli import launch_unsandboxed
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply

FOLDER = os.environ.get("SHIFTBOSS_REAL_CLI", "")
"""Where `npm install --prefix` has put them; `bin/node` there goes before the one on PATH."""

NAMES = ("claude-code", "opencode", "qwen", "codex", "gemini", "codebuddy")
NO_VERSION = ("codebuddy",)
MADE_FILE = "made.txt"
DONE = {"status": "done", "summary": "The file is made.", "files": [MADE_FILE]}
_FINAL_TEXT = f"I have tried.\n```json\n{json.dumps(DONE)}\n```"
# Our service takes no more than this.
EXTRA_ENV = {
    "claude-code": {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000"},
    "gemini": {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
}
_SCRIPTS = "functions::exec"
_SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", _SCRIPTS)


class AnyModelName:
    """Each CLI has models of its own by name: all are known."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(("local-model",))


def is_installed(name: str) -> bool:
    return bool(FOLDER) and shutil.which(BUILT_IN_AGENTS[name].command[0], path=_path()) is not None


def _path() -> str:
    root = Path(FOLDER)
    return f"{root / 'bin'}:{root / 'node_modules' / '.bin'}:{os.environ['PATH']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledCli:
    """One CLI in a home of its own."""

    agent: AcpAgentConfig
    models: ModelEmulator
    root: Path
    workspace: Path

    def backend(self, **runtime_options: Any) -> AcpBackend:
        around = {
            "PATH": _path(),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **service_variables(self.models),
        }
        given: dict[str, Any] = {
            "root": self.root,
            "environ": around,
            "slots": asyncio.Semaphore(1),
            "new_id": lambda: os.urandom(4).hex(),
            "approval_wait": 900.0,
            "max_run_seconds": 3600.0,
            "launch": launch_unsandboxed,
            "idle_timeout": 120.0,
            "idle": IdleProcess(0),
        }
        return AcpBackend(lambda: self.agent, AcpRuntime(**(given | runtime_options)))

    def step(self, prompt: str, **more: Any) -> RunRequest:
        asked: dict[str, Any] = {
            "purpose": RunPurpose.STEP,
            "prompt": prompt,
            "system": "You work on one step of a task.",
            "model": "",
            "language": "en",
            "workspace": self.workspace,
            "result": StepAnswer,
            "persona": "pragmatist",
        }
        return RunRequest(**(asked | more))


def install_cli(name: str, models: ModelEmulator, root: Path) -> InstalledCli:
    given = {**BUILT_IN_AGENTS[name].fixed_env, **EXTRA_ENV.get(name, {})}
    agent = replace(BUILT_IN_AGENTS[name], files=home_files(name, models), fixed_env=given)
    workspace = root / "workspace"
    workspace.mkdir(parents=True)
    models.known_models = AnyModelName()  # type: ignore[assignment] # stands in for a set of names
    return InstalledCli(agent=agent, models=models, root=root, workspace=workspace)


def service_variables(models: ModelEmulator) -> dict[str, str]:
    """Where each CLI finds the emulated service, and its key."""
    return {
        "ANTHROPIC_BASE_URL": models.url,
        "ANTHROPIC_API_KEY": models.key,
        "OPENAI_BASE_URL": models.openai_url,
        "OPENAI_API_KEY": models.key,
        "OPENAI_MODEL": "local-model",
        "GOOGLE_GEMINI_BASE_URL": models.url,
        "GEMINI_API_KEY": models.key,
        "CODEBUDDY_BASE_URL": models.openai_url,
        "CODEBUDDY_API_KEY": models.key,
    }


def home_files(name: str, models: ModelEmulator) -> Mapping[str, str]:
    match name:
        case "opencode":
            return {".config/opencode/opencode.json": _opencode(models)}
        case "codex":
            return {".codex/config.toml": _codex(models)}
        case _:
            return {}


def _opencode(models: ModelEmulator) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Local",
        "options": {"baseURL": models.openai_url, "apiKey": models.key},
        "models": {"local-model": {"name": "Local"}},
    }
    told = {"model": "local/local-model", "provider": {"local": provider}}
    return json.dumps(told)


def _codex(models: ModelEmulator) -> str:
    return f"""model = "gpt-6.1-sol"
model_provider = "local"

[model_providers.local]
name = "Local"
base_url = "{models.openai_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


def reply_with(text: str, **how: Any) -> Callable[[ReceivedRequest], ScriptedReply]:
    """Says so to whatever it is asked to work on."""
    return lambda asked: side_request_reply(asked) or ScriptedReply(text=text, **how)


def make_file_reply(asked: ReceivedRequest) -> ScriptedReply:
    """Runs one command, then hands in its result."""
    if aside := side_request_reply(asked):
        return aside
    shell = _shell_of(asked.tools)
    if not shell:
        return ScriptedReply(text=_FINAL_TEXT)
    refused = any(word in asked.last_text for word in ("Not allowed", "could not be read"))
    if refused or any(tool == shell for tool, _ in asked.tool_results):
        return ScriptedReply(text=_FINAL_TEXT)
    return ScriptedReply(text="I make it.", calls=(shell_call(asked.tools, f"touch {MADE_FILE}"),))


def shell_call(tools: Mapping[str, Mapping[str, Any]], command: str) -> ScriptedCall:
    """The call that runs this command with the shell tool that the CLI offers."""
    shell = _shell_of(tools)
    if shell == _SCRIPTS:
        escalated = json.dumps(_escalated(command))
        return ScriptedCall(name=shell, raw=f"text(await tools.exec_command({escalated}))")
    return ScriptedCall(name=shell, arguments=_arguments(tools[shell], command))


def _shell_of(tools: Mapping[str, Any]) -> str:
    return next((name for name in _SHELLS if name in tools), "")


def _escalated(command: str) -> dict[str, Any]:
    """Codex's own sandbox lets nothing be written: a model has to ask to be let out."""
    return {
        "cmd": command,
        "sandbox_permissions": "require_escalated",
        "justification": "May I write it?",
    }


def _arguments(form: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The same command for each shell, in the words of its form."""
    known, required = form.get("properties", {}), form.get("required", [])
    if "cmd" in known:
        return _escalated(command)
    arguments: dict[str, Any] = {"command": command, "description": "Do it"}
    return arguments | ({"is_background": False} if "is_background" in required else {})


def side_request_reply(asked: ReceivedRequest) -> ScriptedReply | None:
    """Extra requests of CLIs, without tools: a title, or the choice of a model."""
    if asked.tools:
        return None
    return ScriptedReply(
        text=json.dumps(_example_of_schema(asked.schema)) if asked.schema else "A title"
    )


def _example_of_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    whole = {"INTEGER": 1, "NUMBER": 1, "BOOLEAN": False}
    forms = schema.get("properties", {}).items()
    return {name: whole.get(str(form.get("type")).upper(), "x") for name, form in forms}
