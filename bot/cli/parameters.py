"""What many commands take, and text that may begin with a dash."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

_MARK = "\0"  # no argument of a process can hold one


class TextCommand(TyperCommand):
    """Takes a sentence for a sentence, even if it begins with a dash: an argument with a blank in
    it that names no option. A single word that begins with a dash comes after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, self._marked(args))
        ctx.params = {name: _bare(value) for name, value in ctx.params.items()}
        return [str(_bare(each)) for each in rest]

    def _marked(self, args: list[str]) -> list[str]:
        valued, bare = self._options()
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
                marked.append(_MARK + arg if any(map(str.isspace, arg)) else arg)
        return marked

    def _options(self) -> tuple[set[str], set[str]]:
        valued: set[str] = set()
        bare: set[str] = set()
        for each in self.params:
            if each.param_type_name == "option":
                (bare if getattr(each, "is_flag", False) else valued).update(each.opts)
        return valued, bare | {"--help"}


def _bare(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_bare(each) for each in value]
    return value.removeprefix(_MARK) if isinstance(value, str) else value


def _one_word(value: str | None) -> str | None:
    if value is not None and len(value.split()) != 1:
        raise typer.BadParameter("must be one word")
    return value


def _filled(value: str | None) -> str | None:
    if value is not None and not value.replace(_MARK, "").strip():
        raise typer.BadParameter("must not be empty")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print plain JSON, for programs.")]
TaskId = Annotated[
    str, typer.Argument(metavar="ID", callback=_one_word, help="The task, or how its id begins.")
]
MaybeTaskId = Annotated[str, typer.Argument(metavar="[ID]", callback=lambda v: v and _one_word(v))]
Word = Annotated[str, typer.Argument(callback=_one_word)]
Said = Annotated[str, typer.Argument(metavar="TEXT", callback=_filled)]
MaybeSaid = Annotated[str, typer.Argument(metavar="[TEXT]")]
Name = Annotated[str, typer.Argument(metavar="NAME", callback=_filled)]
