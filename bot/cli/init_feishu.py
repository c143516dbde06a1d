"""The part of `shiftboss init` that connects Feishu or Lark."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Callable, Coroutine
from io import StringIO
from typing import TYPE_CHECKING, Any

import typer

from bot.cli.chat_commands import plain_text
from storage.records.channels import FeishuApp, FeishuCodeState, FeishuSetup, SetupSession

if TYPE_CHECKING:
    from bot.app.container import Container
    from bot.app.running_program import RunningProgram
    from bot.config.settings import Settings

_API = "/api/v1/setup/feishu"
_LOOK_SECONDS = 1.0
_BORDER = 2
# A light code on a dark ground, whatever the colours of the terminal.
_COLOURS, _PLAIN = "\033[97;40m", "\033[0m"


def scan_code(settings: Settings) -> bool:
    """Show a code that creates an app, until somebody has confirmed or it is over. True if the app
    is connected."""
    return _report(
        settings, _scan_there, lambda: _as_owner(settings, _scan_here), done="The app is connected."
    )


def connect_app(settings: Settings, new: FeishuApp) -> bool:
    """Try an app, and use it. True if it is connected."""
    body = {"app_id": new.app_id, "app_secret": new.app_secret, "is_lark": new.is_lark}

    def there(running: RunningProgram) -> tuple[bool, str]:
        from bot.cli.local_execution import post_json

        told = post_json(running, _API, json.dumps(body).encode())
        return bool(told["is_connected"]), f"{told['found']} {told['next_step']}"

    async def here(core: Container, _session: SetupSession) -> tuple[bool, str]:
        from cards.catalog import catalog_for
        from cards.views.self_checks import finding_text, next_step_text
        from storage.records.people import Language

        words = catalog_for(Language.ENGLISH)
        finding = await core.services.feishu_setup.connect(new)
        if finding is None:
            return True, ""
        return False, f"{finding_text(finding, words)} {next_step_text(finding, words)}"

    typer.echo("Asking Feishu …")
    done = "The app is connected. `shiftboss doctor` says what it lacks."
    return _report(settings, there, lambda: _as_owner(settings, here), done=done)


def ask_and_connect(settings: Settings) -> bool:
    typer.echo("  1. Create an app: scan a code with your phone\n  2. Connect an app that exists")
    if typer.prompt("Number", type=int, default=1) == 1:
        return scan_code(settings)
    return connect_app(
        settings,
        FeishuApp(
            app_id=typer.prompt("App ID"),
            app_secret=typer.prompt("App Secret (hidden)", hide_input=True),
            is_lark=typer.confirm("Is it an app of Lark (larksuite.com)?"),
        ),
    )


def _report(
    settings: Settings,
    there: Callable[[RunningProgram], tuple[bool, str]],
    here: Callable[[], Coroutine[Any, Any, tuple[bool, str]]],
    *,
    done: str,
) -> bool:
    from bot.cli.local_execution import CommandRefused, run_here, run_remote_or_local

    is_running = False

    def ask_running(running: RunningProgram) -> tuple[bool, str]:
        nonlocal is_running
        is_running = True
        return there(running)

    try:
        is_connected, told = run_remote_or_local(
            settings, ask_running, lambda: run_here(settings, here)
        )
    except CommandRefused as refused:
        is_connected, told = False, str(refused)
    if not is_connected:
        typer.echo(f"⚠️ {plain_text(told)}", err=True)
        return False
    typer.echo(f"✅ {plain_text(told or done)} The setup is in {settings.home / '.env'}.")
    if not is_running:
        typer.echo("Start it: shiftboss run")
    return True


def _scan_there(running: RunningProgram) -> tuple[bool, str]:
    from bot.cli.local_execution import post_json

    def order(name: str) -> dict[str, Any]:
        answer = post_json(running, f"{_API}/code", json.dumps({"order": name}).encode())
        return dict(answer["code"] or {"state": "", "message": "The code was cancelled."})

    code = order("show")
    if code["state"] == FeishuCodeState.WAITING:
        _print_code(code["url"])
    try:
        while code["state"] in {FeishuCodeState.WAITING, FeishuCodeState.UNSAVED}:
            if code["state"] == FeishuCodeState.UNSAVED:
                if not _wants_to_save_again(code["message"]):
                    break
                code = order("save_again")
                continue
            time.sleep(_LOOK_SECONDS)
            answer = post_json(running, _API, None)["code"]
            code = answer or {"state": "", "message": "Another session has shown a code since."}
    except KeyboardInterrupt:
        order("cancel")
        raise
    return code["state"] == FeishuCodeState.CONNECTED, code["message"]


async def _scan_here(core: Container, session: SetupSession) -> tuple[bool, str]:
    setup = core.services.feishu_setup
    found = await setup.show_code(session)
    if _state_of(found) is FeishuCodeState.WAITING and found.code is not None:
        _print_code(found.code.url)
    try:
        while (state := _state_of(found)) in {FeishuCodeState.WAITING, FeishuCodeState.UNSAVED}:
            if state is FeishuCodeState.WAITING:
                await asyncio.sleep(_LOOK_SECONDS)
            elif await asyncio.to_thread(_wants_to_save_again, _tell(found)):
                await setup.save_again(session)
            else:
                break
            found = await setup.get_setup(session)
    except asyncio.CancelledError:
        await setup.cancel(session)
        raise
    return state is FeishuCodeState.CONNECTED, _tell(found)


def _state_of(setup: FeishuSetup) -> FeishuCodeState | None:
    return setup.code.state if setup.code else None


def _tell(setup: FeishuSetup) -> str:
    from cards.catalog import catalog_for
    from cards.views.channels import code_text
    from handlers.middleware import explain_error
    from storage.records.people import Language

    words = catalog_for(Language.ENGLISH)
    if setup.code is None:
        return "The code was cancelled."
    told = code_text(setup.code, words)
    if setup.code.error is None:
        return told
    explained = explain_error(setup.code.error, words, "init")
    return f"{told} {explained.title}. {explained.hint}"


def _wants_to_save_again(problem: str) -> bool:
    if not sys.stdin.isatty():
        return False
    typer.echo(f"⚠️ {plain_text(problem)}", err=True)
    return typer.confirm("Save again?", default=True)


async def _as_owner(
    settings: Settings, work: Callable[[Container, SetupSession], Coroutine[Any, Any, Any]]
) -> Any:
    from bot.app.container import open_container
    from bot.cli.local_execution import CommandRefused
    from cards.catalog import catalog_for
    from handlers.errors import UserError
    from storage.records.people import Language

    async with open_container(settings) as core:
        chat = await core.get_local_chat()
        assert chat.person_id is not None, "a private chat has a person"
        try:
            return await work(core, SetupSession(person_id=chat.person_id))
        except UserError as error:
            words = catalog_for(Language.ENGLISH)
            told = (words(f"error.{error.key}.{part}", **error.facts) for part in ("title", "hint"))
            raise CommandRefused(". ".join(told)) from error


def _print_code(url: str) -> None:
    import segno

    code = segno.make_qr(url, error="l")
    drawn = StringIO()
    code.terminal(drawn, compact=True, border=_BORDER)
    lines = drawn.getvalue().splitlines()
    window = shutil.get_terminal_size()
    if sys.stdout.isatty():
        lines = [f"{_COLOURS}{line}{_PLAIN}" for line in lines]
    typer.echo("\n".join(lines))
    width, height = code.symbol_size(border=_BORDER)[0], len(lines)
    if sys.stdout.isatty() and (window.columns < width or window.lines < height + 3):
        typer.echo(f"Make the window at least {width} × {height + 3} to see the whole code.")
    typer.echo(
        "Scan it with Feishu or Lark on your phone, and confirm there. Or open the page:\n"
        f"{url}\nWhoever confirms becomes an owner of this Shiftboss. Ctrl-C cancels."
    )
