"""Fits the engine and the repositories to the ports that handlers declare."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.config.settings import Settings
from bot.engine.agent.sandbox.base import Sandbox
from cards.card_json import BadCard, load_card
from cards.courier import Courier
from cards.model import Card, Form
from handlers.ports import Refusal
from handlers.services.projects import FolderRefused, WhyNot
from handlers.work.copies import Copies
from storage.approvals import Approvals
from storage.mail.actions import Actions, Claim
from storage.mail.chats import Chats
from storage.mail.outbox import Outbox
from storage.people import People
from storage.records.approvals import Approval
from storage.records.messages import ActionRow, InboxId, OutboxRow
from storage.records.people import Chat, ChatId, Language, Person, PersonId, Role
from storage.records.status import ChannelHealth, ModelChoice, SystemStatus
from storage.records.tasks import Task
from storage.work.tasks import TaskRepo

_RECENT = 3
_LOOKS, _BETWEEN_LOOKS = 20, 0.1
"""How often a card that is just being sent is looked for, and the seconds between."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_REFUSALS: Mapping[Claim, Refusal | None] = {
    Claim.FRESH: None,
    Claim.AGAIN: None,
    Claim.UNKNOWN: Refusal.UNKNOWN,
    Claim.FOREIGN: Refusal.FOREIGN,
    Claim.NOT_ALLOWED: Refusal.NOT_ALLOWED,
    Claim.EXPIRED: Refusal.EXPIRED,
    Claim.RETIRED: Refusal.RETIRED,
    Claim.USED: Refusal.USED,
}


class ApprovalService:
    """Satisfies `handlers.ports.Approvals`. `on_decided` is called after the commit: tasks may
    have been queued by it."""

    def __init__(self, approvals: Approvals, on_decided: Callable[[], None]) -> None:
        self._approvals = approvals
        self._on_decided = on_decided

    async def waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        return await self._approvals.waiting(by=by, chat=chat)

    async def find(self, prefix: str) -> Approval:
        return await self._approvals.find(prefix)

    async def decide(
        self,
        approval: Approval,
        *,
        approve: bool,
        by: Person,
        source: str,
        reason: str = "",
        scope: str = "",
    ) -> Approval:
        decided = await self._approvals.decide(
            approval, approve=approve, by=by, source=source, reason=reason, scope=scope
        )
        self._on_decided()
        return decided


