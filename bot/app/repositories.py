"""Builds all repositories on one database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from zoneinfo import ZoneInfo

from bot.app.memory_retrieval import MemoryRepositories
from bot.engine.agent.budget import grant_cap_extension
from bot.engine.autonomy.evolution.retirement import PromptDecisions
from bot.engine.mcp.client.project_servers import McpConsents
from bot.engine.memory.candidate_review import CandidateReview
from bot.engine.memory.promotion import QualityMetrics
from bot.engine.memory.worker_proposals import PageEditDecisions
from bot.engine.permissions.requests import ApprovalRequester, DecisionRecorder
from bot.engine.tasks.approvals import TaskApprovalEffects
from bot.engine.tasks.undoing import TaskUndoing
from bot.engine.workflow.task_store import TaskStore
from bot.engine.workspaces.projects import RepositoryAdoption
from bot.transports.ports import Clock
from cards.courier import Courier, OwnerCardSender
from handlers.language import ChatLanguageResolver, TaskLanguageResolver
from storage.account_links import AccountLinkRepo
from storage.approvals import ApprovalRepo, DecisionHandler
from storage.db import Database
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.memory.linked_memories import person_scope
from storage.messages.card_actions import CardActionRepo
from storage.messages.chats import ChatRepo
from storage.messages.inbox import InboxRepo
from storage.messages.outbox import OutboxRepo
from storage.people import PairingRepo, PeopleRepo
from storage.records.approvals import ApprovalKind
from storage.records.people import ChatId, Language, PersonId, PersonRole
from storage.sessions import SessionRepo
from storage.tools import PermissionGrantRepo, ToolCallRepo
from storage.usage import UsageRepo

_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySet:
    """All repositories, and what applies decisions in the deciding transaction."""

    db: Database
    ids: IdGenerator
    chats: ChatRepo
    people: PeopleRepo
    key_values: KeyValueStore
    mcp_consents: McpConsents
    pairings: PairingRepo
    account_links: AccountLinkRepo
    approvals: ApprovalRepo
    inbox: InboxRepo
    outbox: OutboxRepo
    actions: CardActionRepo
    usage: UsageRepo
    sessions: SessionRepo
    work: TaskStore
    undoing: TaskUndoing
    chat_language: ChatLanguageResolver
    task_language: TaskLanguageResolver
    tool_calls: ToolCallRepo
    grants: PermissionGrantRepo
    approval_requester: ApprovalRequester
    memory: MemoryRepositories
    candidate_review: CandidateReview
    page_edits: PageEditDecisions
    clock: Clock

    @property
    def adoption(self) -> RepositoryAdoption:
        tasks, now = self.work.tasks, self.clock.now
        return RepositoryAdoption(tasks=tasks, key_values=self.key_values, now=now)

    def owner_cards(self, courier: Courier) -> OwnerCardSender:
        return OwnerCardSender(
            list_chats=partial(self.chats.list_private, PersonRole.OWNER),
            language_of=self.chat_language,
            courier=courier,
        )

    async def list_owner_chats(self) -> Sequence[tuple[ChatId, Language]]:
        """The private chats of the owners with their languages."""
        chats = await self.chats.list_private(PersonRole.OWNER)
        return [(each.id, await self.chat_language(each)) for each in chats]


def build_repositories(
    db: Database,
    clock: Clock,
    language: Language | None = None,
    approval_lifetime: timedelta = timedelta(days=7),
    *,
    zone: ZoneInfo = _UTC,
) -> RepositorySet:
    """`language` is the language of all cards, None for the reader's. `approval_lifetime` limits
    workers' requests. Days are days in `zone`."""
    ids = IdGenerator()
    chats = ChatRepo(db, ids)
    people = PeopleRepo(db, ids, chats)
    key_values = KeyValueStore(db)
    mcp_consents = McpConsents(db, key_values)
    pairings = _build_pairings(db, ids, people=people, chats=chats, clock=clock)
    work, memory = TaskStore.from_database(db), MemoryRepositories.create(db, ids, zone)
    task_language = TaskLanguageResolver(people, language)
    undoing = TaskUndoing(store=work, language_of=task_language, zone=zone, now=clock.now)
    calls, grants = ToolCallRepo(db), PermissionGrantRepo(db)
    requester = ApprovalRequester(calls=calls, lifetime=approval_lifetime, ids=ids, now=clock.now)
    account_links = _build_links(db, people, memory, clock)
    review = _build_review(memory, key_values, clock)
    decisions = DecisionRecorder(calls=calls, grants=grants, requester=requester, now=clock.now)
    return RepositorySet(
        db=db,
        ids=ids,
        chats=chats,
        people=people,
        key_values=key_values,
        mcp_consents=mcp_consents,
        pairings=pairings,
        account_links=account_links,
        approvals=ApprovalRepo(
            db,
            now=clock.now,
            decision_handlers={
                **_access_effects(pairings, account_links, mcp_consents),
                **_memory_effects(review, page_edits := _build_page_edits(memory, clock)),
                ApprovalKind.PROMPT: PromptDecisions(versions=work.versions, now=clock.now).apply,
                **_task_effects(undoing, people, task_language, clock, decisions).consequences,
            },
        ),
        inbox=InboxRepo(db),
        outbox=OutboxRepo(db),
        actions=CardActionRepo(db, ids),
        usage=UsageRepo(db),
        sessions=SessionRepo(db),
        work=work,
        undoing=undoing,
        chat_language=ChatLanguageResolver(people, language),
        task_language=task_language,
        tool_calls=calls,
        grants=grants,
        approval_requester=requester,
        memory=memory,
        candidate_review=review,
        page_edits=page_edits,
        clock=clock,
    )


