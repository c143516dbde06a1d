"""Translates shell commands with their shared parameters to chat commands and executes them as the
local owner."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bot.cli.failures import fail, report_start_failures
from cards.catalog import command_help
from cards.formats import escape_invisible
from handlers.flags import quote_value
from storage.records.people import Language

_HELP = command_help(Language.ENGLISH)
_DASH_MARK = "\0"  # not possible in a process argument


class TextCommand(TyperCommand):
    """Accepts text that begins with a dash: an argument with a space that names no option. A single
    word with a dash must follow `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, self._mark_sentences(args))
        ctx.params = {name: _unmark(value) for name, value in ctx.params.items()}
        return [str(_unmark(each)) for each in rest]

    def _mark_sentences(self, args: list[str]) -> list[str]:
        valued, bare = self._option_names()
        marked: list[str] = []
        each = iter(args)
        for arg in each:
            if arg == "--":
                return [*marked, arg, *each]
            if arg in valued:
                marked += [arg, *[next(each, None) or ""][:1]]
            elif arg in bare or not arg.startswith("-") or arg.partition("=")[0] in valued:
                marked.append(arg)
            else:
                marked.append(_DASH_MARK + arg if any(map(str.isspace, arg)) else arg)
        return marked

    def _option_names(self) -> tuple[set[str], set[str]]:
        valued: set[str] = set()
        bare: set[str] = set()
        for each in self.params:
            if each.param_type_name == "option":
                (bare if getattr(each, "is_flag", False) else valued).update(each.opts)
        return valued, bare | {"-h", "--help"}


def _unmark(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_unmark(each) for each in value]
    return value.removeprefix(_DASH_MARK) if isinstance(value, str) else value


def _require_one_word(value: str | None) -> str | None:
    if value is not None and len(value.split()) != 1:
        raise typer.BadParameter("must be one word")
    return value


def _require_text(value: str | None) -> str | None:
    if value is not None and not value.replace(_DASH_MARK, "").strip():
        raise typer.BadParameter("must not be empty")
    return value


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TaskIdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", callback=_require_one_word, help="A task id, or its first characters."
    ),
]
OptionalTaskId = Annotated[
    str, typer.Argument(metavar="[ID]", callback=lambda v: v and _require_one_word(v))
]
WordArgument = Annotated[str, typer.Argument(callback=_require_one_word)]
TextArgument = Annotated[str, typer.Argument(metavar="TEXT", callback=_require_text)]
OptionalText = Annotated[str, typer.Argument(metavar="[TEXT]")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", callback=_require_text)]


def required(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def optional(name: str, annotation: Any) -> Parameter:
    return required(name, annotation).replace(default="")


SCOPE_HELP = (
    "Whose: me, chat, project (the folder you are in), global, person:ID, chat:ID,"
    " project:FOLDER, skill:NAME, agent:NAME, or any name."
)
ScopeOption = Annotated[str, typer.Option("--scope", help=SCOPE_HELP)]

_PROJECT_KIND = "project"
_PATH_PREFIXES = (".", "~", "/")


def resolve_scope(scope: str, folder: Path | None = None) -> str:
    """Resolve relative scopes: `project` is the repository around `folder`, or that folder."""
    scope, folder = scope.strip(), folder or Path.cwd()
    if scope == _PROJECT_KIND:
        return f"{_PROJECT_KIND}:{find_project(folder)}"
    kind, _, name = scope.partition(":")
    if kind == _PROJECT_KIND and name.startswith(_PATH_PREFIXES):
        return f"{_PROJECT_KIND}:{os.path.abspath(folder / Path(name).expanduser())}"  # noqa: PTH100 - links stay as written
    return scope


def find_project(folder: Path) -> Path:
    here = folder.resolve()
    around = (here, *here.parents)
    return next((each for each in around if (each / ".git").exists()), here)


def help_text(command: str) -> str:
    """The help of a chat command, for the shell command that does the same."""
    return _HELP[command]["text"]


def add_chat_command(
    cli: typer.Typer,
    name: str,
    command: str,
    *parameters: Parameter,
    help: str = "",
    needs_worker: bool = False,
    needs_program: bool = False,
    tells_running: bool = False,
) -> None:
    """Add a shell command that executes a chat command with its arguments in this order. Without
    `help` it has the chat command's."""

    def run(as_json: bool, **values: Any) -> None:
        parts = (str(each) for each in values.values())
        execute(
            command_line(command, *parts),
            as_json=as_json,
            needs_worker=needs_worker,
            needs_program=needs_program,
            tells_running=tells_running,
        )

    kind = Parameter.POSITIONAL_OR_KEYWORD
    json_option = Parameter("as_json", kind, annotation=JsonOption, default=False)
    run.__signature__ = Signature([*parameters, json_option])  # type: ignore[attr-defined]
    cli.command(name, cls=TextCommand, help=help or help_text(command))(run)


def command_line(command: str, *parts: str) -> str:
    """Join the parts, omitting empty ones. Only the last part may be free text."""
    return " ".join((f"/{command}", *filter(None, parts)))


def format_flag(name: str, value: str | int | None) -> str:
    """A flag with its value, quoted; empty without a value."""
    return "" if value is None or value == "" else f"{name} {quote_value(str(value))}"


def absolute_path(path: str) -> str:
    """Independent of the working directory, since another process executes the command."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - links stay as they are written


def plain_text(markdown: str) -> str:
    """As a terminal shows it."""
    from cards.model import notice_card
    from cards.render.text import render

    return escape_invisible(render(notice_card("", markdown)).text)


def data_directory() -> Path:
    # Imported here so that `--help` stays fast.
    from bot.config.settings import load_settings

    return load_settings().home


_NO_WORKER_NOTE = (
    "Shiftboss is not running: start `shiftboss run` or `shiftboss dispatch` to have the work done"
)


def execute(
    command: str,
    *,
    as_json: bool = False,
    present: Callable[[Any], tuple[str, Any]] | None = None,
    needs_worker: bool = False,
    needs_program: bool = False,
    tells_running: bool = False,
) -> Any:
    """Print the answer and return its data. Exits with status 1 if the command is refused and 2 if
    it cannot be executed. `present` turns the answer's data into text and JSON. If no Shiftboss is
    running, `needs_worker` adds a note, which an answer that `tells_running` has itself, and what
    `needs_program` is refused."""
    answer = _get_answer(command, as_json=as_json, needs_program=needs_program)
    text, data = answer.text, answer.data
    if answer.good and present is not None and data is not None:
        text, data = present(data)
    if (needs_worker or tells_running) and answer.good:
        if needs_worker and not answer.running:
            typer.echo(f"shiftboss: {_NO_WORKER_NOTE}", err=True)
        data = data if data is None else {**data, "running": answer.running}
    if as_json:
        plain = {"text": answer.text} if data is None else data
        if not answer.good and not (isinstance(plain, dict) and "error" in plain):
            plain = {"error": answer.text}
        typer.echo(escape_invisible(json.dumps(plain, ensure_ascii=False, indent=2)))
    else:
        # The text may come from others and must not control the terminal.
        typer.echo(escape_invisible(text))
    if not answer.good:
        raise typer.Exit(1)
    return data


def _get_answer(command: str, *, as_json: bool, needs_program: bool) -> Any:
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from bot.cli.local_execution import CommandRefused, execute_command
        from bot.config.settings import load_settings

        try:
            return execute_command(load_settings(), command, needs_program=needs_program)
        except CommandRefused as error:
            fail(str(error), as_json=as_json)
