"""Defines a handler's input and output, and registers commands and looks them up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, TypeAlias, TypedDict
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog
from cards.courier import CardRef
from cards.model import Card
from handlers.errors import ActionForbidden, UserError
from handlers.ports import HandlerServices, InterruptedMessage
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, ChatKind, Person, PersonRole

_MAX_OWNERS_NAMED = 3
_MAX_OWNER_NAME = 40


class ChangeAuthor(TypedDict):
    """Who changes something, and the event that identifies the change."""

    by: Person
    source: str


OFFLINE = "offline"
"""The backend that is no model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One message or press of a person with access.

    `args` is the text after the command word, or the whole message. `source` identifies this event
    permanently: changes are recorded under it, so that a repeat after a crash changes nothing
    twice. `origin` identifies the message across its edits: one message creates one task. `files`
    were sent along, relative to the data directory. `answer_ref` is the card an answer is streamed
    into. `zone` is the Boss's. `interrupted` may be answered together with this message;
    `missing_files` were sent along too, but could not be fetched. `heard_at` is when the message
    came, or was sent if it came late: it decides about nothing that was asked later. `web_session`
    is that of the browser it came from, if any. `forwarded`: somebody else's words, passed on.
    """

    person: Person
    chat: Chat
    words: TextCatalog
    args: str
    source: str
    origin: str
    now: datetime
    zone: ZoneInfo
    services: HandlerServices
    answer_ref: CardRef
    files: tuple[str, ...] = ()
    message_id: str = ""
    model: str = ""
    backend: str = ""
    interrupted: tuple[InterruptedMessage, ...] = ()
    missing_files: tuple[str, ...] = ()
    heard_at: datetime | None = None
    web_session: str = ""
    forwarded: bool = False

    @property
    def author(self) -> ChangeAuthor:
        return {"by": self.person, "source": self.source}

    @property
    def by_owner(self) -> bool:
        return self.person.role.allows(PersonRole.OWNER)

    def require_owner(self) -> None:
        if not self.by_owner:
            raise ActionForbidden

    @property
    def in_private(self) -> bool:
        """False if others read along."""
        return self.chat.kind is ChatKind.PRIVATE

    @property
    def without_model(self) -> bool:
        """True if only fixed rules answer: no model is connected."""
        return self.services.models.default.backend == OFFLINE


class Silence(StrEnum):
    """Why an event gets no reply. INTERRUPTED ones are answered with a later message."""

    BOT = "bot"
    STRANGER = "stranger"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to a person.

    The card goes under `key`, or `reply:<inbox row>` if that is empty; `in_place`: it replaces the
    pressed card, whose key is `key`. `toast` answers a press, with `good` False for a refusal.
    A message always gets a card, unless there is a reason for `silence`. `joined` are the sources
    of interrupted messages that this reply answers too. `data` is the same content as JSON for
    command-line clients; None if there is only the card.
    """

    card: Card | None = None
    key: str = ""
    in_place: bool = False
    toast: str = ""
    good: bool = True
    urgency: DeliveryUrgency = DeliveryUrgency.ANSWER
    data: Mapping[str, Any] | None = None
    silence: Silence | None = None
    joined: tuple[str, ...] = ()


async def check_may_choose(request: Request) -> None:
    """In a private chat everyone may choose, in a group only owners. Raises UserError naming the
    owners."""
    if request.in_private or request.by_owner:
        return
    members = await request.services.people.list_members()
    owners = [each for each in members if each.person.role is PersonRole.OWNER]
    names = [
        formats.escape_markdown(each.person.name, _MAX_OWNER_NAME)
        for each in owners
        if not each.is_local_web_owner
    ]
    raise UserError(
        "group_choice", names=" · ".join(names[:_MAX_OWNERS_NAMED]) or request.words("people.one")
    )


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
