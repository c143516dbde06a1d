"""Tests that shown memories are recorded and that only cited ones count as used."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.model_calls import ModelReply
from bot.engine.memory.decay import ContextBlock, ContextEntry, TrackedAnswer, is_cited
from storage.db import Transaction
from storage.errors import StoreUnavailable
from storage.records.memory import MemoryKind
from tests.bot.engine.memory.entry_builders import build_entry
from tests.bot.engine.memory.retrieval_builders import GROUP_SCOPE, MY_SCOPE, build_retrieval
from tests.engine_harness import CHAT, GROUP, START

ASKED = "When does the shuttle to the island leave?"


async def test_what_stood_before_the_last_answer_is_told_with_its_score(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        rule = await it.keep("Prefers short answers", kind=MemoryKind.PROFILE)
        await it.keep("The dog is called Bruno")
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        it.backend.said = "It leaves at nine for Hiddensee."

        await it.ask(ASKED)
        used = {each.id: each for each in (await it.usage.explain_last_answer(CHAT.id)).used}

        assert set(used) == {rule.id, fact.id}
        assert used[rule.id].block == "profile"
        assert used[fact.id].block == "similar"
        assert used[fact.id].score > 0
        assert {"words", "fused", "age"} <= set(used[fact.id].parts)
        assert used[fact.id].confirmed
        assert not used[rule.id].confirmed


async def test_only_the_last_answer_of_this_chat_is_told_of(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        ours = await it.keep("The shuttle of the team leaves at ten", scope=GROUP_SCOPE)
        await it.ask(ASKED)
        await it.ask(ASKED, GROUP)

        assert [each.id for each in (await it.usage.explain_last_answer(CHAT.id)).used] == [fact.id]
        assert [each.id for each in (await it.usage.explain_last_answer(GROUP.id)).used] == [
            ours.id
        ]
        others = await it.usage.explain_last_answer(CHAT.id, [GROUP_SCOPE])
        assert (others.used, others.hidden_count) == ([], 1), "not for this reader"


async def test_being_used_counts_and_being_shown_does_not(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        used = await it.keep("The shuttle to Hiddensee leaves at nine")
        shown = await it.keep("The shuttle waits for Wilhelmine to leave")
        it.backend.said = "The one to Hiddensee leaves at nine."

        await it.ask(ASKED)
        one, other = await it.reload(used), await it.reload(shown)

        assert (one.used, one.shown) == (1, 1)
        assert one.strength.reinforced == 1
        assert one.strength.stability == pytest.approx(24 * 1.2)
        assert (other.used, other.shown) == (0, 1)
        assert other.strength == shown.strength
        assert one.revision == used.revision, "nobody's edit is in the way"


async def test_what_is_shown_in_vain_again_and_again_rests_for_a_while(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        seen: list[bool] = []
        for _ in range(6):
            await it.conversations.reset(CHAT.id)
            it.world.clock.advance(minutes=5)
            await it.ask(ASKED)
            seen.append("Hiddensee" in it.prompt)
        it.world.clock.advance(minutes=31)
        await it.conversations.reset(CHAT.id)
        await it.ask(ASKED)

        assert seen == [True, True, True, True, False, False]
        assert "Hiddensee" in it.prompt
        assert (await it.reload(fact)).shown == 5


async def test_after_a_day_of_rest_the_count_of_what_was_in_vain_begins_anew(
    tmp_path: Path,
) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        for _ in range(4):
            await it.conversations.reset(CHAT.id)
            it.world.clock.advance(hours=25)
            await it.ask(ASKED)

        assert (await it.reload(fact)).bad_recalls == 0


async def test_a_person_can_say_that_it_was_of_use(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.ask(ASKED)

        told = await it.usage.explain_last_answer(CHAT.id, [MY_SCOPE])
        await it.ask("And where does it stop?")

        others = await it.usage.confirm_used(CHAT.id, told.session, told.turn, [GROUP_SCOPE])
        elsewhere = await it.usage.confirm_used(GROUP.id, told.session, told.turn, [MY_SCOPE])
        first = await it.usage.confirm_used(CHAT.id, told.session, told.turn, [MY_SCOPE])
        again = await it.usage.confirm_used(CHAT.id, told.session, told.turn, [MY_SCOPE])

        assert (others, elsewhere) == (0, 0), "they do not see it"
        assert (first, again) == (1, 0)
        assert (await it.reload(fact)).used == 1
        seen = await it.usage.explain_answer(CHAT.id, told.session, told.turn, [MY_SCOPE])
        assert [each.confirmed for each in seen.used] == [True]


async def test_of_an_answer_that_nothing_stood_before_nothing_older_is_told(
    tmp_path: Path,
) -> None:
    async with build_retrieval(tmp_path) as it:
        none = await it.usage.explain_last_answer(CHAT.id)
        await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.ask(ASKED)
        await it.conversations.reset(CHAT.id)
        before = await it.usage.explain_last_answer(CHAT.id)
        it.world.clock.advance(minutes=1)
        await it.ask("Hm")
        after = await it.usage.explain_last_answer(CHAT.id)

        assert none.at is None
        assert len(before.used) == 1
        assert (after.used, after.session != before.session) == ([], True)
        assert before.at != after.at


async def test_what_is_forgotten_is_still_counted_among_what_stood_there(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.ask(ASKED)
        async with it.world.db.write() as tx:
            await it.entries.forget(tx, fact, now=it.world.clock())

        behind = await it.usage.explain_last_answer(CHAT.id, [MY_SCOPE])

        assert [(each.id, each.entry) for each in behind.used] == [(fact.id, None)]


async def test_an_answer_that_had_to_wait_for_the_store_is_noted_once(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        book, troubles = it.world.gateway.record_reply, [StoreUnavailable("disk full")] * 2

        async def fails_at_first(tx: Transaction, reply: ModelReply) -> None:
            await book(tx, reply)
            if troubles:
                raise troubles.pop()

        it.world.gateway.record_reply = fails_at_first  # type: ignore[method-assign]  # full for a while
        await it.ask(ASKED)

        assert [each.id for each in (await it.usage.explain_last_answer(CHAT.id)).used] == [fact.id]
        assert (await it.reload(fact)).shown == 1


async def test_an_answer_that_is_not_kept_leaves_no_trace(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.keep("The ferry to Usedom leaves at ten")
        it.backend.fails = RuntimeError("broken")
        with pytest.raises(RuntimeError):
            await it.ask(ASKED)
        it.backend.fails = None

        await it.ask("And when does the ferry to Usedom leave?")

        assert (await it.reload(fact)).shown == 0
        assert len((await it.usage.explain_last_answer(CHAT.id)).used) == 1


@pytest.mark.parametrize(
    ("known", "answer", "asked", "cited"),
    [
        ("The shuttle to Hiddensee leaves at nine", "Hiddensee, at nine.", "", True),
        ("The shuttle to Hiddensee leaves at nine", "No idea at all.", "", False),
        ("The shuttle to Hiddensee", "To Hiddensee?", "the Hiddensee shuttle?", False),
        ("Prefers green tea", "Some green tea for you.", "", True),
        ("Prefers green tea", "Some tea that is green.", "", False),
        ("The code is 4711", "It is 4711.", "what is the code?", True),
        ("老板喜欢喝茉莉花茶", "给您泡了一杯茉莉花茶。", "喝点什么?", True),
        ("老板喜欢喝茉莉花茶", "给您泡了一杯咖啡。", "喝点什么?", False),
        ("老板喜欢喝茉莉花茶", "茉莉花茶?好。", "来杯茉莉花茶", False),
        ("", "anything", "", False),
        ("The shuttle", "", "", False),
    ],
)
def test_an_entry_is_used_where_the_answer_has_words_of_it_that_nobody_else_said(
    known: str, answer: str, asked: str, cited: bool
) -> None:
    assert is_cited(build_entry(text=known), answer, asked) is cited


def test_half_of_the_keywords_are_enough() -> None:
    known = build_entry(text="x", keywords=("tea", "jasmine", "cup", "noon"))

    assert is_cited(known, "Your cup of tea, Boss.")
    assert not is_cited(known, "Your cup, Boss.")


@pytest.mark.parametrize(("well", "stability"), [(True, 24 * 1.2 * 2), (False, 24 * 1.2 * 0.8)])
async def test_what_a_task_has_used_lives_longer_if_it_ended_well(
    tmp_path: Path, well: bool, stability: float
) -> None:
    async with build_retrieval(tmp_path) as it:
        task = await it.world.create_task("Find out about the shuttle")
        used = await it.keep("The shuttle to Hiddensee leaves at nine")
        unused = await it.keep("The shuttle waits for Wilhelmine to leave")
        session = await it.world.gateway.open_session(
            "task:1", it.world.gateway.select_backend("", "")
        )
        it.usage.set_context(
            session.id,
            "",
            [
                ContextEntry(
                    entry=each, block=ContextBlock.SIMILAR, said_on=START.date(), max_tokens=100
                )
                for each in (used, unused)
            ],
        )
        answer = TrackedAnswer(
            session=session.id,
            turn=1,
            chat=CHAT.id,
            task=task.id,
            text="At nine, to Hiddensee.",
            at=it.world.clock(),
        )
        async with it.world.db.write() as tx:
            await it.usage.record_answer(tx, answer)
            await it.usage.record_task_outcome(tx, task.id, well)

        assert (await it.reload(used)).strength.stability == pytest.approx(stability)
        assert (await it.reload(used)).used == 2
        assert (await it.reload(unused)).used == 0
        assert {each.id for each in (await it.usage.explain_task(task.id)).used} == {
            used.id,
            unused.id,
        }
        assert (await it.usage.explain_last_answer(CHAT.id)).used == (), "it was no talk"
