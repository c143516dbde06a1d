"""The `shiftboss` command, also `python -m bot`; kept light so that `--help` is fast."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from bot.cli import agents, memory, run, setup, store, task, top_level, workers, workflow
from bot.cli.chat_commands import TextCommand, help_text
from bot.cli.run import dispatch
from bot.cli.task import log_cli, subtask_cli
from storage.data_directory import make_new_files_private

cli = typer.Typer(
    name="shiftboss",
    help="A self-hosted foreman for AI workers that lives in Feishu and Telegram.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
cli.command("run")(run.run)
cli.command("say")(top_level.say)
cli.command("pair", help=help_text("pair"))(top_level.pair)
cli.command("dispatch")(dispatch)
cli.command("setup")(setup.setup)
cli.command("backup")(store.backup)
cli.command("restore")(store.restore)
cli.command("check")(store.check)
cli.command("next", help=help_text("next"))(task.next_task)
cli.command("resume", cls=TextCommand, help=help_text("resume"))(task.resume)
top_level.add_commands(cli)
cli.add_typer(task.task_cli, name="task")
cli.add_typer(subtask_cli, name="subtask")
cli.add_typer(log_cli, name="log")
cli.add_typer(workers.session_cli, name="session")
cli.add_typer(workers.skill_cli, name="skill")
cli.add_typer(workers.backend_cli, name="backend")
cli.add_typer(workflow.cli, name="workflow")
cli.add_typer(memory.cli, name="memory")
cli.add_typer(top_level.self_cli, name="self")
cli.command("mcp")(agents.mcp)
cli.add_typer(agents.hook_cli, name="hook")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("shiftboss"))
        raise typer.Exit


@cli.callback()
def _root(
    _version_wanted: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> None:
    make_new_files_private()
    cli()


if __name__ == "__main__":
    main()