class ButtonService:
    """Satisfies `handlers.ports.Buttons`."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    async def look(self, token: str) -> ActionRow | None:
        return await self._actions.look(token)

    async def claim(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> Refusal | None:
        claim = await self._actions.claim(
            token, person=person, chat=chat, inbox_id=inbox_id, now=now
        )
        return _REFUSALS[claim]


class CardService:
    """Satisfies `handlers.ports.Cards`."""

    def __init__(
        self,
        outbox: Outbox,
        chats: Chats,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._outbox = outbox
        self._chats = chats
        self._sleep = sleep

    async def form_of(self, chat_id: ChatId, message_id: str) -> Form | None:
        row = await self._shown_at(await self._chats.get(chat_id), message_id)
        card = None if row is None else _loaded(row.card)
        blocks = () if card is None else card.blocks
        return next((block for block in blocks if isinstance(block, Form)), None)

    async def _shown_at(self, chat: Chat, message_id: str) -> OutboxRow | None:
        """A reply may be quicker than the note of where the platform has put the card."""
        for _ in range(_LOOKS):
            row = await self._outbox.at(chat.channel, chat.external_id, message_id)
            if row is not None or not await self._outbox.under_way(chat.id):
                return row
            await self._sleep(_BETWEEN_LOOKS)
        return None

    async def card(self, key: str) -> Card | None:
        row = await self._outbox.by_key(key)
        return None if row is None else _loaded(row.card)

    async def copies(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        return await self._outbox.by_prefix(prefix)

    async def asking(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        return await self._outbox.asking(approval_id)


class Channels(Protocol):
    def health(self) -> Sequence[ChannelHealth]: ...


class SystemService:
    """Satisfies `handlers.ports.System`."""

    def __init__(
        self,
        *,
        tasks: TaskRepo,
        approvals: Approvals,
        outbox: Outbox,
        channels: Channels,
        model: Callable[[], ModelChoice],
        slots: int,
        zone: ZoneInfo,
        now: Callable[[], datetime],
        sandbox: Callable[[], Awaitable[Sandbox]],
        unnamed_owner: Callable[[], str],
    ) -> None:
        self._unnamed_owner = unnamed_owner
        self._sandbox = sandbox
        self._tasks = tasks
        self._approvals = approvals
        self._outbox = outbox
        self._channels = channels
        self._model = model
        self._slots = slots
        self._zone = zone
        self._now = now
        self._started_at = now()

    async def status(self, *, by: Person) -> SystemStatus:
        waiting = await self._approvals.waiting(by=by, chat=None)
        recent: Sequence[Task] = ()
        if by.role is Role.OWNER:
            recent = await self._tasks.recent(_RECENT)
        return SystemStatus(
            version=version("shiftboss"),
            pid=os.getpid(),
            started_at=self._started_at,
            memory_bytes=_resident_bytes(),
            model=self._model(),
            channels=tuple(self._channels.health()),
            slots=self._slots,
            counts=await self._tasks.counts(),
            today=await self._tasks.made_since(_midnight(self._now(), self._zone)),
            waiting_approvals=len(waiting),
            queued_messages=await self._outbox.queued(),
            recent=tuple(recent),
            sandbox=(await self._sandbox()).kind.value,
            unnamed_owner=self._unnamed_owner(),
        )


class ProjectService:
    """Satisfies `handlers.services.projects.Projects`. `home` is the data directory."""

    def __init__(self, home: Path, is_repository: Callable[[Path], Awaitable[bool]]) -> None:
        self._home = home
        self._is_repository = is_repository

    async def choose(self, path: str) -> str:
        return await asyncio.to_thread(self._choose, path)

    async def in_git(self, folder: str) -> bool:
        return await self._is_repository(Path(folder))

    def _choose(self, path: str) -> str:
        try:
            full = Path(path).expanduser()
        except RuntimeError as error:
            # `~somebody` whom this machine does not know.
            raise FolderRefused(WhyNot.MISSING, path) from error
        if not full.is_absolute():
            raise FolderRefused(WhyNot.RELATIVE, path)
        try:
            folder = full.resolve(strict=True)
            there = folder.is_dir()
        except (OSError, RuntimeError, ValueError) as error:
            raise FolderRefused(WhyNot.MISSING, path) from error
        if not there:
            raise FolderRefused(WhyNot.MISSING, path)
        home = self._home.resolve()
        apart = not (home.is_relative_to(folder) or folder.is_relative_to(home))
        if not apart or folder == Path(folder.anchor):
            raise FolderRefused(WhyNot.TOO_WIDE, path)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise FolderRefused(WhyNot.UNUSABLE, path)
        return str(folder)


class LanguageOfTask:
    """The language in which a task's cards are written: `fixed` if given, else its chat's, its
    maker's, or that of the instruction itself."""

    def __init__(
        self, people: People, guess: Callable[[str], Language | None], fixed: Language | None
    ) -> None:
        self._people = people
        self._guess = guess
        self._fixed = fixed

    async def __call__(self, task: Task) -> Language:
        if self._fixed is not None:
            return self._fixed
        chat = await self._people.chat(task.chat_id)
        if chat.settings.language is not None:
            return chat.settings.language
        person = await self._people.get(task.created_by)
        return person.language or self._guess(task.instruction) or Language.ENGLISH


def copies_of(
    settings: Settings,
    language: Language | None,
    *,
    people: People,
    chats: Chats,
    outbox: Outbox,
    courier: Courier,
) -> Copies:
    return Copies(
        people=people,
        cards=CardService(outbox, chats),
        courier=courier,
        zone=settings.zone,
        language=language,
    )


def _loaded(card: Mapping[str, object]) -> Card | None:
    try:
        return load_card(card)
    except BadCard:
        # Written by another version: nobody can press what we do not understand.
        return None


def _midnight(now: datetime, zone: ZoneInfo) -> datetime:
    return now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
