"""The table of commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import Self, TypeAlias

from handlers.request import Reply, Request

Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`family` is the group it stands under in /help. `immediate` commands do not wait for the
    chat's turn. `verbatim` keeps @names in what follows, since it is a text of its own."""

    name: str
    usage: str
    summary: str
    aliases: tuple[str, ...]
    family: str
    immediate: bool
    verbatim: bool
    handler: Handler


class DuplicateCommand(ValueError):
    """Two commands claim the same word."""


class Commands:
    """The commands of one family; `joined` makes the whole table of several."""

    def __init__(self, family: str = "") -> None:
        self._family = family
        self._all: list[Command] = []
        self._by_word: dict[str, Command] = {}

    def __call__(
        self,
        name: str,
        *,
        usage: str = "",
        aliases: tuple[str, ...] = (),
        immediate: bool = False,
        verbatim: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Register the decorated handler. Its docstring's first line is the English help."""

        def register(handler: Handler) -> Handler:
            command = Command(
                name=name,
                usage=usage,
                summary=cleandoc(handler.__doc__ or "").partition("\n")[0],
                aliases=aliases,
                family=self._family,
                immediate=immediate,
                verbatim=verbatim,
                handler=handler,
            )
            self._add(command)
            return handler

        return register

    def __iter__(self) -> Iterator[Command]:
        return iter(self._all)

    def find(self, word: str) -> Command | None:
        """By name or alias, in any case, without the slash."""
        return self._by_word.get(word.casefold())

    @classmethod
    def joined(cls, *families: Commands) -> Self:
        table = cls()
        for command in (command for family in families for command in family):
            table._add(command)
        return table

    def _add(self, command: Command) -> None:
        words = [word.casefold() for word in (command.name, *command.aliases)]
        taken = [word for word in words if word in self._by_word]
        if taken or len(set(words)) < len(words):
            raise DuplicateCommand(f"/{command.name}: {', '.join(taken or words)}")
        self._by_word |= dict.fromkeys(words, command)
        self._all.append(command)
