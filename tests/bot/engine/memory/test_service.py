"""Tests that people see and change the memories that they may, on a real store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.memory.consent import MemoryConsent
from bot.engine.memory.decay import UsageTracker
from bot.engine.memory.export_import import MemoryRestorer, MemoryTransfer
from bot.engine.memory.maintenance import CommandProgressLog, ForgetCommandLog, MemoryCleanup
from bot.engine.memory.promotion import propose_sharing
from bot.engine.memory.retriever import MemoryRetriever
from bot.engine.memory.service import MemoryService
from handlers.ports_workers import MemoryRequestRejected
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.access_stats import MemoryCounts, MemoryUseRepo
from storage.memory.bulk_import import BackupRestorer
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryListFilter,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
    candidate_digest,
)
from storage.records.people import Channel, Member
from storage.search.terms import tokenize
from storage.search.vectors import VectorRepo
from storage.sessions import SessionRepo
from tests.bot.engine.memory.writing_builders import (
    MATE_CHAT,
    MATE_SCOPE,
    MY_SCOPE,
    WritingSetup,
    build_writing,
)
from tests.engine_harness import BOSS, CHAT, GROUP, MATE

SKILL = MemoryScope(MemoryScopeKind.SKILL, "review")


@asynccontextmanager
async def build_service(home: Path) -> AsyncGenerator[tuple[MemoryService, WritingSetup], None]:
    async def no_figures() -> Mapping[str, float]:
        return {}

    async def residents() -> Sequence[Member]:
        return [Member(person=BOSS, accounts=((Channel.WEB, "local"), (Channel.TELEGRAM, "1")))]

    async def back_up() -> str:
        return (await carrying.export(None, name="backup")).path

    async with build_writing(home) as memory:
        db, now = memory.world.db, memory.world.clock
        carrying = MemoryTransfer(
            entries=memory.entries,
            backups=BackupRestorer(db, memory.entries),
            writer=memory.writer,
            progress_log=CommandProgressLog(KeyValueStore(db)),
            members=residents,
            data_dir=home,
        )
        yield (
            MemoryService(
                entries=memory.entries,
                figures=MemoryCounts(db),
                vectors=VectorRepo(db),
                writer=memory.writer,
                retriever=MemoryRetriever(
                    entries=memory.entries,
                    index=memory.index,
                    extract_terms=lambda query, _now: dict.fromkeys(tokenize(query), 1.0),
                    now=now,
                ),
                usage=UsageTracker(db=db, entries=memory.entries, repo=MemoryUseRepo(db), now=now),
                transfer=carrying,
                restorer=MemoryRestorer(
                    db=db,
                    entries=memory.entries,
                    feed=memory.feed,
                    progress_log=CommandProgressLog(KeyValueStore(db)),
                    members=residents,
                    data_dir=home,
                    now=now,
                ),
                cleanup=MemoryCleanup(
                    db=db,
                    entries=memory.entries,
                    feed=memory.feed,
                    progress_log=CommandProgressLog(KeyValueStore(db)),
                    back_up=back_up,
                    now=now,
                ),
                forget_log=ForgetCommandLog(KeyValueStore(db)),
                consent=MemoryConsent(
                    db=db,
                    entries=memory.entries,
                    cells=memory.cells,
                    withheld=WithheldTurnRepo(db),
                    sessions=SessionRepo(db),
                    recorder=memory.recorder,
                    key_values=KeyValueStore(db),
                    feed=memory.feed,
                    now=now,
                ),
                quality_report=no_figures,
                now=now,
                zone=UTC,
            ),
            memory,
        )


async def add_entry(memory: WritingSetup, text: str, scope: MemoryScope, **more: object) -> str:
    fields = {"kind": MemoryKind.FACT, **more}
    new = NewMemoryEntry(scope=scope, text=text, **fields)  # type: ignore[arg-type]  # its own fields
    async with memory.world.db.write() as tx:
        made = await memory.entries.add(tx, new, now=memory.world.clock())
    assert made is not None
    return made.id


async def test_in_another_home_a_backup_is_of_whoever_has_the_same_account(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with build_service(here) as (book, _):
        await book.add(BOSS, CHAT, "I live in Lisbon")
        made = await book.export(BOSS, CHAT)
    written = (here / made.path).read_text(encoding="utf-8")
    assert BOSS.id in written
    (there / "backup.jsonl").write_text(
        written.replace(f'"{BOSS.id}"', '"stranger"').replace(
            f"person:{BOSS.id}", "person:stranger"
        )
    )

    async with build_service(there) as (book, memory):
        await book.restore(BOSS, CHAT, "backup.jsonl")

        found = await memory.entries.list((MY_SCOPE,))
        assert [(each.text, each.person) for each in found] == [("I live in Lisbon", BOSS.id)]


async def test_what_was_changed_since_it_was_shown_is_not_forgotten(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        shown = await book.add(BOSS, CHAT, "Deploys happen on Fridays")
        now = await book.edit(BOSS, CHAT, shown.id, "Deploys happen on Mondays")

        with pytest.raises(MemoryRequestRejected, match="changed"):
            await book.forget(BOSS, CHAT, shown.id, revision=shown.revision)
        await book.forget(BOSS, CHAT, shown.id, revision=now.revision)


async def test_a_group_sees_nobodys_own_memories_by_any_way(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        mine = await book.add(BOSS, CHAT, "My PIN is written on the fridge")

        assert (await book.list(BOSS, GROUP, MemoryListFilter.ALL)).entries == []
        assert await book.search(BOSS, GROUP, "PIN fridge") == []
        for refused in (
            book.show(BOSS, GROUP, mine.id),
            book.edit(BOSS, GROUP, mine.id, "nothing"),
            book.forget(BOSS, GROUP, mine.id),
            book.pin(BOSS, GROUP, mine.id, pinned=True),
            book.move(BOSS, GROUP, mine.id, "chat"),
        ):
            with pytest.raises(MemoryRequestRejected, match="unknown"):
                await refused
        assert (await book.export(BOSS, GROUP)).entries == 0
        assert "PIN" in (await book.show(BOSS, CHAT, mine.id)).entry.text


async def test_nobody_sees_anothers_memories_in_private(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        mine = await book.add(MATE, MATE_CHAT, "I am looking for another job")

        assert mine.scope == MATE_SCOPE
        assert (await book.list(BOSS, CHAT, MemoryListFilter.ALL)).entries == []
        with pytest.raises(MemoryRequestRejected, match="unknown"):
            await book.show(BOSS, CHAT, mine.id)
        with pytest.raises(MemoryRequestRejected):
            await book.add(BOSS, CHAT, "He is lazy", scope=str(MATE_SCOPE))


async def test_what_is_for_everybody_is_changed_by_owners_only(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        everybodys = await book.add(BOSS, CHAT, "Deploys happen on Fridays", scope="global")

        with pytest.raises(MemoryRequestRejected, match="not_yours"):
            await book.edit(MATE, MATE_CHAT, everybodys.id, "Never")
        shown = await book.show(MATE, MATE_CHAT, everybodys.id)

        assert (shown.entry.scope, shown.is_editable) == (GLOBAL_SCOPE, False)


async def test_an_owner_looks_into_skills_in_private_and_a_member_does_not(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        entry_id = await add_entry(memory, "Reviews begin with the tests", SKILL)

        seen = await book.list(BOSS, CHAT, MemoryListFilter.ALL, scope="skill:review")
        unseen = await book.list(MATE, MATE_CHAT, MemoryListFilter.ALL, scope="skill:review")
        grouped = await book.list(BOSS, GROUP, MemoryListFilter.ALL, scope="skill:review")

        assert [each.id for each in seen.entries] == [entry_id]
        assert list(unseen.entries) == list(grouped.entries) == []


async def test_an_id_may_be_cut_short_where_it_is_still_clear(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        mine = await book.add(BOSS, CHAT, "I like tea")

        assert (await book.show(BOSS, CHAT, mine.id[:4])).entry.id == mine.id
        for wrong in ("", "zzzz", "%", "_"):
            with pytest.raises(MemoryRequestRejected, match="unknown"):
                await book.show(BOSS, CHAT, wrong)


async def test_a_form_filled_in_on_an_older_version_changes_nothing(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        mine = await book.add(BOSS, CHAT, "I like tea")
        newer = await book.edit(BOSS, CHAT, mine.id, "I like coffee", revision=mine.revision)

        with pytest.raises(MemoryRequestRejected, match="changed"):
            await book.edit(BOSS, CHAT, mine.id, "I like water", revision=mine.revision)

        assert newer.text == (await book.show(BOSS, CHAT, mine.id)).entry.text == "I like coffee"


async def test_what_is_written_out_is_read_in_again_once(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await book.add(BOSS, CHAT, "喜欢简短的回答")
        made = await book.export(BOSS, CHAT)
        lines = (tmp_path / made.path).read_text().splitlines()
        await book.forget(BOSS, CHAT, (await memory.list_entries())[0].id)
        extra = tmp_path / "files" / "more.jsonl"
        extra.parent.mkdir(exist_ok=True)
        rows = [*lines, "not json", json.dumps({"text": "new"}), json.dumps({"kind": "fact"})]
        extra.write_text("\n".join(rows))

        first = await book.import_entries(BOSS, CHAT, "files/more.jsonl")
        again = await book.import_entries(BOSS, CHAT, "files/more.jsonl")

        assert (first.added, first.already_known, first.left_out) == (1, 0, 1)
        assert first.line_errors == {2: "no_json", 4: "no_text"}
        assert (again.added, again.already_known) == (0, 1)
        with pytest.raises(MemoryRequestRejected, match="unreadable"):
            await book.import_entries(BOSS, CHAT, "../../etc/passwd")


async def test_cleaning_tells_first_and_leaves_what_a_person_wrote(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await add_entry(memory, "{{input.topic}} was told by the workflow", MY_SCOPE)
        twice = await add_entry(memory, "Boss likes green tea", MY_SCOPE, source="a")
        await add_entry(memory, "Boss likes green tea!", MY_SCOPE, source="b")
        kept = await add_entry(memory, "{{input.topic}}", MY_SCOPE, origin=MemoryOrigin.MANUAL)

        told = await book.clean(BOSS, CHAT, dry_run=True)
        assert (len(told.noise), len(told.doubles), told.done) == (1, 1, False)
        assert len(await memory.list_entries()) == 4
        done = await book.clean(BOSS, CHAT, dry_run=False)

        assert done.done
        assert {each.id for each in await memory.list_entries()} == {twice, kept}
        backup = (tmp_path / done.backup).read_text()
        assert backup.count("green tea") == 2


async def test_what_has_faded_is_cleaned_and_what_is_pinned_is_not(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        faded = await add_entry(memory, "Boss once looked at a red car", MY_SCOPE)
        await add_entry(memory, "Boss once looked at a blue car", MY_SCOPE, pinned=True)
        later = memory.world.clock.time + timedelta(days=90)
        cleaning = replace(book.cleanup, now=lambda: later)

        report = await replace(book, cleanup=cleaning).clean(BOSS, CHAT, dry_run=True)

        assert [each.id for each in report.weak] == [faded]


async def test_conversations_that_were_brought_in_are_not_cleaned(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        brought = MemoryScope(MemoryScopeKind.CUSTOM, "old talks")
        await add_entry(memory, "ok", brought, kind=MemoryKind.CELL)
        await add_entry(memory, "ok", MY_SCOPE, kind=MemoryKind.CELL)

        report = await book.clean(BOSS, CHAT, dry_run=False)

        assert [each.scope for each in report.noise] == [MY_SCOPE]


async def test_what_cannot_be_backed_up_is_not_cleaned(tmp_path: Path) -> None:
    async def full() -> str:
        raise OSError(28, "No space left on device")

    async with build_service(tmp_path) as (book, memory):
        await add_entry(memory, "{{input.topic}} was told by the workflow", MY_SCOPE)
        cleaning = replace(book.cleanup, back_up=full)
        with pytest.raises(OSError, match="No space"):
            await replace(book, cleanup=cleaning).clean(BOSS, CHAT, dry_run=False)

        assert len(await memory.list_entries()) == 1


async def test_what_is_cleaned_is_what_was_told_less_what_somebody_changed_meanwhile(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        for n in range(103):
            await add_entry(
                memory, f"{{{{input.topic}}}} of workflow {n}", MY_SCOPE, source=f"w{n}"
            )
        told = await book.clean(BOSS, CHAT, dry_run=True)
        mine = told.noise[7]

        async def back_up() -> str:
            await book.edit(BOSS, CHAT, mine.id, "The topic is gardens")
            return await book.cleanup.back_up()

        cleaning = replace(book.cleanup, back_up=back_up)
        done = await replace(book, cleanup=cleaning).clean(BOSS, CHAT, dry_run=False)

        assert [each.id for each in done.noise] == [e.id for e in told.noise if e.id != mine.id]
        assert [each.text for each in await memory.list_entries()] == ["The topic is gardens"]
        assert (tmp_path / done.backup).read_text().count("\n") == 103


async def test_where_nothing_is_to_be_forgotten_nothing_has_faded(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await add_entry(memory, "Boss once looked at a red car", MY_SCOPE)
        later = memory.world.clock.time + timedelta(days=90)
        cleaning = replace(book.cleanup, now=lambda: later, decay_enabled=False)

        assert (await replace(book, cleanup=cleaning).clean(BOSS, CHAT, dry_run=True)).total == 0


async def test_an_export_misses_and_doubles_nothing_while_memory_changes(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        ids = [
            await add_entry(memory, f"The number is {n}", MY_SCOPE, source=f"n{n}")
            for n in range(12)
        ]
        read, entries = memory.entries.list_page, memory.entries

        async def page(scopes: Any, *, after: int = 0, limit: int = 0) -> Sequence[MemoryEntry]:
            """Between two pages something goes that is written already, and something comes."""
            found = await read(scopes, after=after, limit=5)
            if after and len(found) == 5:
                async with memory.world.db.write() as tx:
                    await entries.delete(tx, await entries.get(EntryId(ids[0]), [MY_SCOPE], tx=tx))
                await add_entry(memory, "The number is 12", MY_SCOPE, pinned=True)
            return found

        entries.list_page = page  # type: ignore[method-assign]  # what happens in between is the point
        made = await book.export(BOSS, CHAT)
        lines = [json.loads(line) for line in (tmp_path / made.path).read_text().splitlines()]

        assert [each["text"] for each in lines] == [f"The number is {n}" for n in range(13)]
        assert [each.name for each in (tmp_path / "exports").iterdir()] == [Path(made.path).name]


async def test_a_broken_export_leaves_the_one_before_and_nothing_half(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await add_entry(memory, "The number is 1", MY_SCOPE)
        made = await book.export(BOSS, CHAT)
        before = (tmp_path / made.path).read_text()

        async def page(*_: Any, after: int = 0, **__: Any) -> Sequence[MemoryEntry]:
            if after:
                raise StoreUnavailable("disk full")
            return await memory.list_entries()

        memory.entries.list_page = page  # type: ignore[method-assign]  # the store fails half-way
        with pytest.raises(StoreUnavailable):
            await book.export(BOSS, CHAT)

        assert (tmp_path / made.path).read_text() == before
        assert [each.name for each in (tmp_path / "exports").iterdir()] == [Path(made.path).name]


async def test_what_is_no_backup_is_refused_early(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        (tmp_path / "noise.jsonl").write_text("[]\n" * 5_000)
        with pytest.raises(MemoryRequestRejected, match="unreadable"):
            await book.restore(BOSS, CHAT, "noise.jsonl")


async def test_figures_count_what_may_be_seen(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await book.add(BOSS, CHAT, "I like tea")
        await add_entry(memory, "Mate likes coffee", MATE_SCOPE)
        await add_entry(memory, "Boss may like cats", MY_SCOPE, state=MemoryState.CANDIDATE)

        told = await book.stats(BOSS, CHAT)

        assert told.by_scope == {str(MY_SCOPE): 2}
        assert told.by_state == {"active": 1, "candidate": 1}


async def test_a_chapter_is_written_under_its_name_in_any_language(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _):
        await book.write_chapter(BOSS, CHAT, "备注", "The office is in Kiel")
        again = await book.write_chapter(BOSS, CHAT, "notes", "The office is in Bonn")

        assert [each.text for each in await book.get_handbook(BOSS, CHAT)] == [again.text]
        with pytest.raises(MemoryRequestRejected, match="unknown_chapter"):
            await book.write_chapter(BOSS, CHAT, "pricniples", "Be brief")
        with pytest.raises(MemoryRequestRejected, match="not_yours"):
            await book.write_chapter(MATE, MATE_CHAT, "notes", "Mine now")


async def test_a_backup_brings_back_what_was_cleaned_and_not_what_was_forgotten(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        await add_entry(memory, "{{input.topic}} was told by the workflow", MATE_SCOPE)
        candidate = MemoryState.CANDIDATE
        await add_entry(memory, "Boss may like cats", MY_SCOPE, state=candidate, importance=0.3)
        secret = await book.add(BOSS, CHAT, "My PIN is on the fridge")
        made = await book.cleanup.back_up()
        before = {facts_of(each) for each in await list_all(memory)}
        await book.forget(BOSS, CHAT, secret.id)
        async with memory.world.db.write() as tx:
            for each in await list_all(memory):
                await memory.entries.delete(tx, each)

        first = await book.restore(BOSS, CHAT, made)
        again = await book.restore(BOSS, CHAT, made)

        after = {facts_of(each) for each in await list_all(memory)}
        assert (first.added, first.already_known, again.added, again.already_known) == (2, 1, 0, 3)
        assert {text for text, *_ in before - after} == {"My PIN is on the fridge"}
        assert after < before
        for who, chat in ((MATE, MATE_CHAT), (BOSS, GROUP)):
            with pytest.raises(MemoryRequestRejected, match="not_yours"):
                await book.restore(who, chat, made)
        with pytest.raises(MemoryRequestRejected, match="unreadable"):
            await book.restore(BOSS, CHAT, "../elsewhere.jsonl")


async def list_all(memory: WritingSetup) -> list[MemoryEntry]:
    return await memory.list_entries(states=tuple(MemoryState))


def facts_of(entry: MemoryEntry) -> tuple[str, ...]:
    return entry.text, str(entry.scope), entry.kind, entry.state, str(entry.importance)


async def test_a_list_begins_with_what_is_known_and_counts_what_else_there_is(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        await add_entry(memory, "Drinks tea", MY_SCOPE)
        await add_entry(memory, "Said in passing", MY_SCOPE, kind=MemoryKind.CELL)
        await add_entry(
            memory, "Be brief", GLOBAL_SCOPE, kind=MemoryKind.HANDBOOK, key="handbook:quality"
        )
        await add_entry(memory, "Perhaps", MY_SCOPE, state=MemoryState.CANDIDATE)
        page = await book.list(BOSS, CHAT, MemoryListFilter.KNOWN)

        assert [each.text for each in page.entries] == ["Drinks tea"]
        assert {kind: n for kind, n in page.other_counts.items() if n} == {
            MemoryListFilter.KNOWN: 1,
            MemoryListFilter.CELLS: 1,
            MemoryListFilter.HANDBOOK: 1,
            MemoryListFilter.CANDIDATES: 1,
        }


async def test_what_has_no_word_of_the_query_itself_is_said_to_stand_near(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await memory.record_turn("我看到了一只猫", "好的。", source="1")
        await memory.record_turn("这里的天气不错", "是的。", source="2")
        found = await book.search(BOSS, CHAT, "一只猫")

        assert {each.entry.text.partition("\n")[0]: each.is_indirect for each in found} == {
            "我看到了一只猫": False,
            "这里的天气不错": True,
        }


async def test_a_chapter_stays_in_its_place_when_it_is_rewritten(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, _memory):
        for name in ("Principles", "Quality", "Notes"):
            await book.write_chapter(BOSS, CHAT, name, f"{name} first.")
        await book.write_chapter(BOSS, CHAT, "Principles", "Anew.")

        assert [each.text for each in await book.get_handbook(BOSS, CHAT)] == [
            "Anew.",
            "Quality first.",
            "Notes first.",
        ]


async def test_an_order_whose_first_handling_died_before_its_answer_is_answered_as_done(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        mine = await book.add(BOSS, CHAT, "My shoe size is 44")
        proposed = [
            await add_entry(
                memory, text, MY_SCOPE, kind=MemoryKind.LONGTERM, state=MemoryState.CANDIDATE
            )
            for text in ("Likes tea", "Likes coffee")
        ]
        before = (await book.show(BOSS, CHAT, mine.id)).entry.revision

        for _ in range(2):
            edited = await book.edit(BOSS, CHAT, mine.id, "It is 45", revision=before)
            kept = await book.decide(BOSS, CHAT, proposed[0], keep=True)
            dropped = await book.decide(BOSS, CHAT, proposed[1], keep=False)
            assert edited.text == "It is 45"
            assert (kept.state, dropped.state) == (MemoryState.ACTIVE, MemoryState.REJECTED)

        await book.forget(BOSS, CHAT, mine.id, source="message:1")
        with pytest.raises(MemoryRequestRejected, match="forgotten"):
            await book.forget(BOSS, CHAT, mine.id, source="message:1")
        with pytest.raises(MemoryRequestRejected, match="unknown"):
            await book.forget(BOSS, CHAT, mine.id, source="message:2")
        with pytest.raises(MemoryRequestRejected, match="changed"):
            await book.edit(BOSS, CHAT, proposed[0], "Likes cocoa", revision=1)


async def test_a_button_decides_about_the_words_that_stood_beside_it(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        made = await add_entry(
            memory, "Likes tea", MY_SCOPE, kind=MemoryKind.LONGTERM, state=MemoryState.CANDIDATE
        )
        shown = candidate_digest((await book.show(BOSS, CHAT, made)).entry)
        await book.edit(BOSS, CHAT, made, "Likes gin")

        for keeps in (True, False):
            with pytest.raises(MemoryRequestRejected, match="changed"):
                await book.decide(BOSS, CHAT, made, keep=keeps, wording=shown)

        anew = candidate_digest((await book.show(BOSS, CHAT, made)).entry)
        assert (await book.decide(BOSS, CHAT, made, keep=True, wording=anew)).text == "Likes gin"


async def test_what_was_offered_and_shared_is_answered_as_done(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        drawn = await add_entry(memory, "Tests run first", MY_SCOPE, confidence=0.9)
        fact = await memory.entries.get(EntryId(drawn), None)
        async with memory.world.db.write() as tx:
            now = memory.world.clock()
            to = MemoryScope(MemoryScopeKind.SKILL, "deploy")
            assert await propose_sharing(memory.entries, tx, fact, to, now=now)
        [candidate] = await memory.list_entries(states=(MemoryState.CANDIDATE,))

        for _ in range(2):
            shared = await book.decide(BOSS, CHAT, candidate.id, keep=True)
            assert (shared.scope, shared.state) == (to, MemoryState.ACTIVE)


async def test_of_what_was_written_out_only_what_holds_is_brought_in_and_keeps_what_it_is_about(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        await memory.record_turn("call me Moritz", "Hi.", source="1")
        await memory.record_turn("call me Max", "Hi.", source="2")
        await book.write_chapter(BOSS, CHAT, "Quality", "Twice.")
        made = await book.export(BOSS, CHAT)
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / "in.jsonl").write_bytes((tmp_path / made.path).read_bytes())
        brought = await book.import_entries(MATE, MATE_CHAT, "files/in.jsonl")
        held = await memory.entries.list([MATE_SCOPE])

        assert (brought.added, brought.left_out, brought.line_errors) == (1, 4, {})
        assert [(each.text, each.key) for each in held] == [
            ("Wants to be called Max", "profile:name")
        ]


async def test_of_a_long_file_all_is_brought_in_that_can_be_and_the_rest_is_told_by_its_line(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        rows = [{"text": f"fact {n}"} for n in range(250)] + [
            {"text": "x" * 10_001},
            {"text": ""},
            {"text": "fact 1"},
        ]
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
        told: list[tuple[int, int]] = []

        async def tell(done: int, of: int) -> None:
            told.append((done, of))

        brought = await book.import_entries(BOSS, CHAT, "files/in.jsonl", progress=tell)

        assert (brought.added, brought.already_known) == (250, 1)
        assert brought.line_errors == {251: "too_long", 252: "empty"}
        assert told == [(100, 253), (200, 253)]
        assert await memory.entries.count([MY_SCOPE]) == 250


async def test_what_is_known_about_a_name_is_shown_for_each_of_that_name(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        for said in (
            "Remember that my sister Anna lives in Porto",
            "Remember that Anna from accounting approves the invoices",
            "Remember that my sister Anna likes sailing",
            "记住我同事小王负责支付项目",
        ):
            await memory.record_turn(said, "Noted.")
        await memory.record_turn("Remember that Anna has a boat", chat=GROUP)
        await memory.record_turn("Remember that Annabel sells boats", person=MATE, chat=MATE_CHAT)

        several = await book.list_about(BOSS, CHAT, "anna")
        one = await book.list_about(BOSS, CHAT, "Anna sister")
        [chinese] = await book.list_about(BOSS, CHAT, "小王")

        assert [each.description for each in several] == ["sister", "accounting"]
        assert {each.text for each in several[1].entries} == {
            "Anna from accounting approves the invoices",
            "Remember that Anna from accounting approves the invoices\n\nNoted.",
        }
        assert [each.description for each in one] == ["sister"]
        assert chinese.description == "同事"
        # Neither of the group's, in private, nor of others.
        assert all("boat" not in entry.text for each in several for entry in each.entries)
        assert await book.list_about(MATE, MATE_CHAT, "Anna") == []
