"""Notes and edits of shared pages that workers propose. Nothing holds before a person says yes: a
worker may repeat what a web page told it to."""

from __future__ import annotations

import difflib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.engine.memory.access import MemoryReader
from bot.engine.memory.change_feed import DeferredPublisher, MemoryChangeFeed
from bot.engine.memory.noise_filter import NoiseKind, classify_fact_noise, to_storable_text
from bot.engine.memory.promotion import QualityCounts, QualityMetrics
from cards.formats import single_line, strip_invisible
from storage.approvals import ApprovalRepo, NewApproval, add_approval, withdraw_approval
from storage.db import STORE_RETRY_SECONDS, Database, Transaction
from storage.errors import ConcurrentUpdate, StoreUnavailable
from storage.ids import IdGenerator
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.memory import (
    GLOBAL_SCOPE,
    MAX_ENTRY_TEXT,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
    NewMemoryEntry,
    text_hash,
)
from storage.records.people import ChatId, Language
from storage.records.tasks import TaskId

log = logging.getLogger(__name__)

MAX_NOTE_CHARS = 400
"""A longer one would not be shown whole on a card."""
MAX_OPEN_NOTES, MAX_OPEN_EDITS = 5, 5
"""Of one task, and of all tasks, until a person has decided."""
HANDBOOK_PAGE = "BOSS.md"
_SKILL_PREFIX = "skill:"
_NOTE_SOURCE = "note:"
_MAX_ENTRIES = 200
_MAX_TITLE = 80
_PAGE, _SECTION, _ENTRY, _BASE, _TEXT = "page", "section", "entry", "base", "text"
"""Keys in the payload of a request: the page, the title of the section, its entry and the digest of
that as it was shown (both empty for a new one), and the new text."""


