"""Tasks that wait for decisions: a real store and mail room, and all who act on either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.agent.budget import grant_cap_extension
from bot.engine.tasks.approvals import ApprovalCardPublisher, ApprovalExpirer, TaskApprovalEffects
from bot.engine.tasks.notifier import QueuePositionTracker, TaskNotifier
from bot.transports.outbox import AnswerStreams, OutboxCourier, SentCardService
from bot.transports.ports import SystemClock
from cards.card_json import load_card
from cards.model import Card
from cards.render.text import render
from handlers.approval_cards import ApprovalCards
from handlers.language import CardLanguageResolver
from storage.approvals import ApprovalRepo
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.messages.card_actions import CardActionRepo
from storage.messages.chats import ChatRepo
from storage.messages.outbox import OutboxRepo
from storage.people import PeopleRepo
from storage.records.approvals import Approval
from storage.records.people import Language, PersonId
from storage.records.tasks import EventKind, ResultForm, Task, TaskStatus, TaskView
from tests.engine_harness import (
    BOSS,
    EngineHarness,
    FakeBackend,
    ManualClock,
    make_decision_recorder,
    make_undoing,
    no_account,
    run_engine,
)


@dataclass
class ApprovalWorld:
    engine: EngineHarness
    approvals: ApprovalRepo
    card_publisher: ApprovalCardPublisher
    notifier: TaskNotifier
    expirer: ApprovalExpirer
    outbox: OutboxRepo
    approval_cards: ApprovalCards
    changed: asyncio.Event
    wakes: list[str] = field(default_factory=list)

    async def create_waiting(self, text: str = "Deploy it", **facts: Any) -> tuple[Task, Approval]:
        """A task that waits for leave to take its one risky step."""
        task = await self.engine.create_task(text, **facts)
        view = await self.engine.until(task, TaskStatus.WAITING)
        await self.notify_all()
        return view.task, (await self.approvals.list_by_task(task.id))[-1]

    async def notify_all(self) -> None:
        while await self.notifier.notify_batch():
            pass

    async def decide(
        self, approval: Approval, *, approve: bool, reason: str = "", source: str = "d:1"
    ) -> Approval:
        """In the store alone: no card is touched."""
        decided = await self.approvals.decide(
            approval, approve=approve, by=BOSS, source=source, reason=reason
        )
        self.engine.dispatcher.wake()
        return decided

    async def view(self, task: Task) -> TaskView:
        return await self.engine.views.view(task.id)

    async def kinds(self, task: Task) -> Sequence[EventKind]:
        return [event.kind for event in await self.engine.store.events.list_latest(task.id, 50)]

    async def copy_texts(self, approval: Approval) -> dict[str, str]:
        """The text of each copy of the request, by chat."""
        return {
            chat: f"{card.title}\n{render(card).text}"
            for chat, card in (await self.cards(approval)).items()
        }

    async def cards(self, approval: Approval) -> dict[str, Card]:
        keys = await self.outbox.list_by_prefix(f"approval:{approval.id}:")
        rows = [await self.outbox.find_by_key(key) for key, _ in keys]
        return {row.chat_id: load_card(row.card) for row in rows if row is not None}

    async def count_messages(self) -> int:
        """How many messages there are, of whatever kind."""
        return len(await self.outbox.list_by_prefix(""))


class _HarnessClock(SystemClock):
    """The world's time of day."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock()


@asynccontextmanager
async def approval_world(
    home: Path, backend: FakeBackend | None = None
) -> AsyncGenerator[ApprovalWorld, None]:
    worker = backend or FakeBackend(steps=("Deploy it",))
    async with run_engine(home, worker) as world:
        chats, outbox = ChatRepo(world.db, IdGenerator()), OutboxRepo(world.db)
        people = PeopleRepo(world.db, IdGenerator(), chats)
        courier = OutboxCourier(
            db=world.db,
            chats=chats,
            outbox=outbox,
            actions=CardActionRepo(world.db, IdGenerator()),
            streams=AnswerStreams(
                outbox=outbox,
                transports={},
                is_paused=lambda _chat: False,
                may_stream=lambda _chat, _edits: True,
                may_send=lambda _chat, _edits: True,
                language_of=CardLanguageResolver(people, None),
            ),
            wake=lambda: None,
            clock=_HarnessClock(world.clock),
            mask=str,
        )
        news, woken = asyncio.Event(), list[str]()

        async def english(_task: Task) -> Language:
            return Language.ENGLISH

        async def name_of(person: PersonId) -> str:
            return (await people.get(person)).name

        decisions = TaskApprovalEffects(
            store=world.store,
            language_of=english,
            name_of=name_of,
            now=world.clock,
            undoing=make_undoing(world.store, world.clock),
            grant_budget=grant_cap_extension,
            tool_decisions=make_decision_recorder(world.db, world.clock),
        )
        approvals = ApprovalRepo(
            world.db, now=world.clock, decision_handlers=decisions.consequences
        )
        copies = ApprovalCards(
            people=people,
            cards=SentCardService(outbox, chats),
            courier=courier,
            zone=ZoneInfo("UTC"),
        )
        requests = ApprovalCardPublisher(
            db=world.db,
            approvals=approvals,
            tasks=world.store.tasks,
            approval_cards=copies,
            language_of=english,
            now=world.clock,
            on_published=news.set,
        )
        reporter = TaskNotifier(
            db=world.db,
            journal=world.store.events,
            views=world.views,
            courier=courier,
            language_of=english,
            home=home,
            zone=ZoneInfo("UTC"),
            now=world.clock,
            positions=QueuePositionTracker(
                queue=world.store.queue, key_values=KeyValueStore(world.db)
            ),
            on_events=requests.handle_events,
            result_form=ResultForm.CARD,
            account_of=no_account,
            mask=str,
        )
        timekeeper = ApprovalExpirer(
            approvals=approvals,
            card_publisher=requests,
            on_change=lambda: woken.append("dispatcher"),
        )
        yield ApprovalWorld(
            engine=world,
            approvals=approvals,
            card_publisher=requests,
            notifier=reporter,
            expirer=timekeeper,
            outbox=outbox,
            approval_cards=copies,
            changed=news,
            wakes=woken,
        )
