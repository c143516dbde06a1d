"""`shiftboss hook` and `shiftboss mcp`: memory for coding CLIs and agents. Hooks never block a CLI:
they print nothing on errors, and say so when they find nothing in time."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bot.cli.chat_commands import resolve_scope
from bot.cli.failures import report_start_failures
from bot.cli.serving import program_command

if TYPE_CHECKING:
    from bot.config.settings import Settings

DEFAULT_SCOPES = ("project", "global")


def mcp(
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="The memories to serve and to save to: project:/FOLDER, project (the current"
            " folder), skill:NAME, global or me. Repeat for more; by default project and global.",
        ),
    ] = None,
    *,
    print_: Annotated[
        bool, typer.Option("--print", help="Only print what connects an agent to this server.")
    ] = False,
) -> None:
    """Serve memory and history to an agent over stdio (MCP)."""
    with report_start_failures():
        if print_:
            typer.echo(_mcp_settings(scope or ()))
            return
        # Imported here so that `--help` stays fast.
        from bot.cli.local_execution import answer_message, serve_stdio

        settings = _load_settings()
        scopes = [resolve_scope(each) for each in scope or DEFAULT_SCOPES]
        try:
            serve_stdio(
                lambda message: answer_message(settings, message, scopes),
                sys.stdin.buffer,
                sys.stdout.buffer,
            )
        except KeyboardInterrupt:
            pass
        finally:
            _silence_stdout()


def _mcp_settings(scopes: Sequence[str]) -> str:
    """Commands that work in any folder and with any PATH. A relative scope is that of the agent's
    folder."""
    program, home = program_command(), str(_load_settings().home)
    arguments = [*program, "mcp", *(part for each in scopes for part in ("--scope", each))]
    server = {
        "command": arguments[0],
        "args": arguments[1:],
        "env": {_HOME_VARIABLE: home},
    }
    added = shlex.join(
        ["claude", "mcp", "add", "shiftboss", "--env", f"{_HOME_VARIABLE}={home}", "--", *arguments]
    )
    shown = json.dumps({"mcpServers": {"shiftboss": server}}, indent=2, ensure_ascii=False)
    return f"# Claude Code:\n{added}\n\n# Other agents, in their settings:\n{shown}"


def _load_settings() -> Settings:
    """An agent's folder is any project's: its `.env` counts only if no data directory is named."""
    # Imported here so that `--help` stays fast.
    from bot.config.settings import load_settings

    return load_settings(env_files=()) if os.environ.get(_HOME_VARIABLE) else load_settings()


def _silence_stdout() -> None:
    """Avoid an error at exit if the reader has closed the pipe."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    os.close(silence)


DEFAULT_SECONDS = 4.5
_CLI_TIMEOUT = 10
"""Seconds that a CLI waits for a hook: beyond ours for a slow start of the process."""
_HOME_VARIABLE = "SHIFTBOSS_HOME"
_MAX_INPUT = 4_000_000
_MIN_PROMPT = 3
_NOTE_LIFETIME = 30 * 24 * 3600

hook_cli = typer.Typer(no_args_is_help=True, help="Serve memory to the hooks of coding CLIs.")

HookScopeOption = Annotated[
    list[str] | None,
    typer.Option("--scope", help="As in `shiftboss mcp`; by default project and global."),
]

HookSecondsOption = Annotated[
    float,
    typer.Option("--seconds", min=0.1, max=600, help="Time limit; after it, say so and end."),
]

_STOP_PROMPT = (
    "Before you end: if something in this session will be worth knowing in another one (a wish of"
    " the user, a decision and why, a pitfall), keep it with the tool store_memory, one fact a"
    " call, and what is left to do with log_session. If not, just end; say nothing about this."
)
_LATE_NOTE = (
    "Shiftboss did not search its memory: there was no answer within {seconds:g} s. If you need"
    " something that may be remembered, use the tool recall_memory."
)
_COMPACTED_NOTE = (
    "The conversation was just shortened. If something seems to be missing, look it up with the"
    " tool recall_memory before you ask the user for it."
)


@hook_cli.command("user-prompt")
def user_prompt(
    scope: HookScopeOption = None, seconds: HookSecondsOption = DEFAULT_SECONDS
) -> None:
    """Print memories that match the user's prompt."""

    def tell(said: dict[str, Any]) -> str:
        prompt = str(said.get("prompt") or "").strip()
        return (
            _recall_text("user-prompt", prompt, said, scope) if len(prompt) >= _MIN_PROMPT else ""
        )

    _print_within(tell, seconds, late_note=_LATE_NOTE)


