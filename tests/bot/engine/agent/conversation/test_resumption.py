"""Talk that wants something risky: it stops, is decided about, and goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import SuspendedChatResumer, ToolCallSuspension
from bot.engine.llm.api.access import ApiProvider
from cards.model import Card, TextBlock
from handlers.ports import ChatAnswer, ChatQuestion
from storage.db import Transaction
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.approvals import Approval, ApprovalState
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language
from storage.sessions import SessionRepo
from tests.agent_builders import make_conversation
from tests.bot.engine.permissions.builders import (
    PermissionSetup,
    ScriptedWorker,
    permission_setup,
    reply_with_call,
    reply_with_calls,
)
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.engine_harness import BOSS, CHAT, ManualClock, make_approval_requester, no_sleep
from tests.journeys.model_world import ScriptedModel
from tests.waiting import WAIT_SECONDS

CUE = "put it live"


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


class Letters:
    """The cards posted into chats, one under each key."""

    def __init__(self) -> None:
        self.posted: dict[str, str] = {}
        self.news = asyncio.Event()

    async def prepare(self, card: Card) -> Card:
        return card

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: DeliveryUrgency,
        reply_to: str = "",
    ) -> None:
        assert key not in self.posted
        texts = [block.markdown for block in card.blocks if isinstance(block, TextBlock)]
        self.posted[key] = "\n".join(texts)

    def wake(self) -> None:
        self.news.set()


@dataclass
class Room:
    here: PermissionSetup
    talk: ConversationService
    letters: Letters
    shown: dict[str, Approval] = field(default_factory=dict)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    looks: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, text: str, source: str = "inbox:1") -> ChatAnswer:
        async def unseen(_text: str) -> None:
            pass

        question = ChatQuestion(
            person=BOSS, chat=CHAT, text=text, language=Language.ENGLISH, source=source
        )
        return await self.talk.answer(question, unseen)

    async def request(self) -> Approval:
        """The request that waits now."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                waiting = [
                    each
                    for each in self.shown.values()
                    if (await self.here.approvals.get(each.id)).state is ApprovalState.WAITING
                ]
                if waiting:
                    return waiting[-1]
                self.asked.clear()
                await self.asked.wait()

    async def decide(self, approval: Approval, **how: Any) -> None:
        await self.here.decide(approval, **how)
        self.stopped.set()

    async def expire(self, approval: Approval) -> None:
        """The timekeeper settles what nobody has decided."""
        self.here.world.clock.advance_to(approval.expires_at)
        (settled,) = await self.here.approvals.expire_overdue()
        assert settled.id == approval.id
        self.stopped.set()

    async def looked(self) -> None:
        """Until the loop has been once through all talk that has stopped."""
        for _ in range(2):
            self.looks.clear()
            self.stopped.set()
            async with asyncio.timeout(WAIT_SECONDS):
                await self.looks.wait()

    async def answered(self) -> str:
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.letters.posted:
                self.letters.news.clear()
                await self.letters.news.wait()
        (text,) = self.letters.posted.values()
        return text


@asynccontextmanager
async def room(
    home: Path,
    models: ModelEmulator,
    stage: ScriptedModel,
    hands: ScriptedWorker,
    clock: ManualClock | None = None,
    *,
    api: ApiProvider = ApiProvider.ANTHROPIC,
) -> AsyncGenerator[Room, None]:
    async with permission_setup(
        home, models, stage, hands, api=api, start_dispatcher=False, clock=clock
    ) as here:
        world, letters, stopped = here.world, Letters(), asyncio.Event()
        asker = make_approval_requester(world.db, world.clock)
        talk = make_conversation(
            db=world.db,
            sessions=SessionRepo(world.db),
            gateway=world.gateway,
            data_dir=home,
            context_builder=here.bench,
            now=world.clock,
            sleep=no_sleep,
            suspension=ToolCallSuspension(calls=here.calls, requester=asker, wake=stopped.set),
        )
        made = Room(here=here, talk=talk, letters=letters, stopped=stopped)

        async def show(approval: Approval) -> None:
            made.shown[approval.id] = approval
            made.asked.set()

        async def catch_up() -> None:
            made.looks.set()

        talks = SuspendedChatResumer(
            db=world.db,
            calls=here.calls,
            requester=asker,
            people=PeopleRepo(world.db, IdGenerator(), ChatRepo(world.db, IdGenerator())),
            conversation=talk,
            post=letters,
            changed=stopped,
            show_request=show,
            refresh_cards=catch_up,
            language=None,
            now=world.clock,
            sleep=no_sleep,
        )
        async with AsyncExitStack() as stack:
            await talks.start(stack)
            loop = asyncio.create_task(talks.run())
            try:
                yield made
            finally:
                loop.cancel()
                await asyncio.gather(loop, return_exceptions=True)


def staged(*lines: ScriptedReply) -> ScriptedModel:
    stage = ScriptedModel()
    stage.script(CUE, "talk", *lines)
    return stage


