"""`shiftboss hook` and `shiftboss mcp`: memory for coding CLIs and agents. Hooks never block a CLI:
they print nothing on errors and end after some seconds."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from bot.cli.chat_commands import report_start_failures, resolve_scope

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
) -> None:
    """Serve memory and history to an agent over stdio (MCP)."""
    with report_start_failures():
        # Imported here so that `--help` stays fast.
        from bot.cli.local_execution import answer_message, serve_stdio
        from bot.config.settings import load_settings

        settings = load_settings()
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


def _silence_stdout() -> None:
    """Avoid an error at exit if the reader has closed the pipe."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    os.close(silence)


DEFAULT_SECONDS = 4.5
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
    typer.Option("--seconds", min=0.1, max=600, help="Time limit; after it, print nothing."),
]

_STOP_PROMPT = (
    "Before you end: if something in this session will be worth knowing in another one (a wish of"
    " the user, a decision and why, a pitfall), keep it with the tool store_memory, one fact a"
    " call, and what is left to do with log_session. If not, just end; say nothing about this."
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

    _print_within(tell, seconds)


@hook_cli.command("session-start")
def session_start(
    scope: HookScopeOption = None, seconds: HookSecondsOption = DEFAULT_SECONDS
) -> None:
    """Print the standing memories for this folder."""

    def tell(said: dict[str, Any]) -> str:
        return _recall_text("session-start", _session_folder(said).name, said, scope)

    _print_within(tell, seconds)


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
    typer.echo(json.dumps({"hooks": _hook_settings()}, indent=2))


def _hook_settings() -> dict[str, Any]:
    def run(name: str, **matcher: str) -> list[dict[str, Any]]:
        command = {"type": "command", "command": f"shiftboss hook {name}", "timeout": 5}
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
    build_text: Callable[[dict[str, Any]], str], seconds: float = DEFAULT_SECONDS
) -> None:
    """Print the text unless it takes too long."""
    signal.signal(signal.SIGALRM, _exit_silently)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    said = ""
    try:
        said = build_text(_read_input())
    except Exception:  # noqa: BLE001 - the boundary of a hook
        # The calling CLI must not be disturbed, and it shows our errors to no one.
        said = ""
    with suppress(OSError):
        sys.stdout.write(said.encode("utf-8", "replace").decode() + "\n" if said else "")
        sys.stdout.flush()
    _exit_silently(0, None)


def _exit_silently(_signal: int, _frame: FrameType | None) -> None:
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
    from bot.config.settings import load_settings

    scopes = [resolve_scope(each, _session_folder(event)) for each in scope or DEFAULT_SCOPES]
    return answer_hook(load_settings(), hook, text, scopes)


def _is_first_stop(session: str) -> bool:
    """Recorded in the data directory, so that each session is asked once."""
    import hashlib

    from bot.config.settings import load_settings

    if not session:
        return False
    name = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    notes = load_settings().home / "hooks"
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
