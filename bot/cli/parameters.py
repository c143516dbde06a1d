"""Shared parameters of shell commands, text arguments and memory scopes."""

from __future__ import annotations

import os
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

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
        return valued, bare | {"--help"}


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
