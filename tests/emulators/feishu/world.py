"""The tenant behind the emulator: people, chats, messages, card entities, files."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.emulators.feishu.clock import Clock

if TYPE_CHECKING:
    from tests.emulators.feishu.longconn import Push

WAIT = 60.0
"""For what is certain to come: seconds cost nothing where all is well, and machines are busy."""


@dataclass(slots=True, kw_only=True)
class Entity:
    """A CardKit card: content and sequence live here, messages only point to it."""

    card_id: str
    data: dict[str, Any]
    created: float
    sequence: int = 0
    message_id: str | None = None
    streaming: bool = False
    streaming_since: float = 0.0
    timed_out: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    """One message as everybody in the chat sees it now; `history` holds what it was before."""

    message_id: str
    chat: Chat
    sender_id: str
    by_bot: bool
    msg_type: str
    content: str
    created_ms: int
    root_id: str | None = None
    parent_id: str | None = None
    thread_id: str | None = None
    mentions: list[dict[str, Any]] = field(default_factory=list)
    entity: Entity | None = None
    uuid: str | None = None
    recalled: bool = False
    edits: int = 0
    history: list[str] = field(default_factory=list)
    reactions: list[dict[str, Any]] = field(default_factory=list)
    callbacks: int = 0
    push: Push | None = None

    @property
    def card(self) -> dict[str, Any]:
        """The card as it looks now; empty for other kinds of message."""
        if self.entity is not None:
            return self.entity.data
        loaded = json.loads(self.content) if self.msg_type == "interactive" else {}
        return loaded if isinstance(loaded, dict) else {}

    @property
    def text(self) -> str:
        """All visible words, cards included: what a person could read."""
        if self.recalled:
            return ""
        card = self.card
        shown = {"header": card.get("header"), "body": card.get("body")}
        loaded = shown if "schema" in card else card or json.loads(self.content)
        return html.unescape("\n".join(_words(loaded)))

    @property
    def buttons(self) -> list[str]:
        """Labels of the buttons one could press, in reading order."""
        return [button["text"]["content"] for button in components(self.card, "button")]

    @property
    def summary(self) -> str:
        """What the chat list shows."""
        return str(self.card.get("config", {}).get("summary", {}).get("content", ""))

    @property
    def header(self) -> str:
        title = self.card.get("header", {}).get("title", {})
        return str(title.get("content", ""))


@dataclass(slots=True, kw_only=True, eq=False)
class Chat:
    world: World
    chat_id: str
    kind: str
    title: str
    topics: bool = False
    bot_in: bool = True
    gone: bool = False
    messages: list[Message] = field(default_factory=list)
    peer_id: str | None = None

    @property
    def from_bot(self) -> list[Message]:
        return [message for message in self.messages if message.by_bot and not message.recalled]

    async def wait_for(self, predicate: Callable[[Message], Any], timeout: float = WAIT) -> Message:
        """The newest message of the bot for which `predicate` holds, now or soon."""
        found: list[Message] = []

        def look() -> bool:
            found[:] = [message for message in self.from_bot if predicate(message)]
            return bool(found)

        try:
            await self.world.until(look, timeout)
        except TimeoutError:
            seen = "\n---\n".join(message.text for message in self.from_bot)
            raise AssertionError(f"no such message in {self.title} yet; seen:\n{seen}") from None
        return found[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    data: bytes
    name: str
    kind: str


class World:
    """Everything that exists, and a bell that rings at every change."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.chats: dict[str, Chat] = {}
        self.messages: dict[str, Message] = {}
        self.entities: dict[str, Entity] = {}
        self.people: dict[str, str] = {}
        self.out_of_scope: set[str] = set()
        self.muted_bot: set[str] = set()
        self.images: dict[str, Blob] = {}
        self.files: dict[str, Blob] = {}
        self._numbers = itertools.count(1)
        self._bell = asyncio.Event()

    def new_id(self, prefix: str, width: int = 24) -> str:
        return f"{prefix}{next(self._numbers):0{width}x}"

    def ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def until(self, condition: Callable[[], bool], timeout: float = WAIT) -> None:
        """Return when `condition` holds, looking again after every change."""
        async with asyncio.timeout(timeout):
            while True:
                bell = self._bell
                if condition():
                    return
                await bell.wait()

    def p2p(self, open_id: str) -> Chat:
        """The private chat with this person, opened on first use."""
        for chat in self.chats.values():
            if chat.peer_id == open_id:
                return chat
        title = self.people.get(open_id, open_id)
        chat = Chat(
            world=self, chat_id=self.new_id("oc_"), kind="p2p", title=title, peer_id=open_id
        )
        self.chats[chat.chat_id] = chat
        return chat

    def post(self, message: Message) -> None:
        self.messages[message.message_id] = message
        message.chat.messages.append(message)
        self.ring()


def components(node: Any, tag: str) -> Iterator[dict[str, Any]]:
    """Every component with this tag, in document order."""
    if isinstance(node, dict):
        if node.get("tag") == tag:
            yield node
        for value in node.values():
            yield from components(value, tag)
    elif isinstance(node, list):
        for value in node:
            yield from components(value, tag)


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key in ("text", "content", "title", "label", "placeholder", "display_name"):
            if isinstance(node.get(key), str):
                yield node[key]
        for row in node.get("rows", []) if node.get("tag") == "table" else []:
            yield from (str(value) for value in row.values())
        for value in node.values():
            if isinstance(value, dict | list):
                yield from _words(value)
    elif isinstance(node, list):
        for value in node:
            yield from _words(value)
