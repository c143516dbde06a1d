"""`shiftboss init`: connects a model and a chat platform, asking or by options."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot.cli.chat_commands import plain_text
from bot.cli.failures import fail, report_start_failures
from storage.records.system import ModelConnection, ModelKind

if TYPE_CHECKING:
    from bot.config.settings import Settings


class ChannelChoice(StrEnum):
    """A chat platform that is connected here."""

    TELEGRAM = "telegram"
    FEISHU = "feishu"


TokenStdinFlag = Annotated[
    bool, typer.Option("--token-stdin", help="Read the bot token from standard input.")
]
DeleteWebhookFlag = Annotated[
    bool, typer.Option("--delete-webhook", help="Delete a webhook that another program has set.")
]
WaitOption = Annotated[
    int, typer.Option("--wait", min=0, help="Seconds to wait for the first message.")
]
AppIdOption = Annotated[
    str, typer.Option("--app-id", help="A Feishu app that exists; without it, one is created.")
]
SecretStdinFlag = Annotated[
    bool, typer.Option("--secret-stdin", help="Read the App Secret from standard input.")
]
DisconnectFlag = Annotated[bool, typer.Option("--disconnect", help="Leave the chat platform.")]

_LABELS = {
    ModelKind.ANTHROPIC: "Anthropic, with a key",
    ModelKind.OPENAI: "OpenAI, with a key",
    ModelKind.LOCAL: "a local model server, or another service with an API like OpenAI's",
    ModelKind.CLI: "a coding CLI that is installed here",
    ModelKind.OFFLINE: "look around offline first",
}
_EMBEDDINGS_HINT = (
    "Memories are found by words. By meaning too, on this machine: pip install"
    " 'shiftboss[local-embeddings]', then EMBEDDING_MODEL=local in the .env (docs/memory.md)."
)
_LOCAL_URL = "http://127.0.0.1:11434/v1"


def _print_example(wanted: bool) -> None:
    if wanted:
        # Imported here so that `--help` stays fast.
        from bot.config.sources import read_example

        typer.echo(read_example(), nl=False)
        raise typer.Exit


def init(
    *,
    kind: Annotated[
        ModelKind | None, typer.Option("--with", help="How to work; without it, you are asked.")
    ] = None,
    base_url: Annotated[str, typer.Option("--base-url", help="The address of the API.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="A model, or the name of the coding CLI.")
    ] = "",
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read the key from standard input.")
    ] = False,
    channel: Annotated[
        ChannelChoice | None, typer.Option("--channel", help="Connect a chat platform.")
    ] = None,
    token_stdin: TokenStdinFlag = False,
    delete_webhook: DeleteWebhookFlag = False,
    wait: WaitOption = 0,
    disconnect: DisconnectFlag = False,
    app_id: AppIdOption = "",
    secret_stdin: SecretStdinFlag = False,
    is_lark: Annotated[bool, typer.Option("--lark", help="It is an app of Lark.")] = False,
    _example_wanted: Annotated[
        bool,
        typer.Option(
            "--example",
            help="Print a .env file with every setting and its default, and end.",
            callback=_print_example,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Connect a model and a chat platform. A running Shiftboss uses them at once."""
    with report_start_failures():
        # Imported here so that `--help` stays fast.
        from bot.config.settings import load_settings

        settings = load_settings()
        if kind is None and channel is None:
            _ask_until_connected(settings)
            _ask_for_channel(settings)
            return
        if kind is not None:
            key = sys.stdin.readline().strip() if key_stdin else ""
            new = ModelConnection(kind=kind, key=key, base_url=base_url, model=model)
            if not _connect(settings, new):
                raise typer.Exit(1)
        if channel is None:
            return
        connect = {
            ChannelChoice.TELEGRAM: lambda: _connect_telegram(
                settings, wait, delete_webhook=delete_webhook, from_stdin=token_stdin
            ),
            ChannelChoice.FEISHU: lambda: _connect_feishu(
                settings, app_id, is_lark=is_lark, from_stdin=secret_stdin
            ),
        }
        if not (_disconnect(settings, channel) if disconnect else connect[channel]()):
            raise typer.Exit(1)


def _disconnect(settings: Settings, channel: ChannelChoice) -> bool:
    from bot.cli import init_telegram

    return init_telegram.disconnect_channel(settings, channel)


def _connect_telegram(
    settings: Settings, wait: int, *, delete_webhook: bool, from_stdin: bool
) -> bool:
    from bot.cli import init_telegram

    options = init_telegram.TelegramOptions(delete_webhook=delete_webhook, wait=wait)
    return init_telegram.connect_telegram(settings, options, from_stdin=from_stdin)


