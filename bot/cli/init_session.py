"""The terminal session of `shiftboss init`: asks and tells in the terminal's language, and has the
running program or the local owner do the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from bot.cli.chat_commands import plain_text
from bot.cli.failures import fail
from bot.cli.terminal_language import find_terminal_language
from storage.records.people import Language

if TYPE_CHECKING:
    from bot.app.container import Container
    from bot.app.running_program import RunningProgram
    from bot.config.settings import Settings
    from cards.catalog import TextCatalog
    from storage.records.people import Person


@dataclass(frozen=True, slots=True)
class InitSession:
    """The texts are those under `setup.init`."""

    settings: Settings
    words: TextCatalog

    @staticmethod
    def open() -> InitSession:
        """Raises BadSettings."""
        from bot.config.settings import load_settings
        from cards.catalog import catalog_for

        settings = load_settings()
        language = settings.fixed_language or find_terminal_language(os.environ) or Language.ENGLISH
        return InitSession(settings, catalog_for(language))

    def text(self, key: str, **facts: object) -> str:
        return self.words(f"setup.init.{key}", **facts)

    def say(self, key: str, **facts: object) -> None:
        typer.echo(self.text(key, **facts))

    def warn(self, problem: str) -> None:
        typer.echo(f"⚠️ {plain_text(problem)}", err=True)

    def stop_without_terminal(self, option: str) -> NoReturn:
        fail(self.text(f"no_terminal_{option}"), status=2)

    def say_connected(self, found: str) -> None:
        """Tell what was found, and where it is stored."""
        self.say("connected", found=plain_text(found), file=self.settings.home / ".env")

    def ask(self, key: str, *, default: str | None = None, **facts: object) -> str:
        return str(typer.prompt(self.text(key, **facts), default=default))

    def ask_or_skip(self, key: str, *, is_hidden: bool = False) -> str:
        text = self.text(key)
        return str(typer.prompt(text, default="", show_default=False, hide_input=is_hidden))

    def ask_secret(self, key: str) -> str:
        return str(typer.prompt(self.text(key), hide_input=True))

    def ask_number(self, count: int) -> int:
        """The place of what was chosen, from 0."""
        while True:
            told = str(typer.prompt(self.text("number"), default="1")).strip()
            if told.isdecimal() and 1 <= int(told) <= count:
                return int(told) - 1
            self.say("wrong_number", n=count)

    def confirm(self, key: str, *, default: bool = False) -> bool:
        return typer.confirm(self.text(key), default=default)

    def call(
        self,
        running: RunningProgram,
        path: str,
        body: bytes | None = None,
        *,
        method: str | None = None,
    ) -> Any:
        """The running program's answer. Raises ProgramUnreachable and CommandRefused."""
        from bot.cli.local_execution import post_json

        return post_json(running, path, body, method=method, language=self.words.language)

    def run_here(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """In this process, which holds the data directory. Raises StartFailure."""
        from bot.cli.local_execution import run_here

        return run_here(self.settings, work, is_quiet=True)

    def as_owner(
        self, work: Callable[[Container, Person], Coroutine[Any, Any, Any]]
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        """The work of the local owner in this process. Raises CommandRefused for what it
        refuses."""

        async def run() -> Any:
            from bot.app.container import open_container
            from bot.cli.local_execution import CommandRefused, join_refusal
            from handlers.errors import UserError

            async with open_container(self.settings) as core:
                chat = await core.get_local_chat()
                assert chat.person_id is not None, "a private chat has a person"
                try:
                    return await work(core, await core.repositories.people.get(chat.person_id))
                except UserError as error:
                    title, hint = (
                        self.words(f"error.{error.key}.{part}", **error.facts)
                        for part in ("title", "hint")
                    )
                    raise CommandRefused(join_refusal(title, hint)) from error

        return run
