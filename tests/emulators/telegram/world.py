"""Everything the emulated service knows: one bot, its people, chats, files and calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram.chats import Chat, Message, Version
from tests.emulators.telegram.forms import Form, Upload
from tests.emulators.telegram.mischief import Bans, Plans
from tests.emulators.telegram.refusals import ApiError, bad_request, forbidden
from tests.emulators.telegram.signals import Changes
from tests.emulators.telegram.updates import Updates

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    id: str
    unique_id: str
    path: str
    upload: Upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the presser of a button saw pop up."""

    text: str = ""
    alert: bool = False


@dataclass(slots=True, kw_only=True)
class Query:
    id: str
    at: float
    expired: bool = False
    answer: Answer | None = None


@dataclass(slots=True, kw_only=True)
class Call:
    """One request as it came, and how it was answered (status 0: never)."""

    method: str
    form: Form
    at: float
    status: int = 0
    error: str = ""

    @property
    def chat_id(self) -> int:
        return self.form.integer("chat_id")

    @property
    def text(self) -> str:
        return self.form.text("text")


@dataclass(slots=True, kw_only=True)
class World:
    token: str
    clock: Callable[[], float]
    bot: Json
    changes: Changes = field(default_factory=Changes)
    updates: Updates = field(init=False)
    plans: Plans = field(default_factory=Plans)
    bans: Bans = field(default_factory=Bans)
    users: dict[int, Json] = field(default_factory=dict)
    chats: dict[int, Chat] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    commands: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    menu_button: Json = field(default_factory=lambda: {"type": "default"})
    calls: list[Call] = field(default_factory=list)
    token_good: bool = True
    query_lifetime: float = 15 * 60
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.updates = Updates(self.changes)

    def serial(self) -> int:
        return next(self._ids)

    def open_chat(self, chat_id: str) -> Chat:
        """The chat a call names, refused as Telegram refuses it."""
        chat = self.chats.get(_number(chat_id))
        if not chat_id:
            raise bad_request("chat_id is empty")
        if chat is None:
            if _number(chat_id) in self.users:
                raise forbidden("bot can't initiate conversation with a user")
            raise bad_request("chat not found")
        if chat.migrated_to is not None:
            raise bad_request(
                "group chat was upgraded to a supergroup chat",
                {"migrate_to_chat_id": chat.migrated_to},
            )
        if chat.closed_with:
            raise forbidden(chat.closed_with)
        return chat

    def post(self, chat: Chat, sender: Json, version: Version, **rest: Any) -> Message:
        """Put a message into a chat; supergroups count their own message ids."""
        own = chat.kind == "supergroup"
        number = len(chat.everything) + 1 if own else self.serial()
        message = Message(chat=chat, id=number, sender=sender, history=[version], **rest)
        chat.everything.append(message)
        self.changes.tell()
        return message

    def keep(self, upload: Upload, folder: str) -> StoredFile:
        """Store a file under a new id."""
        number = self.serial()
        suffix = upload.name.rpartition(".")[2] if "." in upload.name else "bin"
        stored = StoredFile(
            id=f"FILE{number:08d}",
            unique_id=f"UNIQ{number:06d}",
            path=f"{folder}/file_{number}.{suffix}",
            upload=upload,
        )
        self.files[stored.id] = stored
        return stored

    def file(self, file_id: str) -> StoredFile:
        try:
            return self.files[file_id]
        except KeyError:
            raise bad_request("wrong file_id or the file is temporarily unavailable") from None

    def check_token(self, token: str) -> None:
        if ":" not in token:
            raise ApiError(404, "Not Found")
        if token != self.token or not self.token_good:
            raise ApiError(401, "Unauthorized")


def _number(raw: str) -> int:
    try:
        return int(raw)
    except ValueError:
        return 0
