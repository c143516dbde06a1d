"""All commands of the shell, read from the arguments."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from bot.cli import (
    agents,
    bitable,
    init,
    memory,
    service,
    setup,
    store,
    task,
    top_level,
    workers,
    workflow,
)
from bot.cli.chat_commands import TextCommand, help_text
from bot.cli.run import dispatch, front, run, worker


def create_cli() -> typer.Typer:
    cli = typer.Typer(
        name="shiftboss",
        help="A self-hosted foreman for AI workers that lives in Feishu and Telegram.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback()(_root)
    _add_commands(cli)
    return cli


def _root(
    _version_wanted: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version.",
            callback=lambda wanted: _print_version() if wanted else None,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass


def _print_version() -> NoReturn:
    typer.echo(version("shiftboss"))
    raise typer.Exit


def _add_commands(cli: typer.Typer) -> None:
    cli.command("run")(run)
    cli.command("say")(top_level.say)
    cli.command("pair", help=help_text("pair"))(top_level.pair)
    cli.command("start")(service.start)
    cli.command("stop")(service.stop)
    cli.command("restart")(service.restart)
    cli.command("logs")(service.logs)
    cli.command("dispatch")(dispatch)
    cli.command("front")(front)
    cli.command("worker")(worker)
    cli.command("init")(init.init)
    cli.command("setup")(setup.setup)
    cli.command("backup")(store.backup)
    cli.command("restore")(store.restore)
    cli.command("migrate")(store.migrate)
    cli.command("check")(store.check)
    cli.command("next", help=help_text("next"))(task.next_task)
    cli.command("resume", cls=TextCommand, help=help_text("resume"))(task.resume)
    top_level.add_commands(cli)
    cli.add_typer(task.task_cli, name="task")
    cli.add_typer(task.subtask_cli, name="subtask")
    cli.add_typer(task.log_cli, name="log")
    cli.add_typer(workers.session_cli, name="session")
    cli.add_typer(workers.skill_cli, name="skill")
    cli.add_typer(workers.backend_cli, name="backend")
    cli.add_typer(workflow.cli, name="workflow")
    cli.add_typer(memory.cli, name="memory")
    cli.add_typer(bitable.cli, name="bitable")
    cli.add_typer(top_level.self_cli, name="self")
    cli.add_typer(top_level.trigger_cli, name="trigger")
    cli.command("mcp")(agents.mcp)
    cli.add_typer(agents.hook_cli, name="hook")


def run_command_line() -> int:
    """Its exit status."""
    try:
        status = create_cli()(standalone_mode=False)
    except typer.Abort:
        typer.echo("Aborted!", err=True)
        status = 1
    except TyperException as error:
        _print_usage_error(error)
        status = error.exit_code
    return status if isinstance(status, int) else 0


def _print_usage_error(error: TyperException) -> None:
    """One line; without any argument, the help."""
    context, text = getattr(error, "ctx", None), error.format_message()
    if context is None or "\n" in text:
        typer.echo(text, err=True)
    else:
        text = text.replace("Value error, ", "")
        end = "" if text.endswith((".", "?")) else "."
        typer.echo(f"shiftboss: {text}{end} See `{context.command_path} -h`.", err=True)
