"""The part of `shiftboss init` that connects Telegram."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from bot.cli.chat_commands import plain_text
from bot.cli.failures import fail

if TYPE_CHECKING:
    from bot.app.container import Container
    from bot.app.running_program import RunningProgram
    from bot.cli.init_session import InitSession
    from cards.catalog import TextCatalog
    from storage.records.people import Person

_SETUP = "/api/v1/setup"
_LOOK_SECONDS = 1.0
_ASKED_WAIT = 15 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramOptions:
    """`wait` is how many seconds to wait for the first message."""

    delete_webhook: bool = False
    wait: int = 0


def connect_telegram(session: InitSession, options: TelegramOptions, *, from_stdin: bool) -> bool:
    """Says what was found; True if the bot is connected."""
    if from_stdin:
        token = sys.stdin.read(4_000)
    elif sys.stdin.isatty():
        token = _ask_token(session)
    else:
        session.stop_without_terminal("token")
    return _connect(session, token, options)


def ask_until_connected(session: InitSession) -> None:
    """Until the bot is connected, or the person has enough."""
    options = TelegramOptions(wait=_ASKED_WAIT)
    while not _connect(session, _ask_token(session), options):
        session.say("unchanged")
        if not options.delete_webhook and session.confirm("delete_webhook"):
            options = TelegramOptions(wait=_ASKED_WAIT, delete_webhook=True)
        elif not session.confirm("try_again", default=True):
            return


def disconnect_channel(session: InitSession, name: str) -> bool:
    from bot.cli.local_execution import CommandRefused, run_remote_or_local
    from storage.records.people import Channel

    async def leave(core: Container, _by: Person) -> None:
        await core.services.channel_setup.disconnect(Channel(name))

    try:
        run_remote_or_local(
            session.settings,
            lambda running: session.call(running, f"{_SETUP}/channels/{name}", method="DELETE"),
            lambda: session.run_here(session.as_owner(leave)),
        )
    except CommandRefused as refused:
        session.warn(str(refused))
        return False
    typer.echo(session.words("setup.channel.removed"))
    return True


def _ask_token(session: InitSession) -> str:
    session.say("botfather")
    return session.ask_secret("token")


def _connect(session: InitSession, token: str, options: TelegramOptions) -> bool:
    from bot.cli.local_execution import CommandRefused, run_remote_or_local

    session.say("asking_telegram")
    running: list[RunningProgram] = []

    def there(program: RunningProgram) -> dict[str, Any]:
        running.append(program)
        return _connect_there(program, token, options, session)

    async def work(core: Container, by: Person) -> dict[str, Any]:
        return await _connect_here(core, by, token, options, session.words)

    try:
        told = run_remote_or_local(
            session.settings, there, lambda: session.run_here(session.as_owner(work))
        )
    except CommandRefused as refused:
        session.warn(str(refused))
        return False
    if not told["is_connected"]:
        session.warn(f"{told['found']}\n\n{told['next_step']}")
        return False
    session.say_connected(told["found"])
    if told["next_step"]:
        typer.echo(plain_text(told["next_step"]))
    if code := told["code"]:
        way = "become_owner_by_link" if code["link"] else "become_owner"
        session.say(way, code=code["code"], link=code["link"])
    if not running:
        session.say("start")
    elif options.wait:
        _wait_for_message(running[0], options.wait, session)
    return True


def _connect_there(
    program: RunningProgram, token: str, options: TelegramOptions, session: InitSession
) -> dict[str, Any]:
    from bot.cli.local_execution import CommandRefused

    body = json.dumps({"token": token, "delete_webhook": options.delete_webhook}).encode()
    told: dict[str, Any] = session.call(program, f"{_SETUP}/telegram", body)
    told["code"] = None
    if told["is_connected"] and not _get_channel(program, session)["people"]:
        try:
            owner_code = f"{_SETUP}/channels/telegram/owner-code"
            told["code"] = session.call(program, owner_code, b"{}")
        except CommandRefused as refused:
            told["next_step"] = str(refused)
    return told


async def _connect_here(
    core: Container, by: Person, token: str, options: TelegramOptions, words: TextCatalog
) -> dict[str, Any]:
    from cards.views.self_checks import finding_text, next_step_text
    from handlers.errors import UserError
    from storage.records.channels import TelegramConnection
    from storage.records.people import Channel

    setup = core.services.channel_setup
    new = TelegramConnection(token=token, delete_webhook=options.delete_webhook)
    result = await setup.connect_telegram(new, by=by)
    if result.problem is not None:
        next_step = next_step_text(result.problem, words)
        if result.pending:
            next_step = words("setup.telegram.webhook_about")
        found = finding_text(result.problem, words)
        return {"is_connected": False, "found": found, "next_step": next_step}
    told: dict[str, Any] = {
        "is_connected": True,
        "found": " ".join(finding_text(each, words) for each in result.findings),
        "next_step": words("setup.telegram.other_bot") if result.is_other_bot else "",
        "code": None,
    }
    states = await setup.get_channels()
    if not next(each for each in states if each.channel is Channel.TELEGRAM).people:
        try:
            code = await setup.create_owner_code(Channel.TELEGRAM, by=by)
            told["code"] = {"code": code.code, "link": code.link}
        except UserError as error:
            told["next_step"] = words(f"error.{error.key}.hint", **error.facts)
    return told


def _get_channel(program: RunningProgram, session: InitSession) -> dict[str, Any]:
    channels = session.call(program, _SETUP)["channels"]
    return dict(next(each for each in channels if each["channel"] == "telegram"))


def _wait_for_message(program: RunningProgram, seconds: int, session: InitSession) -> None:
    """Says each change until somebody with access has written; exits if nobody has in time."""
    session.say("waiting")
    deadline, told = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        channel = _get_channel(program, session)
        if channel["state"] != told:
            told = channel["state"]
            mark = "⚠️" if channel["has_problem"] else "…"
            typer.echo(f"{mark} {plain_text(told)}")
        code = channel["owner_code"]
        if channel["people"] and not (code and not code["owner"]):
            name = code["owner"] if code else channel["people"][0]
            session.say("has_written_owner" if code else "has_written", name=plain_text(name))
            return
        time.sleep(_LOOK_SECONDS)
    fail(session.text("nobody_has_written"))
