"""`shiftboss init`: connects a model and a chat platform, asking or by options."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot.cli.failures import report_start_failures
from storage.records.system import ModelConnection, ModelKind

if TYPE_CHECKING:
    from bot.app.container import Container
    from bot.cli.init_session import InitSession
    from storage.records.people import Person


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
        from bot.cli.init_session import InitSession

        session = InitSession.open()
        if kind is None and channel is None:
            _ask_until_connected(session)
            _ask_for_channel(session)
            return
        if kind is not None:
            key = sys.stdin.readline().strip() if key_stdin else ""
            new = ModelConnection(kind=kind, key=key, base_url=base_url, model=model)
            if not _connect(session, new):
                raise typer.Exit(1)
        if channel is None:
            return
        connect = {
            ChannelChoice.TELEGRAM: lambda: _connect_telegram(
                session, wait, delete_webhook=delete_webhook, from_stdin=token_stdin
            ),
            ChannelChoice.FEISHU: lambda: _connect_feishu(
                session, app_id, is_lark=is_lark, from_stdin=secret_stdin
            ),
        }
        if not (_disconnect(session, channel) if disconnect else connect[channel]()):
            raise typer.Exit(1)


def _disconnect(session: InitSession, channel: ChannelChoice) -> bool:
    from bot.cli import init_telegram

    return init_telegram.disconnect_channel(session, channel)


def _connect_telegram(
    session: InitSession, wait: int, *, delete_webhook: bool, from_stdin: bool
) -> bool:
    from bot.cli import init_telegram

    options = init_telegram.TelegramOptions(delete_webhook=delete_webhook, wait=wait)
    return init_telegram.connect_telegram(session, options, from_stdin=from_stdin)


def _connect_feishu(session: InitSession, app_id: str, *, is_lark: bool, from_stdin: bool) -> bool:
    from bot.cli import init_feishu
    from storage.records.channels import FeishuApp

    if not app_id:
        return init_feishu.scan_code(session)
    if from_stdin:
        secret = sys.stdin.readline().strip()
    elif sys.stdin.isatty():
        secret = session.ask_secret("app_secret")
    else:
        session.stop_without_terminal("secret")
    new = FeishuApp(app_id=app_id, app_secret=secret, is_lark=is_lark)
    return init_feishu.connect_app(session, new)


def _ask_for_channel(session: InitSession) -> None:
    from bot.cli import init_feishu, init_telegram

    if session.confirm("telegram_too"):
        init_telegram.ask_until_connected(session)
    if session.confirm("feishu_too"):
        init_feishu.ask_and_connect(session)
    if not session.settings.embedding_model:
        session.say("embeddings")


def _ask_until_connected(session: InitSession) -> None:
    if not sys.stdin.isatty():
        session.stop_without_terminal("model")
    clis = _list_clis(session)
    kinds = [each for each in ModelKind if each is not ModelKind.CLI or clis]
    while True:
        session.say("how")
        for number, each in enumerate(kinds, 1):
            typer.echo(f"  {number}. {session.text(f'kind.{each}')}")
        if _connect(session, _ask_for(kinds[session.ask_number(len(kinds))], clis, session)):
            return
        session.say("try_again_or_leave")


def _ask_for(kind: ModelKind, clis: list[str], session: InitSession) -> ModelConnection:
    key = base_url = model = ""
    if kind is ModelKind.LOCAL:
        base_url = session.ask("address", default=_LOCAL_URL)
    if kind.is_api:
        key = session.ask_or_skip("key", is_hidden=True)
        model = session.ask_or_skip("model")
    elif kind is ModelKind.CLI:
        model = session.ask("which_cli", default=clis[0], names=", ".join(clis))
    return ModelConnection(kind=kind, key=key, base_url=base_url, model=model)


def _list_clis(session: InitSession) -> list[str]:
    from bot.cli.local_execution import run_remote_or_local

    async def clis() -> list[str]:
        from bot.app.container import open_container

        async with open_container(session.settings) as core:
            return list((await core.services.model_setup.get_setup()).clis)

    return run_remote_or_local(
        session.settings,
        lambda running: list(session.call(running, "/api/v1/setup")["clis"]),
        lambda: session.run_here(clis),
    )


def _connect(session: InitSession, new: ModelConnection) -> bool:
    """Says what was found; True if the model is connected."""
    from bot.cli.local_execution import CommandRefused, run_remote_or_local

    fields = {"kind": new.kind, "key": new.key, "base_url": new.base_url, "model": new.model}
    body = json.dumps(fields).encode()
    session.say("testing" if new.kind is not ModelKind.OFFLINE else "storing")
    here = session.as_owner(lambda core, by: _connect_here(core, by, new, session))
    try:
        told = run_remote_or_local(
            session.settings,
            lambda running: {
                **session.call(running, "/api/v1/setup/model", body),
                "running": True,
            },
            lambda: session.run_here(here),
        )
    except CommandRefused as refused:
        session.warn(str(refused))
        return False
    if not told["is_connected"]:
        session.warn(f"{told['found']}\n\n{told['next_step']}")
        return False
    session.say_connected(told["found"])
    session.say("used_now" if "running" in told else "start")
    return True


async def _connect_here(
    core: Container, by: Person, new: ModelConnection, session: InitSession
) -> dict[str, Any]:
    """The answer that the API of a running Shiftboss gives."""
    from cards.views.self_checks import finding_text, next_step_text

    finding = await core.services.model_setup.connect(new, by=by)
    return {
        "is_connected": not finding.points,
        "found": finding_text(finding, session.words),
        "next_step": next_step_text(finding, session.words) if finding.points else "",
    }
