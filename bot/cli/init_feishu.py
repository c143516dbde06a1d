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

from storage.records.channels import FeishuApp, FeishuCodeState, FeishuSetup, SetupSession

if TYPE_CHECKING:
    from bot.app.container import Container
    from bot.app.running_program import RunningProgram
    from bot.cli.init_session import InitSession
    from storage.records.people import Person

_API = "/api/v1/setup/feishu"
_WAYS = ("app_by_code", "app_by_hand")
_LOOK_SECONDS = 1.0
_BORDER = 2
# A light code on a dark ground, whatever the colours of the terminal.
_COLOURS, _PLAIN = "\033[97;40m", "\033[0m"


def scan_code(session: InitSession) -> bool:
    """Show a code that creates an app, until somebody has confirmed or it is over. True if the app
    is connected."""

    async def here(core: Container, by: Person) -> tuple[bool, str]:
        return await _scan_here(core, SetupSession(person_id=by.id), session)

    return _report(session, lambda running: _scan_there(running, session), here, done="app_done")


def connect_app(session: InitSession, new: FeishuApp) -> bool:
    """Try an app, and use it. True if it is connected."""
    body = {"app_id": new.app_id, "app_secret": new.app_secret, "is_lark": new.is_lark}

    def there(running: RunningProgram) -> tuple[bool, str]:
        told = session.call(running, _API, json.dumps(body).encode())
        return bool(told["is_connected"]), f"{told['found']} {told['next_step']}"

    async def here(core: Container, _by: Person) -> tuple[bool, str]:
        from cards.views.self_checks import finding_text, next_step_text

        finding = await core.services.feishu_setup.connect(new)
        if finding is None:
            return True, ""
        words = session.words
        return False, f"{finding_text(finding, words)} {next_step_text(finding, words)}"

    session.say("asking_feishu")
    return _report(session, there, here, done="app_done_by_hand")


def ask_and_connect(session: InitSession) -> bool:
    for number, key in enumerate(_WAYS, 1):
        typer.echo(f"  {number}. {session.text(key)}")
    if session.ask_number(len(_WAYS)) == 0:
        return scan_code(session)
    return connect_app(
        session,
        FeishuApp(
            app_id=session.ask("app_id"),
            app_secret=session.ask_secret("app_secret"),
            is_lark=session.confirm("is_lark"),
        ),
    )


def _report(
    session: InitSession,
    there: Callable[[RunningProgram], tuple[bool, str]],
    here: Callable[[Container, Person], Coroutine[Any, Any, tuple[bool, str]]],
    *,
    done: str,
) -> bool:
    from bot.cli.local_execution import CommandRefused, run_remote_or_local

    is_running = False

    def ask_running(running: RunningProgram) -> tuple[bool, str]:
        nonlocal is_running
        is_running = True
        return there(running)

    try:
        is_connected, told = run_remote_or_local(
            session.settings,
            ask_running,
            lambda: session.run_here(session.as_owner(here)),
        )
    except CommandRefused as refused:
        is_connected, told = False, str(refused)
    if not is_connected:
        session.warn(told)
        return False
    session.say_connected(told.strip() or session.text(done))
    if not is_running:
        session.say("start")
    return True


def _scan_there(running: RunningProgram, session: InitSession) -> tuple[bool, str]:
    def order(name: str) -> dict[str, Any]:
        answer = session.call(running, f"{_API}/code", json.dumps({"order": name}).encode())
        return dict(answer["code"] or {"state": "", "message": session.text("code_cancelled")})

    code = order("show")
    if code["state"] == FeishuCodeState.WAITING:
        _print_code(code["url"], session)
    try:
        while code["state"] in {FeishuCodeState.WAITING, FeishuCodeState.UNSAVED}:
            if code["state"] == FeishuCodeState.UNSAVED:
                if not _wants_to_save_again(code["message"], session):
                    break
                code = order("save_again")
                continue
            time.sleep(_LOOK_SECONDS)
            answer = session.call(running, _API)["code"]
            code = answer or {"state": "", "message": session.text("code_elsewhere")}
    except KeyboardInterrupt:
        order("cancel")
        raise
    return code["state"] == FeishuCodeState.CONNECTED, code["message"]


async def _scan_here(
    core: Container, setup_session: SetupSession, session: InitSession
) -> tuple[bool, str]:
    setup = core.services.feishu_setup
    found = await setup.show_code(setup_session)
    if _state_of(found) is FeishuCodeState.WAITING and found.code is not None:
        _print_code(found.code.url, session)
    try:
        while (state := _state_of(found)) in {FeishuCodeState.WAITING, FeishuCodeState.UNSAVED}:
            if state is FeishuCodeState.WAITING:
                await asyncio.sleep(_LOOK_SECONDS)
            elif await asyncio.to_thread(_wants_to_save_again, _tell(found, session), session):
                await setup.save_again(setup_session)
            else:
                break
            found = await setup.get_setup(setup_session)
    except asyncio.CancelledError:
        await setup.cancel(setup_session)
        raise
    return state is FeishuCodeState.CONNECTED, _tell(found, session)


def _state_of(setup: FeishuSetup) -> FeishuCodeState | None:
    return setup.code.state if setup.code else None


def _tell(setup: FeishuSetup, session: InitSession) -> str:
    from bot.cli.local_execution import join_refusal
    from cards.views.channels import code_text
    from handlers.middleware import explain_error

    if setup.code is None:
        return session.text("code_cancelled")
    told = code_text(setup.code, session.words)
    if setup.code.error is None:
        return told
    explained = explain_error(setup.code.error, session.words, "init")
    return f"{told} {join_refusal(explained.title, explained.hint)}"


def _wants_to_save_again(problem: str, session: InitSession) -> bool:
    if not sys.stdin.isatty():
        return False
    session.warn(problem)
    return session.confirm("save_again", default=True)


def _print_code(url: str, session: InitSession) -> None:
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
        session.say("window", width=width, height=height + 3)
    session.say("scan", url=url)
