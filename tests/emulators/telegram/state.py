"""Everything the emulated service knows: one bot, its people, chats, files and calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram.chats import MessageVersion, TelegramChat, TelegramMessage
from tests.emulators.telegram.errors import TelegramApiError, bad_request, forbidden
from tests.emulators.telegram.faults import FaultPlans, FloodBans, FloodLimits
from tests.emulators.telegram.request_forms import RequestForm, UploadedFile
from tests.emulators.telegram.updates import UpdateQueue
from tests.waiting import ChangeSignal

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    id: str
    unique_id: str
    path: str
    upload: UploadedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The pop-up that a person saw after pressing a button."""

    text: str = ""
    alert: bool = False


@dataclass(slots=True, kw_only=True)
class CallbackQuery:
    id: str
    at: float
    expired: bool = False
    answer: QueryAnswer | None = None


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """One request as it came, and how it was answered (status 0: never)."""

    method: str
    form: RequestForm
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
class TelegramState:
    token: str
    clock: Callable[[], float]
    bot: Json
    changes: ChangeSignal = field(default_factory=ChangeSignal)
    updates: UpdateQueue = field(init=False)
    fault_plans: FaultPlans = field(default_factory=FaultPlans)
    bans: FloodBans = field(default_factory=FloodBans)
    flood: FloodLimits = field(default_factory=FloodLimits)
    users: dict[int, Json] = field(default_factory=dict)
    chats: dict[int, TelegramChat] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    queries: dict[str, CallbackQuery] = field(default_factory=dict)
    commands: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    menu_button: Json = field(default_factory=lambda: {"type": "default"})
    calls: list[RecordedCall] = field(default_factory=list)
    token_valid: bool = True
    query_lifetime: float = 15 * 60
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.updates = UpdateQueue(self.changes)

    def next_id(self) -> int:
        return next(self._ids)

    def open_chat(self, chat_id: str) -> TelegramChat:
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
        if chat.closed_reason:
            raise forbidden(chat.closed_reason)
        return chat

    def post(
        self, chat: TelegramChat, sender: Json, version: MessageVersion, **rest: Any
    ) -> TelegramMessage:
        """Put a message into a chat; supergroups count their own message ids."""
        own = chat.kind == "supergroup"
        number = len(chat.all_messages) + 1 if own else self.next_id()
        message = TelegramMessage(chat=chat, id=number, sender=sender, history=[version], **rest)
        chat.all_messages.append(message)
        self.changes.notify()
        return message

    def store_file(self, upload: UploadedFile, folder: str) -> StoredFile:
        """Store a file under a new id."""
        number = self.next_id()
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
            raise TelegramApiError(404, "Not Found")
        if token != self.token or not self.token_valid:
            raise TelegramApiError(401, "Unauthorized")


def _number(raw: str) -> int:
    try:
        return int(raw)
    except ValueError:
        return 0
