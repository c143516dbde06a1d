"""The `shiftboss` command: thin, and quick to say what it can do."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from bot.cli import dispatch, log, run, say, session, setup, skill, subtask, task, top
from bot.cli.agents import hook, mcp
from bot.cli.memory import memory
from bot.cli.workers import backend
from bot.cli.workflows import workflow

cli = typer.Typer(
    name="shiftboss",
    help="A self-hosted foreman for AI workers that lives in Feishu and Telegram.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
cli.command("run")(run.run)
cli.command("say")(say.say)
cli.command("pair")(say.pair)
cli.command("dispatch")(dispatch.dispatch)
cli.command("setup")(setup.setup)
top.add_to(cli)
cli.add_typer(task.cli, name="task")
cli.add_typer(subtask.cli, name="subtask")
cli.add_typer(log.cli, name="log")
cli.add_typer(session.cli, name="session")
cli.add_typer(skill.cli, name="skill")
cli.add_typer(backend.cli, name="backend")
cli.add_typer(workflow.cli, name="workflow")
cli.add_typer(memory.cli, name="memory")
cli.command("mcp")(mcp.mcp)
cli.add_typer(hook.cli, name="hook")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("shiftboss"))
        raise typer.Exit


@cli.callback()
def _root(
    _version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass
