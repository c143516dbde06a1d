"""Registers commands and looks them up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

from handlers.request import Reply, Request

CommandHandler: TypeAlias = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """A command; `help.<name>` in the text catalogues has its usage and help. `family` is its group
    in /help. `immediate` commands do not wait for the chat's turn. `verbatim` preserves @names in
    the arguments."""

    name: str
    aliases: tuple[str, ...]
    family: str
    immediate: bool
    verbatim: bool
    handler: CommandHandler


class DuplicateCommand(ValueError):
    """Two commands claim the same word."""


class CommandRegistry:
    """The commands of one family; `merge` combines several."""

    def __init__(self, family: str = "") -> None:
        self._family = family
        self._all: list[CommandSpec] = []
        self._by_word: dict[str, CommandSpec] = {}

    def __call__(
        self,
        name: str,
        *,
        aliases: tuple[str, ...] = (),
        immediate: bool = False,
        verbatim: bool = False,
    ) -> Callable[[CommandHandler], CommandHandler]:
        """Register the decorated handler."""

        def register(handler: CommandHandler) -> CommandHandler:
            command = CommandSpec(
                name=name,
                aliases=aliases,
                family=self._family,
                immediate=immediate,
                verbatim=verbatim,
                handler=handler,
            )
            self._add(command)
            return handler

        return register

    def __iter__(self) -> Iterator[CommandSpec]:
        return iter(self._all)

    def find(self, word: str) -> CommandSpec | None:
        """Find by name or alias, ignoring case, without the slash."""
        return self._by_word.get(word.casefold())

    @classmethod
    def merge(cls, *families: CommandRegistry) -> Self:
        table = cls()
        for command in (command for family in families for command in family):
            table._add(command)
        return table

    def _add(self, command: CommandSpec) -> None:
        words = [word.casefold() for word in (command.name, *command.aliases)]
        duplicates = [word for word in words if word in self._by_word]
        if duplicates or len(set(words)) < len(words):
            raise DuplicateCommand(f"/{command.name}: {', '.join(duplicates or words)}")
        self._by_word |= dict.fromkeys(words, command)
        self._all.append(command)
