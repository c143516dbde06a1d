"""What stood before a model is known afterwards, and only what it used counts as used."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.desk import Reply
from bot.engine.memory.cited import is_cited
from bot.engine.memory.uses import Answered, Block, Shown
from storage.db import Transaction
from storage.errors import StoreUnavailable
from storage.records.memory.entries import MemoryKind
from tests.bot.engine.memory.mind import MINE, OURS, mind
from tests.bot.engine.memory.samples import entry
from tests.engine_world import CHAT, GROUP, START

ASKED = "When does the shuttle to the island leave?"


async def test_what_stood_before_the_last_answer_is_told_with_its_score(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        rule = await it.keep("Prefers short answers", kind=MemoryKind.PROFILE)
        await it.keep("The dog is called Bruno")
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        it.talker.said = "It leaves at nine for Hiddensee."

        await it.ask(ASKED)
        used = {each.id: each for each in (await it.uses.last(CHAT.id)).used}

        assert set(used) == {rule.id, fact.id}
        assert used[rule.id].block == "profile"
        assert used[fact.id].block == "similar"
        assert used[fact.id].score > 0
        assert {"words", "fused", "age"} <= set(used[fact.id].parts)
        assert used[fact.id].confirmed
        assert not used[rule.id].confirmed


async def test_only_the_last_answer_of_this_chat_is_told_of(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        ours = await it.keep("The shuttle of the team leaves at ten", scope=OURS)
        await it.ask(ASKED)
        await it.ask(ASKED, GROUP)

        assert [each.id for each in (await it.uses.last(CHAT.id)).used] == [fact.id]
        assert [each.id for each in (await it.uses.last(GROUP.id)).used] == [ours.id]
        others = await it.uses.last(CHAT.id, [OURS])
        assert (others.used, others.hidden) == ([], 1), "not for this reader"


async def test_being_used_counts_and_being_shown_does_not(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        used = await it.keep("The shuttle to Hiddensee leaves at nine")
        shown = await it.keep("The shuttle waits for Wilhelmine to leave")
        it.talker.said = "The one to Hiddensee leaves at nine."

        await it.ask(ASKED)
        one, other = await it.now(used), await it.now(shown)

        assert (one.used, one.shown) == (1, 1)
        assert one.strength.reinforced == 1
        assert one.strength.stability == pytest.approx(24 * 1.2)
        assert (other.used, other.shown) == (0, 1)
        assert other.strength == shown.strength
        assert one.revision == used.revision, "nobody's edit is in the way"


async def test_what_is_shown_in_vain_again_and_again_rests_for_a_while(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        seen: list[bool] = []
        for _ in range(6):
            await it.talk.reset(CHAT.id)
            it.world.clock.pass_by(minutes=5)
            await it.ask(ASKED)
            seen.append("Hiddensee" in it.prompt)
        it.world.clock.pass_by(minutes=31)
        await it.talk.reset(CHAT.id)
        await it.ask(ASKED)

        assert seen == [True, True, True, True, False, False]
        assert "Hiddensee" in it.prompt
        assert (await it.now(fact)).shown == 5


async def test_after_a_day_of_rest_the_count_of_what_was_in_vain_begins_anew(
    tmp_path: Path,
) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        for _ in range(4):
            await it.talk.reset(CHAT.id)
            it.world.clock.pass_by(hours=25)
            await it.ask(ASKED)

        assert (await it.now(fact)).bad_recalls == 0


async def test_a_person_can_say_that_it_was_of_use(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.ask(ASKED)

        told = await it.uses.last(CHAT.id, [MINE])
        await it.ask("And where does it stop?")

        others = await it.uses.confirm(CHAT.id, told.session, told.turn, [OURS])
        elsewhere = await it.uses.confirm(GROUP.id, told.session, told.turn, [MINE])
        first = await it.uses.confirm(CHAT.id, told.session, told.turn, [MINE])
        again = await it.uses.confirm(CHAT.id, told.session, told.turn, [MINE])

        assert (others, elsewhere) == (0, 0), "they do not see it"
        assert (first, again) == (1, 0)
        assert (await it.now(fact)).used == 1
        seen = await it.uses.of_answer(CHAT.id, told.session, told.turn, [MINE])
        assert [each.confirmed for each in seen.used] == [True]


async def test_of_an_answer_that_nothing_stood_before_nothing_older_is_told(
    tmp_path: Path,
) -> None:
    async with mind(tmp_path) as it:
        none = await it.uses.last(CHAT.id)
        await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.ask(ASKED)
        await it.talk.reset(CHAT.id)
        before = await it.uses.last(CHAT.id)
        it.world.clock.pass_by(minutes=1)
        await it.ask("Hm")
        after = await it.uses.last(CHAT.id)

        assert none.at is None
        assert len(before.used) == 1
        assert (after.used, after.session != before.session) == ([], True)
        assert before.at != after.at


async def test_what_is_forgotten_is_still_counted_among_what_stood_there(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.ask(ASKED)
        async with it.world.db.write() as tx:
            await it.entries.forget(tx, fact, now=it.world.clock())

        behind = await it.uses.last(CHAT.id, [MINE])

        assert [(each.id, each.entry) for each in behind.used] == [(fact.id, None)]


async def test_an_answer_that_had_to_wait_for_the_store_is_noted_once(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        book, troubles = it.world.desk.book, [StoreUnavailable("disk full")] * 2

        async def fails_at_first(tx: Transaction, reply: Reply) -> None:
            await book(tx, reply)
            if troubles:
                raise troubles.pop()

        it.world.desk.book = fails_at_first  # type: ignore[method-assign]  # full for a while
        await it.ask(ASKED)

        assert [each.id for each in (await it.uses.last(CHAT.id)).used] == [fact.id]
        assert (await it.now(fact)).shown == 1


async def test_an_answer_that_is_not_kept_leaves_no_trace(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        fact = await it.keep("The shuttle to Hiddensee leaves at nine")
        await it.keep("The ferry to Usedom leaves at ten")
        it.talker.fails = RuntimeError("broken")
        with pytest.raises(RuntimeError):
            await it.ask(ASKED)
        it.talker.fails = None

        await it.ask("And when does the ferry to Usedom leave?")

        assert (await it.now(fact)).shown == 0
        assert len((await it.uses.last(CHAT.id)).used) == 1


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
    assert is_cited(entry(text=known), answer, asked) is cited


def test_half_of_the_keywords_are_enough() -> None:
    known = entry(text="x", keywords=("tea", "jasmine", "cup", "noon"))

    assert is_cited(known, "Your cup of tea, Boss.")
    assert not is_cited(known, "Your cup, Boss.")


@pytest.mark.parametrize(("well", "stability"), [(True, 24 * 1.2 * 2), (False, 24 * 1.2 * 0.8)])
async def test_what_a_task_has_used_lives_longer_if_it_ended_well(
    tmp_path: Path, well: bool, stability: float
) -> None:
    async with mind(tmp_path) as it:
        task = await it.world.add("Find out about the shuttle")
        used = await it.keep("The shuttle to Hiddensee leaves at nine")
        unused = await it.keep("The shuttle waits for Wilhelmine to leave")
        session = await it.world.desk.session("task:1", it.world.desk.choose("", ""))
        it.uses.stand(
            session.id,
            "",
            [
                Shown(entry=each, block=Block.SIMILAR, on=START.date(), room=100)
                for each in (used, unused)
            ],
        )
        answer = Answered(
            session=session.id,
            turn=1,
            chat=CHAT.id,
            task=task.id,
            text="At nine, to Hiddensee.",
            at=it.world.clock(),
        )
        async with it.world.db.write() as tx:
            await it.uses.book(tx, answer)
            await it.uses.task_ended(tx, task.id, well)

        assert (await it.now(used)).strength.stability == pytest.approx(stability)
        assert (await it.now(used)).used == 2
        assert (await it.now(unused)).used == 0
        assert {each.id for each in (await it.uses.of_task(task.id)).used} == {used.id, unused.id}
        assert (await it.uses.last(CHAT.id)).used == (), "it was no talk"