def _build_links(
    db: Database, people: PeopleRepo, memory: MemoryRepositories, clock: Clock
) -> AccountLinkRepo:
    def publish(changed: Sequence[PersonId]) -> None:
        memory.feed.publish(*map(person_scope, changed))

    return AccountLinkRepo(
        db,
        IdGenerator(),
        people=people,
        key_values=KeyValueStore(db),
        memories=memory.linked,
        now=clock.now,
        publish=publish,
    )


def _access_effects(
    pairings: PairingRepo, links: AccountLinkRepo, mcp: McpConsents
) -> Mapping[ApprovalKind, DecisionHandler]:
    return {
        ApprovalKind.PAIRING: pairings.apply_decision,
        ApprovalKind.LINK: links.apply_decision,
        ApprovalKind.MCP: mcp.apply_decision,
    }


def _build_review(
    memory: MemoryRepositories, key_values: KeyValueStore, clock: Clock
) -> CandidateReview:
    return CandidateReview(
        entries=memory.entries,
        cells=memory.cells,
        quality=QualityMetrics(key_values),
        feed=memory.feed,
        now=clock.now,
    )


def _build_pairings(
    db: Database, ids: IdGenerator, *, people: PeopleRepo, chats: ChatRepo, clock: Clock
) -> PairingRepo:
    store = KeyValueStore(db)
    return PairingRepo(db, ids, people=people, chats=chats, key_values=store, now=clock.now)


def _memory_effects(
    review: CandidateReview, page_edits: PageEditDecisions
) -> Mapping[ApprovalKind, DecisionHandler]:
    return {
        ApprovalKind.MEMORY: review.apply_approval,
        ApprovalKind.PAGE: page_edits.apply_approval,
    }


def _build_page_edits(memory: MemoryRepositories, clock: Clock) -> PageEditDecisions:
    return PageEditDecisions(
        entries=memory.entries, cells=memory.cells, feed=memory.feed, now=clock.now
    )


def _task_effects(
    undoing: TaskUndoing,
    people: PeopleRepo,
    task_language: TaskLanguageResolver,
    clock: Clock,
    tool_decisions: DecisionRecorder,
) -> TaskApprovalEffects:
    async def name_of(person: PersonId) -> str:
        return (await people.get(person)).name

    return TaskApprovalEffects(
        store=undoing.store,
        language_of=task_language,
        name_of=name_of,
        now=clock.now,
        undoing=undoing,
        grant_budget=grant_cap_extension,
        tool_decisions=tool_decisions,
    )