class ProposalRefused(Exception):
    """Nothing was proposed. The text tells the worker why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposingTask:
    """The task whose worker proposes, and who reads what it reads. `project` is its folder."""

    id: TaskId
    reader: MemoryReader
    uses_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEdit:
    """The new text of a section. The handbook's sections are its chapters, by title; a skill's are
    its memories, by ID, empty for a new one."""

    page: str
    section: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProposals:
    """`list_owner_chats` is where owners are asked; `show_request` publishes the card of a new
    request."""

    db: Database
    entries: MemoryEntryRepo
    cells: CellRepo
    withheld: WithheldTurnRepo
    quality: QualityMetrics
    feed: MemoryChangeFeed
    approvals: ApprovalRepo
    ids: IdGenerator
    lifetime: timedelta
    list_owner_chats: Callable[[], Awaitable[Sequence[tuple[ChatId, Language]]]]
    show_request: Callable[[Approval], Awaitable[None]]
    mask: Callable[[str], str]
    now: Callable[[], datetime]

    async def propose_note(
        self, task: ProposingTask, text: str, category: MemoryCategory, *, for_project: bool
    ) -> MemoryEntry:
        """Store a candidate, which the person of the task decides about, or an owner if it is for
        the project. Once, also if it is called again after a crash. Raises ProposalRefused."""
        scope = self._note_scope(task, for_project=for_project)
        text = self._clean(text)
        if not text or len(text) > MAX_NOTE_CHARS:
            raise ProposalRefused(f"a note has 1 to {MAX_NOTE_CHARS} characters")
        async with self.db.write() as tx:
            await self._require_consent(tx, task)
            refused = await self._refuse_noise(tx, text)
            note = None if refused else await self._add_note(tx, task, scope, text, category)
        if note is None:
            raise ProposalRefused(refused)
        self.feed.publish(scope)
        return note

    async def read_page(self, task: ProposingTask, page: str) -> str:
        """The sections with their names. Raises ProposalRefused."""
        sections = await self._list_sections(_page_scope(task, page))
        shown = (f"## {_section_name(page, each)}\n{each.text}" for each in sections)
        return "\n\n".join(shown) or "This page is empty."

    async def propose_edit(self, task: ProposingTask, edit: PageEdit) -> Approval:
        """Ask an owner, once, also if it is called again after a crash. Raises ProposalRefused."""
        scope, text = _page_scope(task, edit.page), self._clean(edit.text)
        section = single_line(strip_invisible(edit.section), _MAX_TITLE)
        if not text or len(text) > MAX_ENTRY_TEXT:
            raise ProposalRefused(f"a section has 1 to {MAX_ENTRY_TEXT} characters")
        chats = await self.list_owner_chats()
        if not chats:
            raise ProposalRefused("there is no owner to ask yet")
        async with self.db.write() as tx:
            await self._require_consent(tx, task)
            if classify_fact_noise(text) is NoiseKind.SUSPICIOUS:
                raise ProposalRefused("this reads like orders to an AI, not like a page")
            held = await self._find_section(tx, scope, edit.page, section)
            old = "" if held is None else held.text
            if text == old:
                raise ProposalRefused("this section has this text already")
            new = self._request(task, replace(edit, section=section, text=text), held, chats[0][0])
            waiting = await self.approvals.list_waiting_of_kind(ApprovalKind.PAGE, tx=tx)
            same = next((each for each in waiting if each.subject == new.subject), None)
            if same is not None:
                return same
            if len(waiting) >= MAX_OPEN_EDITS:
                raise ProposalRefused("the owner has other edits to decide about first")
            approval = await add_approval(tx, new, ids=self.ids, now=self.now())
        await self.show_request(approval)
        return approval

    def _clean(self, text: str) -> str:
        return self.mask(strip_invisible(to_storable_text(text))).strip()

    def _note_scope(self, task: ProposingTask, *, for_project: bool) -> MemoryScope:
        project = task.reader.project
        if for_project and project:
            return MemoryScope(MemoryScopeKind.PROJECT, project)
        scope = None if for_project else task.reader.write_scope
        if scope is None:
            raise ProposalRefused("there is nobody here whose note it would be")
        return scope

    async def _require_consent(self, tx: Transaction, task: ProposingTask) -> None:
        chat = task.reader.chat
        if chat is None or not task.uses_memory or chat.settings.memory_off:
            raise ProposalRefused("nothing is remembered here, as the person wants it")
        if await self.withheld.get(chat.id, tx=tx) is not None:
            raise ProposalRefused("the person does not want this conversation to be remembered")

    async def _refuse_noise(self, tx: Transaction, text: str) -> str:
        noise = classify_fact_noise(text)
        if noise is None:
            return ""
        is_suspicious = noise is NoiseKind.SUSPICIOUS
        counts = QualityCounts(facts=1, filtered=1, suspicious=int(is_suspicious))
        await self.quality.add(tx, counts, today=self.now().date())
        return f"this is not kept ({noise.value}): a note is a plain sentence about how things are"

    async def _add_note(
        self,
        tx: Transaction,
        task: ProposingTask,
        scope: MemoryScope,
        text: str,
        category: MemoryCategory,
    ) -> MemoryEntry:
        for same in await self.entries.list_with_same_text(scope, text, tx=tx):
            if same.state is MemoryState.REJECTED:
                raise ProposalRefused("the person did not want this to be remembered")
            if same.state in {MemoryState.ACTIVE, MemoryState.CANDIDATE}:
                return same
        open_notes = [
            each
            for each in await self.entries.list([scope], states=[MemoryState.CANDIDATE], tx=tx)
            if each.task == task.id and (each.source or "").startswith(_NOTE_SOURCE)
        ]
        if len(open_notes) >= MAX_OPEN_NOTES:
            raise ProposalRefused(f"{MAX_OPEN_NOTES} notes of this task wait for a decision")
        new = NewMemoryEntry(
            kind=MemoryKind.LONGTERM,
            scope=scope,
            text=text,
            category=category,
            state=MemoryState.CANDIDATE,
            tier=MemoryTier.WORKING,
            origin=MemoryOrigin.TASK,
            source=f"{_NOTE_SOURCE}{task.id}:{text_hash(text)}",
            person=task.reader.person,
            chat=None if task.reader.chat is None else task.reader.chat.id,
            task=task.id,
            said_at=self.now(),
        )
        note = await self.entries.add(tx, new, now=self.now())
        if note is None:
            raise ProposalRefused("the person did not want this to be remembered")
        counts = QualityCounts(facts=1, candidates=1, from_tasks=1)
        await self.quality.add(tx, counts, today=self.now().date())
        return note

    async def _list_sections(
        self, scope: MemoryScope, *, tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        kind = MemoryKind.HANDBOOK if scope == GLOBAL_SCOPE else MemoryKind.LONGTERM
        found = await self.entries.list([scope], kinds=[kind], limit=_MAX_ENTRIES, tx=tx)
        return sorted(found, key=lambda each: each.number)

    async def _find_section(
        self, tx: Transaction, scope: MemoryScope, page: str, section: str
    ) -> MemoryEntry | None:
        if not section and scope != GLOBAL_SCOPE:
            return None
        sections = await self._list_sections(scope, tx=tx)
        wanted = section.casefold()
        found = next((s for s in sections if _section_name(page, s).casefold() == wanted), None)
        if found is None:
            there = ", ".join(_section_name(page, each) for each in sections)[:1_000]
            raise ProposalRefused(f"there is no section {section!r} on {page}; there are {there}")
        return found

    def _request(
        self, task: ProposingTask, edit: PageEdit, held: MemoryEntry | None, chat: ChatId
    ) -> NewApproval:
        payload = {
            _PAGE: edit.page,
            _SECTION: edit.section,
            _ENTRY: "" if held is None else held.id,
            _BASE: "" if held is None else _section_digest(held),
            _TEXT: edit.text,
            "task": task.id,
            "reason": self._clean(edit.reason)[:MAX_NOTE_CHARS],
        }
        exact = "\0".join(str(payload[key]) for key in (_PAGE, _ENTRY, _BASE, _TEXT))
        digest = hashlib.sha256(exact.encode()).hexdigest()
        place = " · ".join(filter(None, (edit.page, edit.section)))
        return NewApproval(
            kind=ApprovalKind.PAGE,
            chat_id=chat,
            title=place,
            detail=_unified_diff("" if held is None else held.text, edit.text, place),
            subject=f"page:{digest[:32]}",
            command_hash=digest,
            expires_at=self.now() + self.lifetime,
            payload=payload,
        )


@dataclass(slots=True, kw_only=True)
class PageEditDecisions(DeferredPublisher):
    """Applies a yes in the transaction that records it."""

    entries: MemoryEntryRepo
    cells: CellRepo
    now: Callable[[], datetime]

    async def apply_approval(self, tx: Transaction, approval: Approval) -> None:
        """Raises ConcurrentUpdate if the section is not as it was shown any more."""
        if approval.state is not ApprovalState.APPROVED:
            return
        page, text = str(approval.payload[_PAGE]), str(approval.payload[_TEXT])
        if not await is_page_edit_current(self.cells, approval, tx=tx):
            raise ConcurrentUpdate(f"{page} was changed after the edit was shown")
        now = self.now()
        if entry_id := str(approval.payload[_ENTRY]):
            held = await self.cells.find(EntryId(entry_id), tx=tx)
            assert held is not None
            # A person has read and allowed these words: they are theirs.
            edited = replace(
                held,
                text=text,
                abstract="",
                overview="",
                origin=MemoryOrigin.MANUAL,
                confidence=1.0,
            )
            await self.entries.remove_tombstone(tx, held.scope, text)
            await self.entries.update(tx, edited, now=now)
            self._changed_scopes.add(held.scope)
            return
        scope = MemoryScope.parse(page)
        new = NewMemoryEntry(
            kind=MemoryKind.LONGTERM,
            scope=scope,
            text=text,
            origin=MemoryOrigin.MANUAL,
            confidence=1.0,
            tier=MemoryTier.CORE,
            said_at=now,
        )
        await self.entries.remove_tombstone(tx, scope, text)
        await self.entries.add(tx, new, now=now)
        self._changed_scopes.add(scope)


@dataclass(slots=True, kw_only=True)
class PageEditReviewer:
    """A service that withdraws requests whose section was changed or deleted, and shows those again
    that a crash may have kept from being shown."""

    name = "memory-page-edits"

    db: Database
    cells: CellRepo
    approvals: ApprovalRepo
    feed: MemoryChangeFeed
    show_approval: Callable[[Approval], Awaitable[None]]
    show_settled_approvals: Callable[[Sequence[Approval]], Awaitable[None]]
    sleep: Callable[[float], Awaitable[None]]
    now: Callable[[], datetime]

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None:
        news = self.feed.subscribe()
        is_first = True
        while True:
            try:
                await self.review(show_again=is_first)
            except StoreUnavailable as error:
                log.warning("edits of pages wait for the store: %s", error)
                await self.sleep(STORE_RETRY_SECONDS)
                continue
            is_first = False
            await news.wait()

    async def review(self, *, show_again: bool) -> None:
        over: list[Approval] = []
        for approval in await self.approvals.list_waiting_of_kind(ApprovalKind.PAGE):
            async with self.db.write() as tx:
                is_current = await is_page_edit_current(self.cells, approval, tx=tx)
                if not is_current:
                    await withdraw_approval(
                        tx, approval.id, reason_key="memory.page_changed", now=self.now()
                    )
            if not is_current:
                over.append(await self.approvals.get(approval.id))
            elif show_again:
                await self.show_approval(approval)
        if over:
            await self.show_settled_approvals(over)


async def is_page_edit_current(
    cells: CellRepo, approval: Approval, *, tx: Transaction | None = None
) -> bool:
    entry_id = str(approval.payload[_ENTRY])
    if not entry_id:
        return True
    held = await cells.find(EntryId(entry_id), tx=tx)
    return held is not None and _section_digest(held) == approval.payload[_BASE]


def is_worker_note(entry: MemoryEntry) -> bool:
    return entry.task is not None and (entry.source or "").startswith(_NOTE_SOURCE)


def _page_scope(task: ProposingTask, page: str) -> MemoryScope:
    """Pages are named exactly: no name is ever a path."""
    skills = {str(each) for each in task.reader.scopes if each.kind is MemoryScopeKind.SKILL}
    if task.reader.chat is not None and page == HANDBOOK_PAGE:
        return GLOBAL_SCOPE
    if page in skills:
        return MemoryScope.parse(page)
    there = ", ".join((HANDBOOK_PAGE, *sorted(skills)))
    raise ProposalRefused(f"there is no page {page[:_MAX_TITLE]!r} here; there are {there}")


def _section_name(page: str, section: MemoryEntry) -> str:
    return (section.label or section.key) if page == HANDBOOK_PAGE else section.id


def _section_digest(held: MemoryEntry) -> str:
    """Of what a person decides about; its use and its pin do not count."""
    told = "\0".join((held.text, held.label, held.kind, str(held.scope), held.state))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _unified_diff(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="", n=2)
    return "\n".join(lines)