@hook_cli.command("session-start")
def session_start(
    scope: HookScopeOption = None, seconds: HookSecondsOption = DEFAULT_SECONDS
) -> None:
    """Print the standing memories for this folder."""

    def tell(said: dict[str, Any]) -> str:
        return _recall_text("session-start", _session_folder(said).name, said, scope)

    _print_within(tell, seconds, late_note=_LATE_NOTE)


@hook_cli.command("stop")
def stop() -> None:
    """Remind the agent once per session to save its lessons."""

    def tell(said: dict[str, Any]) -> str:
        if said.get("stop_hook_active") or not _is_first_stop(str(said.get("session_id") or "")):
            return ""
        return json.dumps({"decision": "block", "reason": _STOP_PROMPT})

    _print_within(tell)


@hook_cli.command("post-compact")
def post_compact() -> None:
    """Print how to search history after a compacted conversation."""
    _print_within(lambda _said: _COMPACTED_NOTE)


@hook_cli.command("install")
def install(
    print_: Annotated[
        bool, typer.Option("--print", help="Only print the settings; change no file.")
    ] = True,
) -> None:
    """Print the hook settings for Claude Code."""
    del print_
    with report_start_failures():
        typer.echo(json.dumps({"hooks": _hook_settings()}, indent=2, ensure_ascii=False))


def _hook_settings() -> dict[str, Any]:
    """Commands that work with any PATH and environment."""
    home = f"{_HOME_VARIABLE}={shlex.quote(str(_load_settings().home))}"

    def run(name: str, **matcher: str) -> list[dict[str, Any]]:
        line = f"{home} {shlex.join([*program_command(), 'hook', name])}"
        command = {"type": "command", "command": line, "timeout": _CLI_TIMEOUT}
        return [{**matcher, "hooks": [command]}]

    return {
        "UserPromptSubmit": run("user-prompt"),
        "SessionStart": [
            *run("session-start", matcher="startup|resume|clear"),
            *run("post-compact", matcher="compact"),
        ],
        "Stop": run("stop"),
    }


def _print_within(
    build_text: Callable[[dict[str, Any]], str],
    seconds: float = DEFAULT_SECONDS,
    *,
    late_note: str = "",
) -> None:
    """Print the text, or `late_note` if it takes too long, and end the process."""

    def end_late(_signal: int, _frame: FrameType | None) -> NoReturn:
        _print_and_exit(late_note.format(seconds=seconds))

    signal.signal(signal.SIGALRM, end_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    said = ""
    try:
        said = build_text(_read_input())
    except Exception:  # noqa: BLE001 - the boundary of a hook
        # The calling CLI must not be disturbed, and it shows our errors to no one.
        said = ""
    signal.setitimer(signal.ITIMER_REAL, 0)
    _print_and_exit(said)


def _print_and_exit(text: str) -> NoReturn:
    with suppress(OSError):
        sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n" if text else "")
        sys.stdout.flush()
    # Exit without cleanup, which would wait for a blocked store.
    os._exit(0)


def _read_input() -> dict[str, Any]:
    told = json.loads(sys.stdin.buffer.read(_MAX_INPUT) or b"{}")
    return told if isinstance(told, dict) else {}


def _session_folder(event: dict[str, Any]) -> Path:
    return Path(str(event.get("cwd") or Path.cwd()))


def _recall_text(hook: str, text: str, event: dict[str, Any], scope: list[str] | None) -> str:
    # Imported here so that `--help` stays fast.
    from bot.cli.local_execution import answer_hook

    scopes = [resolve_scope(each, _session_folder(event)) for each in scope or DEFAULT_SCOPES]
    return answer_hook(_load_settings(), hook, text, scopes)


def _is_first_stop(session: str) -> bool:
    """Recorded in the data directory, so that each session is asked once."""
    import hashlib

    if not session:
        return False
    name = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    notes = _load_settings().home / "hooks"
    if not notes.parent.is_dir():
        return False
    notes.mkdir(mode=0o700, exist_ok=True)
    try:
        (notes / name).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    _delete_old_notes(notes, before=time.time() - _NOTE_LIFETIME)
    return True


def _delete_old_notes(notes: Path, *, before: float) -> None:
    for each in notes.iterdir():
        with suppress(OSError):
            if each.lstat().st_mtime < before:
                each.unlink()
