"""The tenant behind the emulator: people, chats, messages, card entities, files."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.waiting import WAIT_SECONDS, ChangeSignal

if TYPE_CHECKING:
    from tests.emulators.feishu.long_connection import EventPush


class EmulatorClock:
    """Real time plus whatever a test added; sleepers wake when either gets them there."""

    def __init__(self) -> None:
        self._offset = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return time.time() + self._offset

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def advance(self, seconds: float) -> None:
        self._offset += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def sleep_until(self, due: float) -> None:
        while (left := due - self.now()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._moved.wait()
            except TimeoutError:
                continue


@dataclass(slots=True, kw_only=True)
class CardEntity:
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
class FeishuMessage:
    """One message as everybody in the chat sees it now; `history` holds what it was before."""

    message_id: str
    chat: FeishuChat
    sender_id: str
    by_bot: bool
    msg_type: str
    content: str
    created_ms: int
    root_id: str | None = None
    parent_id: str | None = None
    thread_id: str | None = None
    mentions: list[dict[str, Any]] = field(default_factory=list)
    entity: CardEntity | None = None
    uuid: str | None = None
    recalled: bool = False
    edits: int = 0
    history: list[str] = field(default_factory=list)
    reactions: list[dict[str, Any]] = field(default_factory=list)
    callbacks: int = 0
    push: EventPush | None = None
    passed_on: tuple[FeishuMessage, ...] = ()
    """Of a merge_forward: the messages that it passes on."""

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
        return html.unescape("\n".join(_visible_texts(loaded)))

    @property
    def buttons(self) -> list[str]:
        """Labels of the buttons one could press, in reading order."""
        return [button["text"]["content"] for button in components(self.card, "button")]

    @property
    def summary(self) -> str:
        """The entry in the chat list."""
        return str(self.card.get("config", {}).get("summary", {}).get("content", ""))

    @property
    def header(self) -> str:
        title = self.card.get("header", {}).get("title", {})
        return str(title.get("content", ""))


@dataclass(slots=True, kw_only=True, eq=False)
class FeishuChat:
    world: FeishuTenant
    chat_id: str
    kind: str
    title: str
    topics: bool = False
    has_bot: bool = True
    dissolved: bool = False
    messages: list[FeishuMessage] = field(default_factory=list)
    peer_id: str | None = None

    @property
    def from_bot(self) -> list[FeishuMessage]:
        return [message for message in self.messages if message.by_bot and not message.recalled]

    async def wait_for(
        self, predicate: Callable[[FeishuMessage], Any], timeout: float = WAIT_SECONDS
    ) -> FeishuMessage:
        """The newest message of the bot for which `predicate` holds, now or soon."""
        found: list[FeishuMessage] = []

        def look() -> bool:
            found[:] = [message for message in self.from_bot if predicate(message)]
            return bool(found)

        try:
            await self.world.wait_until(look, timeout)
        except TimeoutError:
            seen = "\n---\n".join(message.text for message in self.from_bot)
            raise AssertionError(f"no such message in {self.title} yet; seen:\n{seen}") from None
        return found[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlob:
    data: bytes
    name: str
    kind: str


class FeishuTenant:
    """Everything that exists, and a bell that rings at every change."""

    def __init__(self, clock: EmulatorClock) -> None:
        self.clock = clock
        self.chats: dict[str, FeishuChat] = {}
        self.messages: dict[str, FeishuMessage] = {}
        self.entities: dict[str, CardEntity] = {}
        self.people: dict[str, str] = {}
        self.out_of_scope: set[str] = set()
        self.muted_bot: set[str] = set()
        self.images: dict[str, StoredBlob] = {}
        self.files: dict[str, StoredBlob] = {}
        self._numbers = itertools.count(1)
        self._changes = ChangeSignal()
        self.notify_changed = self._changes.notify
        self.wait_until = self._changes.until_true

    def new_id(self, prefix: str, width: int = 24) -> str:
        return f"{prefix}{next(self._numbers):0{width}x}"

    def p2p(self, open_id: str) -> FeishuChat:
        """The private chat with this person, opened on first use."""
        for chat in self.chats.values():
            if chat.peer_id == open_id:
                return chat
        title = self.people.get(open_id, open_id)
        chat = FeishuChat(
            world=self, chat_id=self.new_id("oc_"), kind="p2p", title=title, peer_id=open_id
        )
        self.chats[chat.chat_id] = chat
        return chat

    def post(self, message: FeishuMessage) -> None:
        self.messages[message.message_id] = message
        message.chat.messages.append(message)
        self.notify_changed()


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


def _visible_texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key in ("text", "content", "title", "label", "placeholder", "display_name"):
            if isinstance(node.get(key), str):
                yield node[key]
        for row in node.get("rows", []) if node.get("tag") == "table" else []:
            yield from (str(value) for value in row.values())
        for value in node.values():
            if isinstance(value, dict | list):
                yield from _visible_texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _visible_texts(value)
