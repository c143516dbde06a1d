"""The part of `shiftboss init` that connects Telegram."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from bot.cli.chat_commands import plain_text
from bot.cli.failures import fail

if TYPE_CHECKING:
    from bot.app.container import Container
    from bot.app.running_program import RunningProgram
    from bot.config.settings import Settings
    from storage.records.people import Person

_SETUP = "/api/v1/setup"
_LOOK_SECONDS = 1.0
_ASKED_WAIT = 15 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramOptions:
    """`wait` is how many seconds to wait for the first message."""

    delete_webhook: bool = False
    wait: int = 0


def connect_telegram(settings: Settings, options: TelegramOptions, *, from_stdin: bool) -> bool:
    """Says what was found; True if the bot is connected."""
    if from_stdin:
        token = sys.stdin.read(4_000)
    elif sys.stdin.isatty():
        token = _ask_token()
    else:
        fail("there is no terminal to ask in: give --token-stdin", status=2)
    return _connect(settings, token, options)


def ask_until_connected(settings: Settings) -> None:
    """Until the bot is connected, or the person has enough."""
    options = TelegramOptions(wait=_ASKED_WAIT)
    while not _connect(settings, _ask_token(), options):
        typer.echo("Nothing was changed.")
        if not options.delete_webhook and typer.confirm("Delete a webhook, if one is set?"):
            options = TelegramOptions(wait=_ASKED_WAIT, delete_webhook=True)
        elif not typer.confirm("Try again?", default=True):
            return


def disconnect_channel(settings: Settings, name: str) -> bool:
    from bot.cli.local_execution import CommandRefused, post_json, run_here, run_remote_or_local
    from storage.records.people import Channel

    async def leave(core: Container, _by: Person) -> None:
        await core.services.channel_setup.disconnect(Channel(name))

    try:
        run_remote_or_local(
            settings,
            lambda running: post_json(running, f"{_SETUP}/channels/{name}", None, method="DELETE"),
            lambda: run_here(settings, _as_owner(settings, leave)),
        )
    except CommandRefused as refused:
        typer.echo(f"⚠️ {plain_text(str(refused))}", err=True)
        return False
    typer.echo("Disconnected. Messages for it wait until it is connected again.")
    return True


def _ask_token() -> str:
    typer.echo(
        "In Telegram, write to @BotFather: /newbot, a name, a user name that ends with bot.\n"
        "Copy the token from its answer."
    )
    return str(typer.prompt("Bot token (hidden)", hide_input=True))


def _connect(settings: Settings, token: str, options: TelegramOptions) -> bool:
    from bot.cli.local_execution import CommandRefused, run_here, run_remote_or_local

    typer.echo("Asking Telegram …")
    running: list[RunningProgram] = []

    def there(program: RunningProgram) -> dict[str, Any]:
        running.append(program)
        return _connect_there(program, token, options)

    async def work(core: Container, by: Person) -> dict[str, Any]:
        return await _connect_here(core, by, token, options)

    try:
        told = run_remote_or_local(
            settings, there, lambda: run_here(settings, _as_owner(settings, work))
        )
    except CommandRefused as refused:
        typer.echo(f"⚠️ {plain_text(str(refused))}", err=True)
        return False
    if not told["is_connected"]:
        typer.echo(plain_text(f"⚠️ {told['found']}\n\n{told['next_step']}"), err=True)
        return False
    typer.echo(f"✅ {plain_text(told['found'])} The token is in {settings.home / '.env'}.")
    if told["next_step"]:
        typer.echo(plain_text(told["next_step"]))
    if code := told["code"]:
        link = f"open {code['link']} and press Start, or " if code["link"] else ""
        typer.echo(
            f"To become an owner there, within 15 minutes: {link}send the bot /start {code['code']}"
        )
    if not running:
        typer.echo("Start it: shiftboss run")
    elif options.wait:
        _wait_for_message(running[0], options.wait)
    return True


def _connect_there(program: RunningProgram, token: str, options: TelegramOptions) -> dict[str, Any]:
    from bot.cli.local_execution import CommandRefused, post_json

    body = json.dumps({"token": token, "delete_webhook": options.delete_webhook}).encode()
    told: dict[str, Any] = post_json(program, f"{_SETUP}/telegram", body)
    told["code"] = None
    if told["is_connected"] and not _get_channel(program)["people"]:
        try:
            told["code"] = post_json(program, f"{_SETUP}/channels/telegram/owner-code", b"{}")
        except CommandRefused as refused:
            told["next_step"] = str(refused)
    return told


async def _connect_here(
    core: Container, by: Person, token: str, options: TelegramOptions
) -> dict[str, Any]:
    from cards.catalog import catalog_for
    from cards.views.self_checks import finding_text, next_step_text
    from handlers.errors import UserError
    from storage.records.channels import TelegramConnection
    from storage.records.people import Channel, Language

    words, setup = catalog_for(Language.ENGLISH), core.services.channel_setup
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


def _as_owner(
    settings: Settings, work: Callable[[Container, Person], Coroutine[Any, Any, Any]]
) -> Callable[[], Coroutine[Any, Any, Any]]:
    """The work of the local owner in this process. Raises CommandRefused for what it refuses."""

    async def run() -> Any:
        from bot.app.container import open_container
        from bot.cli.local_execution import CommandRefused
        from cards.catalog import catalog_for
        from handlers.errors import UserError
        from storage.records.people import Language

        async with open_container(settings) as core:
            chat = await core.get_local_chat()
            assert chat.person_id is not None, "a private chat has a person"
            try:
                return await work(core, await core.repositories.people.get(chat.person_id))
            except UserError as error:
                words = catalog_for(Language.ENGLISH)
                title, hint = (
                    words(f"error.{error.key}.{part}", **error.facts) for part in ("title", "hint")
                )
                raise CommandRefused(f"{title}. {hint}") from error

    return run


def _get_channel(program: RunningProgram) -> dict[str, Any]:
    from bot.cli.local_execution import post_json

    channels = post_json(program, _SETUP, None)["channels"]
    return dict(next(each for each in channels if each["channel"] == "telegram"))


def _wait_for_message(program: RunningProgram, seconds: int) -> None:
    """Says each change until somebody with access has written; exits if nobody has in time."""
    typer.echo("Waiting for the first message. Press Ctrl-C to stop waiting.")
    deadline, told = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        channel = _get_channel(program)
        if channel["state"] != told:
            told = channel["state"]
            mark = "⚠️" if channel["has_problem"] else "…"
            typer.echo(f"{mark} {plain_text(told)}")
        code = channel["owner_code"]
        if channel["people"] and not (code and not code["owner"]):
            name = code["owner"] if code else channel["people"][0]
            typer.echo(f"✅ {name} has written to the bot{' and is an owner' if code else ''}.")
            return
        time.sleep(_LOOK_SECONDS)
    fail("nobody has written to the bot yet; the page Setup shows when")