def _connect_feishu(settings: Settings, app_id: str, *, is_lark: bool, from_stdin: bool) -> bool:
    from bot.cli import init_feishu
    from storage.records.channels import FeishuApp

    if not app_id:
        return init_feishu.scan_code(settings)
    if from_stdin:
        secret = sys.stdin.readline().strip()
    elif sys.stdin.isatty():
        secret = typer.prompt("App Secret (hidden)", hide_input=True)
    else:
        fail("there is no terminal to ask in: give --secret-stdin", status=2)
    new = FeishuApp(app_id=app_id, app_secret=secret, is_lark=is_lark)
    return init_feishu.connect_app(settings, new)


def _ask_for_channel(settings: Settings) -> None:
    from bot.cli import init_feishu, init_telegram

    if typer.confirm("Connect Telegram too?", default=False):
        init_telegram.ask_until_connected(settings)
    if typer.confirm("Connect Feishu or Lark too?", default=False):
        init_feishu.ask_and_connect(settings)
    if not settings.embedding_model:
        typer.echo(_EMBEDDINGS_HINT)


def _ask_until_connected(settings: Settings) -> None:
    if not sys.stdin.isatty():
        fail("there is no terminal to ask in: give --with, and the key by --key-stdin", status=2)
    clis = _list_clis(settings)
    kinds = [each for each in ModelKind if each is not ModelKind.CLI or clis]
    while True:
        typer.echo("How is Shiftboss to work?")
        for number, each in enumerate(kinds, 1):
            typer.echo(f"  {number}. {_LABELS[each]}")
        number = typer.prompt("Number", type=int, default=1)
        if not 1 <= number <= len(kinds):
            continue
        if _connect(settings, _ask_for(kinds[number - 1], clis)):
            return
        typer.echo("Nothing was changed. Try again, or press Ctrl-C to leave.\n")


def _ask_for(kind: ModelKind, clis: list[str]) -> ModelConnection:
    key = base_url = model = ""
    if kind is ModelKind.LOCAL:
        base_url = typer.prompt("API address", default=_LOCAL_URL)
    if kind.is_api:
        key = typer.prompt(
            "API key (hidden; empty for none)", default="", show_default=False, hide_input=True
        )
        model = typer.prompt("Model (empty: chosen for you)", default="", show_default=False)
    elif kind is ModelKind.CLI:
        model = typer.prompt(f"Which one ({', '.join(clis)})", default=clis[0])
    return ModelConnection(kind=kind, key=key, base_url=base_url, model=model)


def _list_clis(settings: Settings) -> list[str]:
    from bot.cli.local_execution import post_json, run_here, run_remote_or_local

    async def clis() -> list[str]:
        from bot.app.container import open_container

        async with open_container(settings) as core:
            return list((await core.services.model_setup.get_setup()).clis)

    return run_remote_or_local(
        settings,
        lambda running: list(post_json(running, "/api/v1/setup", None)["clis"]),
        lambda: run_here(settings, clis),
    )


def _connect(settings: Settings, new: ModelConnection) -> bool:
    """Says what was found; True if the model is connected."""
    from bot.cli.local_execution import CommandRefused, post_json, run_here, run_remote_or_local

    fields = {"kind": new.kind, "key": new.key, "base_url": new.base_url, "model": new.model}
    body = json.dumps(fields).encode()
    typer.echo("Testing …" if new.kind is not ModelKind.OFFLINE else "Storing …")
    try:
        told = run_remote_or_local(
            settings,
            lambda running: {**post_json(running, "/api/v1/setup/model", body), "running": True},
            lambda: run_here(settings, lambda: _connect_here(settings, new)),
        )
    except CommandRefused as refused:
        typer.echo(f"⚠️ {plain_text(str(refused))}", err=True)
        return False
    if not told["is_connected"]:
        typer.echo(plain_text(f"⚠️ {told['found']}\n\n{told['next_step']}"), err=True)
        return False
    typer.echo(f"✅ {plain_text(told['found'])} The setup is in {settings.home / '.env'}.")
    typer.echo("Shiftboss uses it from now on." if "running" in told else "Start it: shiftboss run")
    return True


async def _connect_here(settings: Settings, new: ModelConnection) -> dict[str, Any]:
    """The answer that the API of a running Shiftboss gives."""
    from bot.app.container import open_container
    from bot.cli.local_execution import CommandRefused
    from cards.catalog import catalog_for
    from cards.views.self_checks import finding_text, next_step_text
    from handlers.errors import UserError
    from storage.records.people import Language

    words = catalog_for(Language.ENGLISH)
    async with open_container(settings) as core:
        chat = await core.get_local_chat()
        assert chat.person_id is not None, "a private chat has a person"
        owner = await core.repositories.people.get(chat.person_id)
        try:
            finding = await core.services.model_setup.connect(new, by=owner)
        except UserError as error:
            title = words(f"error.{error.key}.title", **error.facts)
            hint = words(f"error.{error.key}.hint", **error.facts)
            raise CommandRefused(f"{title}. {hint}") from error
    return {
        "is_connected": not finding.points,
        "found": finding_text(finding, words),
        "next_step": next_step_text(finding, words) if finding.points else "",
    }