async def test_talk_waits_for_leave_and_goes_on_where_it_was_asked(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands = ScriptedWorker()
    stage = staged(reply_with_calls("a"), ScriptedReply(text="It is live."))
    async with room(tmp_path, models, stage, hands) as here:
        first = await here.say(CUE)
        asked = await here.request()

        assert first.notes
        assert (asked.task_id, asked.chat_id, asked.detail) == (None, CHAT.id, "a")
        assert hands.ran == ["look around"]

        await here.decide(asked)

        assert "It is live." in await here.answered()
        assert hands.ran == ["look around", "a"]
    assert models.refused == []


async def test_a_decision_about_talk_outlives_the_program(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands, clock = ScriptedWorker(), ManualClock()
    stage = staged(reply_with_call("deploy", "a"), ScriptedReply(text="It is live."))
    async with room(tmp_path, models, stage, hands, clock) as here:
        await here.say(CUE)
        asked = await here.request()
    async with permission_setup(
        tmp_path, models, stage, hands, start_dispatcher=False, clock=clock
    ) as meanwhile:
        await meanwhile.decide(asked)
    async with room(tmp_path, models, stage, hands, clock) as here:
        assert "It is live." in await here.answered()

        assert hands.ran == ["a"]


async def test_a_decision_between_the_look_and_the_request_asks_nobody_again(
    tmp_path: Path, models: ModelEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = ScriptedWorker()
    stage = staged(reply_with_calls("a"), ScriptedReply(text="It is live."))
    async with room(tmp_path, models, stage, hands) as here:
        await here.say(CUE)
        asked = await here.request()
        looks = here.here.calls.list_suspended_of_chats

        async def decided_meanwhile() -> object:
            monkeypatch.undo()
            stale = await looks()
            await here.decide(asked)
            return stale

        monkeypatch.setattr(here.here.calls, "list_suspended_of_chats", decided_meanwhile)
        here.stopped.set()

        assert "It is live." in await here.answered()
        assert list(here.shown) == [asked.id]


async def test_who_says_something_else_meanwhile_is_answered_and_nothing_waits_any_more(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands, stage = ScriptedWorker(), staged(reply_with_call("deploy", "a"))
    stage.script("never mind", "talk", ScriptedReply(text="All right."))
    async with room(tmp_path, models, stage, hands) as here:
        await here.say(CUE)
        asked = await here.request()
        answer = await here.say("never mind")

        assert answer.text == "All right."
        assert "something else" in str(stage.requests[-1].tool_results)
        withdrawn = await here.here.approvals.get(asked.id)
        assert withdrawn.state is ApprovalState.EXPIRED
        assert withdrawn.reason
        assert hands.ran == []
    assert models.refused == []


async def test_a_new_conversation_withdraws_what_the_old_one_asked(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands, stage = ScriptedWorker(), staged(reply_with_call("deploy", "a"))
    stage.script("hello", "talk", ScriptedReply(text="Hello."))
    async with room(tmp_path, models, stage, hands) as here:
        await here.say(CUE)
        asked = await here.request()
        await here.talk.reset(CHAT.id)

        assert (await here.here.approvals.get(asked.id)).state is ApprovalState.EXPIRED
        assert (await here.say("hello")).text == "Hello."


async def test_leave_for_the_chat_covers_what_it_asks_next(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands = ScriptedWorker()
    stage = staged(
        reply_with_call("deploy", "a"), reply_with_call("deploy", "a"), ScriptedReply(text="Twice.")
    )
    async with room(tmp_path, models, stage, hands) as here:
        await here.say(CUE)
        await here.decide(await here.request(), scope="chat")

        assert "Twice." in await here.answered()
        assert hands.ran == ["a", "a"]


async def test_talk_may_ask_and_goes_on_with_the_answer(
    tmp_path: Path, models: ModelEmulator
) -> None:
    question = ScriptedReply(
        calls=[ScriptedCall(name="ask_user", arguments={"question": "Which one?"})]
    )
    stage = staged(question, ScriptedReply(text="As you say."))
    async with room(tmp_path, models, stage, ScriptedWorker()) as here:
        await here.say(CUE)
        await here.decide(await here.request(), reason="the blue one")

        assert "As you say." in await here.answered()
        assert stage.requests[-1].tool_results[-1] == ("ask_user", "the blue one")


async def test_what_nobody_decides_in_time_is_told_to_the_model_and_the_person_is_answered(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands, clock = ScriptedWorker(), ManualClock()
    stage = staged(reply_with_call("deploy", "a"), ScriptedReply(text="Then it stays as it is."))
    async with room(tmp_path, models, stage, hands, clock) as here:
        await here.say(CUE)
        asked = await here.request()
        await here.expire(asked)

        assert "Then it stays as it is." in await here.answered()
        assert "No decision in time" in str(stage.requests[-1].tool_results)
        assert hands.ran == []


async def test_what_ran_out_while_the_program_was_down_is_not_asked_again_but_answered(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands, clock = ScriptedWorker(), ManualClock()
    stage = staged(reply_with_call("deploy", "a"), ScriptedReply(text="Then it stays as it is."))
    async with room(tmp_path, models, stage, hands, clock) as here:
        await here.say(CUE)
        asked = await here.request()
    clock.advance_to(asked.expires_at)
    async with room(tmp_path, models, stage, hands, clock) as here:
        # The loop has looked at its talk before the timekeeper settles what is overdue.
        await here.looked()
        await here.expire(asked)

        assert "Then it stays as it is." in await here.answered()
        assert here.shown == {}
        assert hands.ran == []
