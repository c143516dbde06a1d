"""`shiftboss hook`: what coding CLIs run at their hooks. Never in their way: whatever goes wrong is
silence, and at the latest after some seconds."""

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

from bot.cli.agents.mcp import USUAL
from bot.cli.memory.scopes import named

SECONDS = 4.5
_LONGEST = 4_000_000
_SHORTEST = 3
_KEPT = 30 * 24 * 3600

cli = typer.Typer(no_args_is_help=True, help="What coding CLIs run at their hooks.")

Scope = Annotated[
    list[str] | None,
    typer.Option("--scope", help="As for `shiftboss mcp`: as a rule project and global."),
]

Seconds = Annotated[
    float,
    typer.Option("--seconds", min=0.1, max=600, help="How long at most: then it says nothing."),
]

_ASK = (
    "Before you end: if something in this session will be worth knowing in another one (a wish of"
    " the user, a decision and why, a pitfall), keep it with the tool store_memory, one fact a"
    " call, and what is left to do with log_session. If not, just end; say nothing about this."
)
_COMPACTED = (
    "The conversation was just shortened. If something seems to be missing, look it up with the"
    " tool recall_memory before you ask the user for it."
)


@cli.command("user-prompt")
def user_prompt(scope: Scope = None, seconds: Seconds = SECONDS) -> None:
    """Print what is remembered that fits the user's words."""

    def tell(said: dict[str, Any]) -> str:
        prompt = str(said.get("prompt") or "").strip()
        return _remembered("user-prompt", prompt, said, scope) if len(prompt) >= _SHORTEST else ""

    _quietly(tell, seconds)


@cli.command("session-start")
def session_start(scope: Scope = None, seconds: Seconds = SECONDS) -> None:
    """Print what is always worth knowing in this folder."""

    def tell(said: dict[str, Any]) -> str:
        return _remembered("session-start", _folder(said).name, said, scope)

    _quietly(tell, seconds)


@cli.command("stop")
def stop() -> None:
    """Ask once in a session to keep what was learned in it."""

    def tell(said: dict[str, Any]) -> str:
        if said.get("stop_hook_active") or not _is_first(str(said.get("session_id") or "")):
            return ""
        return json.dumps({"decision": "block", "reason": _ASK})

    _quietly(tell)


@cli.command("post-compact")
def post_compact() -> None:
    """Say after a conversation was shortened where to look things up."""
    _quietly(lambda _said: _COMPACTED)


@cli.command("install")
def install(
    print_: Annotated[
        bool, typer.Option("--print", help="Nothing else is done: the file is yours.")
    ] = True,
) -> None:
    """Print what to put into the settings of Claude Code."""
    del print_
    typer.echo(json.dumps({"hooks": _snippet()}, indent=2))


def _snippet() -> dict[str, Any]:
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


def _quietly(tell: Callable[[dict[str, Any]], str], seconds: float = SECONDS) -> None:
    """Print what it tells, unless it takes too long."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    said = ""
    try:
        said = tell(_read())
    except Exception:  # noqa: BLE001 - the boundary of a hook
        # Whatever it is: the CLI that runs us has work to do, and nobody reads what we complain of.
        said = ""
    with suppress(OSError):
        sys.stdout.write(said.encode("utf-8", "replace").decode() + "\n" if said else "")
        sys.stdout.flush()
    _give_up(0, None)


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    # No farewell: a store that hangs would be waited for.
    os._exit(0)


def _read() -> dict[str, Any]:
    told = json.loads(sys.stdin.buffer.read(_LONGEST) or b"{}")
    return told if isinstance(told, dict) else {}


def _folder(said: dict[str, Any]) -> Path:
    return Path(str(said.get("cwd") or Path.cwd()))


def _remembered(hook: str, text: str, said: dict[str, Any], scope: list[str] | None) -> str:
    # Loaded here and not above, so that `--help` stays quick.
    from bot.app.terminal.serving import hooked
    from bot.config.settings import load_settings

    scopes = [named(each, _folder(said)) for each in scope or USUAL]
    return hooked(load_settings(), hook, text, scopes)


def _is_first(session: str) -> bool:
    """Noted in the data folder, so that nobody is asked at every answer."""
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
    _sweep(notes, before=time.time() - _KEPT)
    return True


def _sweep(notes: Path, *, before: float) -> None:
    """Of sessions that nobody goes on with."""
    for each in notes.iterdir():
        with suppress(OSError):
            if each.lstat().st_mtime < before:
                each.unlink()
