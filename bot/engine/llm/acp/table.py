"""The coding CLIs that speak the Agent Client Protocol: how each is started, and its quirks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.engine.llm.base import Mode

NODE = 22
"""Older ones make npm install old versions of these programs without a word."""


class Resume(StrEnum):
    """How a new process goes on with a session: RESUME replays nothing, LOAD replays it all, NONE
    cannot, and is told in words what was said before."""

    RESUME = "resume"
    LOAD = "load"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One coding CLI. `get` is how to come by it. `env` are the names it is passed where they are
    set, `given` what is always set for it. Any of `keys` in its environment, or of the files
    `logins` in its home, says that somebody is logged in; with neither nobody can tell. `auth` is
    the method to call before a session, by the key that it needs. `modes` are its own names of
    our modes. `files` are written into a new home. `model_env` takes the model where its protocol
    does not. `path` is searched for programs before PATH. `titled`: it asks for leave without the
    arguments, and a command is the title then. `limited`: what to warn of."""

    name: str
    command: tuple[str, ...]
    get: str
    env: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    auth: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[Mode, str] = field(default_factory=dict)
    resume: Resume = Resume.RESUME
    node: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    model_env: str = ""
    path: tuple[str, ...] = ()
    titled: bool = False
    limited: str = ""


def _modes(plan: str, execute: str) -> Mapping[Mode, str]:
    return {Mode.PLAN: plan, Mode.EXECUTE: execute, Mode.REVIEW: plan}


_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")

BUILT_IN: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude-code",
            command=("claude-agent-acp",),
            get="npm install -g @agentclientprotocol/claude-agent-acp",
            env=(*_ANTHROPIC, "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            # Without the first, MCP tools hide behind a search that the model must think of.
            given={"ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1"},
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            logins=(".claude/.credentials.json",),
            modes=_modes("plan", "default"),
            node=NODE,
        ),
        Agent(
            name="opencode",
            command=("opencode", "acp"),
            get="npm install -g opencode-ai",
            env=(*_ANTHROPIC, *_OPENAI, "OPENCODE_API_KEY", "OPENROUTER_API_KEY"),
            given={
                # It asks about nothing by itself.
                "OPENCODE_PERMISSION": '{"bash":"ask","edit":"ask","webfetch":"ask"}',
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
            },
            modes=_modes("plan", "build"),
            node=NODE,
        ),
        Agent(
            name="codex",
            command=("codex-acp",),
            get="npm install -g @agentclientprotocol/codex-acp",
            env=(*_OPENAI, "CODEX_API_KEY"),
            keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
            logins=(".codex/auth.json", ".codex/config.toml"),
            auth={"CODEX_API_KEY": "api-key", "OPENAI_API_KEY": "api-key"},
            # In its own `agent` mode it runs commands within the folder without asking.
            modes=_modes("read-only", "read-only"),
            node=NODE,
        ),
        Agent(
            name="qwen",
            command=("qwen", "--acp"),
            get="npm install -g @qwen-code/qwen-code",
            env=(*_OPENAI, "OPENAI_MODEL", "DASHSCOPE_API_KEY"),
            keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
            logins=(".qwen/oauth_creds.json", ".qwen/settings.json"),
            # It starts in `auto`, where it decides by itself what to ask about.
            modes=_modes("plan", "default"),
            node=NODE,
            model_env="OPENAI_MODEL",
        ),
        Agent(
            name="gemini",
            command=("gemini", "--acp"),
            get="npm install -g @google/gemini-cli",
            # It starts no MCP server where it trusts not the folder, and trusts what lies there in
            # all else too: that is for owners to say.
            env=(
                "GEMINI_API_KEY",
                "GOOGLE_GEMINI_BASE_URL",
                "GEMINI_MODEL",
                "GEMINI_CLI_TRUST_WORKSPACE",
            ),
            keys=("GEMINI_API_KEY",),
            logins=(".gemini/oauth_creds.json",),
            auth={"GEMINI_API_KEY": "gemini-api-key"},
            modes=_modes("plan", "default"),
            resume=Resume.NONE,
            node=NODE,
            model_env="GEMINI_MODEL",
            titled=True,
        ),
        Agent(
            name="codebuddy",
            command=("codebuddy", "--acp"),
            get="backend.get.codebuddy",
            env=("CODEBUDDY_API_KEY", "CODEBUDDY_BASE_URL", *_OPENAI),
            # Else MCP tools hide behind a search that the model must think of.
            given={"CODEBUDDY_DEFER_TOOL_LOADING": "false"},
            keys=("CODEBUDDY_API_KEY",),
            logins=(".codebuddy/credentials.json",),
            modes=_modes("plan", "default"),
            node=NODE,
        ),
        Agent(
            name="iflow",
            command=("iflow", "--experimental-acp"),
            get="backend.get.iflow",
            env=("IFLOW_API_KEY", "IFLOW_BASE_URL"),
            keys=("IFLOW_API_KEY",),
            logins=(".iflow/oauth_creds.json", ".iflow/settings.json"),
            modes=_modes("plan", "default"),
            resume=Resume.LOAD,
            node=NODE,
            limited="backend.cli_untried",
        ),
    )
}
