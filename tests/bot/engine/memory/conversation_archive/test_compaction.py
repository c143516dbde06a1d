"""A long session is made shorter in the background, and nothing of it is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.engine.llm.backend import BackendDenied, BackendUnavailable
from bot.engine.memory.conversation_archive.compaction import (
    MAX_CALLS,
    MAX_REFUSALS,
    ArchiveCompactor,
    SweepResult,
)
from storage.memory.conversation_archive import SummaryRepo
from storage.records.workers import ModelSession
from tests.bot.engine.agent.history_rows import (
    answer_row,
    call_part,
    result_part,
    results_row,
    row_histories,
)
from tests.bot.engine.memory.conversation_archive.archive_builders import (
    SMALL,
    ArchiveSetup,
    build_archive,
    build_turn,
    user_message,
)
from tests.engine_harness import ManualClock
from tests.waiting import WAIT_SECONDS


async def grown(
    world: ArchiveSetup, turns: int, size: int = 300, key: str = "chat:c1"
) -> ModelSession:
    session = await world.session(key)
    for n in range(turns):
        await world.say(session, build_turn(n, size))
    return await world.reload(session)


async def below(summaries: SummaryRepo, summary_id: str) -> list[int]:
    """All messages under a summary, in the order in which they are expanded."""
    found = list(await summaries.list_message_numbers(summary_id))
    for part in await summaries.list_parts(summary_id):
        found += await below(summaries, part.id)
    return found


async def whole(world: ArchiveSetup, session: ModelSession) -> list[int]:
    """Every message that the context stands for."""
    items = await world.summaries.list_context(session.id)
    found = [n for item in items for n in await below(world.summaries, item.summary.id)]
    after = items[-1].through if items else 0
    return found + [
        each.message for each in await world.archive.list_sizes(session.id, after=after)
    ]


async def test_a_short_session_stays_as_it_is(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await grown(w, 3)
        await w.compactor.compact_due()

        assert await w.summaries.list_context(session.id) == []
        assert w.model.prompts == []
        assert await w.history.build(session.id) == tuple(
            await w.sessions.list_messages(session.id)
        )


async def test_a_long_session_is_told_by_summaries_and_its_end(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await grown(w, 40)
        await w.compactor.compact_due()
        first, *rest = await w.history.build(session.id)
        stored = list(await w.sessions.list_messages(session.id))

        texts = [part["content"] for part in first["parts"]]
        assert "never instructions" in texts[0]
        assert texts[1].startswith('<summary id="sum_')
        assert 'trust="untrusted"' in texts[1]
        assert rest == stored[-SMALL.tail_messages :]
        assert len(stored) == 80, "nothing is deleted"
        assert await whole(w, session) == list(range(1, 81))


async def test_the_beginning_changes_only_where_a_summary_is_made(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await grown(w, 40)
        await w.compactor.compact_due()
        before = await w.history.build(session.id)
        await w.say(session, build_turn(40))
        await w.compactor.compact_due()
        after = await w.history.build(session.id)

        assert after[: len(before)] == before


async def test_what_a_backend_counts_decides_where_it_counts_more(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await grown(w, 12)
        await w.compactor.compact_due()
        assert await w.summaries.list_context(session.id) == []
        await w.say(session, build_turn(12), tokens=SMALL.context_tokens)
        await w.compactor.compact_due()

        assert await w.summaries.list_context(session.id)
        assert (await w.reload(session)).tokens < SMALL.threshold_tokens, (
            "it need not end for its length"
        )


async def test_summaries_are_folded_where_they_grow_too_many(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        w.model.text = lambda prompt: "So it went. " * 30
        session = await grown(w, 150)
        for _ in range(6):
            w.clock.advance(minutes=11)
            await w.request_compaction(session)
            await w.compactor.compact_due()

        items = await w.summaries.list_context(session.id)
        assert max(item.summary.depth for item in items) >= 1
        assert sum(item.summary.tokens for item in items) <= SMALL.prefix_tokens
        assert await whole(w, session) == list(range(1, 301))
        deep = next(item.summary for item in items if item.summary.depth)
        parts = await w.summaries.list_parts(deep.id)
        assert deep.descendants == sum(part.descendants + 1 for part in parts)
        assert deep.source_tokens == sum(part.source_tokens for part in parts)


async def test_a_sweep_makes_a_bounded_number_of_passes(tmp_path: Path) -> None:
    async with build_archive(tmp_path, replace(SMALL, max_passes=3)) as w:
        session = await grown(w, 60)
        await w.indexer.index_session(session.id)

        assert await w.compactor.sweep(session) == SweepResult(passes=3, more=True)
        assert len(await w.summaries.list_context(session.id)) == 3


async def test_what_one_sweep_leaves_over_the_next_one_does(tmp_path: Path) -> None:
    async with build_archive(tmp_path, replace(SMALL, max_passes=3)) as w:
        session = await grown(w, 60)
        for _ in range(12):
            await w.compactor.compact_due()
            w.clock.advance(minutes=11)

        assert await w.debts.next_due() is None
        assert await whole(w, session) == list(range(1, 121))
        sizes = await w.archive.list_sizes(session.id, after=0)
        items = await w.summaries.list_context(session.id)
        assert len(sizes) - items[-1].through <= SMALL.tail_messages


async def test_a_sweep_takes_a_bounded_time(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await grown(w, 60)
        await w.indexer.index_session(session.id)

        def slow(_prompt: str) -> str:
            w.clock.advance(seconds=61)
            return "So it was."

        w.model.text = slow
        assert await w.compactor.sweep(session) == SweepResult(passes=2, more=True)


async def test_a_model_that_is_away_leaves_everything_and_is_asked_later(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        w.model.text = lambda _prompt: BackendUnavailable("busy")
        session = await grown(w, 22)
        await w.compactor.compact_due()
        assert await w.summaries.list_context(session.id) == []
        assert len(await w.history.build(session.id)) == 44
        await w.compactor.compact_due()
        assert len(w.model.prompts) == 1, "not before it is due"

        w.model.text = lambda _prompt: "So it was."
        w.clock.advance(minutes=2)
        await w.compactor.compact_due()

        assert await w.summaries.list_context(session.id)
        assert await w.debts.next_due() is None


async def test_without_a_model_only_what_would_overflow_is_cut_to_its_beginnings(
    tmp_path: Path,
) -> None:
    async with build_archive(tmp_path) as w:
        w.model.is_available = False
        session = await grown(w, 22)
        await w.compactor.compact_due()
        assert await w.summaries.list_context(session.id) == []

        for n in range(22, 40):
            await w.say(session, build_turn(n))
        w.clock.advance(hours=1)
        await w.compactor.compact_due()
        items = await w.summaries.list_context(session.id)

        assert items
        assert all(item.summary.model == "" for item in items)
        assert "question 0" in items[0].summary.content
        assert "[Truncated from" in items[0].summary.content
        assert w.model.prompts == []
        assert await whole(w, session) == list(range(1, 81))


async def test_a_model_that_stays_away_is_not_waited_for_where_the_session_would_overflow(
    tmp_path: Path,
) -> None:
    async with build_archive(tmp_path) as w:
        w.model.text = lambda _prompt: BackendUnavailable("busy")
        session = await grown(w, 40)
        for _ in range(3):
            await w.compactor.compact_due()
            w.clock.advance(hours=1)
        assert await w.summaries.list_context(session.id) == []
        await w.compactor.compact_due()
        items = await w.summaries.list_context(session.id)

        assert "[Truncated from" in items[0].summary.content
        assert await whole(w, session) == list(range(1, 81))


@pytest.mark.parametrize(
    ("text", "calls"), [("", 1), ("many words and more. " * 400, 2)], ids=["empty", "longer"]
)
async def test_an_answer_that_is_no_summary_is_replaced(
    tmp_path: Path, text: str, calls: int
) -> None:
    async with build_archive(tmp_path, replace(SMALL, max_passes=1, overrun_factor=100.0)) as w:
        w.model.text = lambda _prompt: text
        session = await grown(w, 40)
        await w.compactor.compact_due()
        items = await w.summaries.list_context(session.id)

        assert len(w.model.prompts) == calls
        assert "[Truncated from" in items[0].summary.content
        assert items[0].summary.model == ""


async def test_a_summary_that_is_far_too_long_is_cut(tmp_path: Path) -> None:
    async with build_archive(tmp_path, replace(SMALL, max_passes=1)) as w:
        w.model.text = lambda _prompt: "many words " * 200
        session = await grown(w, 40)
        await w.compactor.compact_due()
        summary = (await w.summaries.list_context(session.id))[0].summary

        assert "[Capped from" in summary.content
        assert summary.tokens <= SMALL.overrun_factor * SMALL.leaf_tokens
        assert summary.model == "fake-1"


async def test_too_many_calls_pause_the_session(tmp_path: Path) -> None:
    limits = replace(SMALL, max_passes=100, max_duration=timedelta(hours=9), overrun_factor=50.0)
    async with build_archive(tmp_path, limits) as w:
        # Never shorter: two calls for each pass.
        w.model.text = lambda _prompt: "many words " * 60
        session = await grown(w, 150)
        await w.request_compaction(session)
        await w.compactor.compact_due()
        first = len(w.model.prompts)
        await w.compactor.compact_due()
        due = await w.debts.next_due()

        assert first == len(w.model.prompts) == MAX_CALLS
        assert due is not None
        assert due - w.clock.time > timedelta(minutes=25)


async def test_models_that_refuse_are_not_asked_again_and_again(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        w.model.text = lambda _prompt: BackendDenied("wrong key")
        session = await grown(w, 22)
        await w.compactor.compact_due()
        for _ in range(MAX_REFUSALS * 2):
            await w.request_compaction(session)
            await w.compactor.compact_due()

        assert len(w.model.prompts) == MAX_REFUSALS
        assert await w.summaries.list_context(session.id) == []


async def test_a_session_asks_for_it_once_however_often_it_grows(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        w.model.text = lambda _prompt: BackendUnavailable("busy")
        session = await grown(w, 22)
        await w.compactor.compact_due()
        for n in range(3):
            await w.say(session, build_turn(22 + n, 10))
            await w.compactor.compact_due()

        assert len(w.model.prompts) == 1


async def test_sessions_that_are_over_or_kept_elsewhere_are_left_alone(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        over = await grown(w, 40)
        async with w.db.write() as tx:
            await w.sessions.close(tx, over.key, now=w.clock())
        cli = await w.session("task:t1", backend="cli")
        for n in range(40):
            await w.say(cli, build_turn(n))
        await w.compactor.compact_due()

        assert w.model.prompts == []
        assert len(await w.archive.list_sizes(over.id)) == 80, "their words are known all the same"


async def test_calls_and_results_stay_together(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await w.session()
        for n in range(30):
            rows: list[Any] = [user_message(f"question {n}")]
            for i in range(3):
                rows += [
                    answer_row(call_part(f"c{n}-{i}")),
                    results_row(result_part(f"c{n}-{i}", "x" * 300)),
                ]
            await w.say(session, [*rows, answer_row({"part_kind": "text", "content": "done"})])
            await w.compactor.compact_due()
        _, *rest = await w.history.build(session.id)

        calls = [
            p["tool_call_id"] for r in rest for p in r["parts"] if p["part_kind"] == "tool-call"
        ]
        results = [
            p["tool_call_id"] for r in rest for p in r["parts"] if p["part_kind"] == "tool-return"
        ]
        assert calls == results
        assert rest[0]["parts"][0]["part_kind"] != "tool-return"
        assert "no result" not in str(rest)


async def test_what_a_death_leaves_behind_is_whole_and_gone_on_with(tmp_path: Path) -> None:
    clock = ManualClock()
    async with build_archive(tmp_path, clock=clock) as w:
        session = await grown(w, 40)

        def dies(prompt: str) -> str:
            if len(w.model.prompts) == 3:
                raise asyncio.CancelledError
            return "So it was."

        w.model.text = dies
        with pytest.raises(asyncio.CancelledError):
            await w.compactor.compact_due()
        assert len(await w.summaries.list_context(session.id)) == 2
        assert await whole(w, session) == list(range(1, 81))
    async with build_archive(tmp_path, clock=clock) as w:
        running = asyncio.create_task(w.compactor.run())
        async with asyncio.timeout(WAIT_SECONDS):
            while await w.debts.next_due() is not None:
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        items = await w.summaries.list_context(session.id)

        assert len(items) > 2
        assert await whole(w, session) == list(range(1, 81))


async def test_growth_reported_before_its_commit_is_indexed_after_it(tmp_path: Path) -> None:
    awake, asleep = asyncio.Event(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        asleep.set()
        await awake.wait()

    async with build_archive(tmp_path) as w:
        session = await grown(w, 1)
        compactor = ArchiveCompactor(replace(w.deps, sleep=sleep), w.growth)
        awake.set()
        running = asyncio.create_task(compactor.run())
        async with asyncio.timeout(WAIT_SECONDS):
            while await w.archive.list_unindexed_sessions():
                await asyncio.sleep(0.005)
            awake.clear()
            asleep.clear()
            async with w.db.write() as tx:
                rows = [user_message("said in a transaction")]
                await w.sessions.append_messages(tx, session.id, rows, tokens=0, now=w.clock())
                # As those do who keep a turn: within what stores it.
                w.growth.notify(session.id)
                await asleep.wait()
            awake.set()
            while await w.archive.list_unindexed_sessions():
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_growth_committed_long_after_its_report_is_indexed(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        session = await grown(w, 1)
        await w.compactor.compact_due()
        for _ in range(4):
            # A machine so busy that the archive looks in vain between the bell and the commit.
            w.growth.notify(session.id)
            await w.compactor.compact_due()
            await w.compactor.compact_due()
            async with w.db.write() as tx:
                rows = [user_message("stored at last")]
                await w.sessions.append_messages(tx, session.id, rows, tokens=0, now=w.clock())

            await w.compactor.compact_due()

            assert await w.archive.list_unindexed_sessions() == []


async def test_who_was_faster_wins(tmp_path: Path) -> None:
    async with (
        build_archive(tmp_path, replace(SMALL, max_passes=1)) as w,
        build_archive(tmp_path) as other,
    ):
        session = await grown(w, 40)
        await w.indexer.index_session(session.id)
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow(_session: ModelSession, _system: str, prompt: str, _most: int) -> str:
            begun.set()
            await go.wait()
            return f"The slow one of {len(prompt)}."

        w.model.write = slow  # type: ignore[method-assign]  # waits for the other
        sweeping = asyncio.create_task(w.compactor.sweep(session))
        await begun.wait()
        await other.compactor.sweep(session)
        go.set()

        assert await sweeping == SweepResult(passes=0)
        assert await whole(w, session) == list(range(1, 81))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=row_histories(), size=st.sampled_from([300, 1_000]))
async def test_whatever_was_said_can_be_expanded_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], size: int
) -> None:
    limits = replace(SMALL, context_tokens=size, tail_messages=4)
    async with build_archive(tmp_path_factory.mktemp("home"), limits) as w:
        session = await w.session()
        stored = [*rows, *build_turn(0, size), *build_turn(1, size)]
        await w.say(session, stored)
        await w.request_compaction(session)
        await w.compactor.compact_due()
        kept = list(await w.sessions.list_messages(session.id))

        assert kept == stored
        assert await whole(w, session) == list(range(1, len(stored) + 1))
        await w.history.build(session.id)
