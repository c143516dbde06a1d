"""What people see and change of memory, on a real store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.app.memory.book import MemoryBookService
from bot.app.memory.carrying import Carrying
from bot.app.memory.restoring import Restoring
from bot.engine.memory.cleaning import Cleaning
from bot.engine.memory.orders import Orders
from bot.engine.memory.recall import Recall
from bot.engine.memory.uses import Uses
from bot.engine.memory.writing.drawing.offering import offer
from bot.engine.memory.writing.forgotten import Forgotten
from handlers.services.memory import MemoryRefused
from storage.errors import StoreUnavailable
from storage.marks import Marks
from storage.memory.backups import Backups
from storage.memory.figures import MemoryFigures
from storage.memory.living.uses import UseRepo
from storage.memory.living.vectors import Vectors
from storage.memory.words import terms
from storage.records.memory.entries import (
    GLOBAL,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    ScopeKind,
)
from storage.records.memory.offers import wording
from storage.records.memory.shown import Wanted
from storage.records.people import Channel, Member
from tests.bot.engine.memory.writing.world import MATES, MATES_CHAT, MINE, Memory, remembering
from tests.engine_world import BOSS, CHAT, GROUP, MATE

SKILL = Scope(ScopeKind.SKILL, "review")


@asynccontextmanager
async def booked(home: Path) -> AsyncGenerator[tuple[MemoryBookService, Memory], None]:
    async def no_figures() -> Mapping[str, float]:
        return {}

    async def residents() -> Sequence[Member]:
        return [Member(person=BOSS, accounts=((Channel.WEB, "local"), (Channel.TELEGRAM, "1")))]

    async def back_up() -> str:
        return (await carrying.out(None, name="backup")).path

    async with remembering(home) as memory:
        db, now = memory.world.db, memory.world.clock
        carrying = Carrying(
            entries=memory.entries,
            backups=Backups(db, memory.entries),
            writer=memory.writer,
            orders=Orders(Marks(db)),
            members=residents,
            home=home,
        )
        yield (
            MemoryBookService(
                entries=memory.entries,
                figures=MemoryFigures(db),
                vectors=Vectors(db),
                writer=memory.writer,
                recall=Recall(
                    entries=memory.entries,
                    index=memory.index,
                    words=lambda query, _now: dict.fromkeys(terms(query), 1.0),
                    now=now,
                ),
                uses=Uses(db=db, entries=memory.entries, repo=UseRepo(db), now=now),
                carrying=carrying,
                restoring=Restoring(
                    db=db,
                    entries=memory.entries,
                    changed=memory.changed,
                    orders=Orders(Marks(db)),
                    members=residents,
                    home=home,
                    now=now,
                ),
                cleaning=Cleaning(
                    db=db,
                    entries=memory.entries,
                    changed=memory.changed,
                    orders=Orders(Marks(db)),
                    back_up=back_up,
                    now=now,
                ),
                forgotten=Forgotten(Marks(db)),
                quality=no_figures,
                now=now,
                zone=UTC,
            ),
            memory,
        )


async def keep(memory: Memory, text: str, scope: Scope, **more: object) -> str:
    fields = {"kind": MemoryKind.FACT, **more}
    new = NewEntry(scope=scope, text=text, **fields)  # type: ignore[arg-type]  # its own fields
    async with memory.world.db.write() as tx:
        made = await memory.entries.add(tx, new, now=memory.world.clock())
    assert made is not None
    return made.id


async def test_in_another_home_a_backup_is_of_whoever_has_the_same_account(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with booked(here) as (book, _):
        await book.add(BOSS, CHAT, "I live in Lisbon")
        made = await book.export(BOSS, CHAT)
    written = (here / made.path).read_text(encoding="utf-8")
    assert BOSS.id in written
    (there / "backup.jsonl").write_text(
        written.replace(f'"{BOSS.id}"', '"stranger"').replace(
            f"person:{BOSS.id}", "person:stranger"
        )
    )

    async with booked(there) as (book, memory):
        await book.restore(BOSS, CHAT, "backup.jsonl")

        found = await memory.entries.list((MINE,))
        assert [(each.text, each.person) for each in found] == [("I live in Lisbon", BOSS.id)]


async def test_what_was_changed_since_it_was_shown_is_not_forgotten(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        shown = await book.add(BOSS, CHAT, "Deploys happen on Fridays")
        now = await book.edit(BOSS, CHAT, shown.id, "Deploys happen on Mondays")

        with pytest.raises(MemoryRefused, match="changed"):
            await book.forget(BOSS, CHAT, shown.id, revision=shown.revision)
        await book.forget(BOSS, CHAT, shown.id, revision=now.revision)


async def test_a_group_sees_nobodys_own_memories_by_any_way(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        mine = await book.add(BOSS, CHAT, "My PIN is written on the fridge")

        assert (await book.list(BOSS, GROUP, Wanted.ALL)).entries == []
        assert await book.search(BOSS, GROUP, "PIN fridge") == []
        for refused in (
            book.show(BOSS, GROUP, mine.id),
            book.edit(BOSS, GROUP, mine.id, "nothing"),
            book.forget(BOSS, GROUP, mine.id),
            book.pin(BOSS, GROUP, mine.id, pinned=True),
            book.move(BOSS, GROUP, mine.id, "chat"),
        ):
            with pytest.raises(MemoryRefused, match="unknown"):
                await refused
        assert (await book.export(BOSS, GROUP)).entries == 0
        assert "PIN" in (await book.show(BOSS, CHAT, mine.id)).entry.text


async def test_nobody_sees_anothers_memories_in_private(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        mine = await book.add(MATE, MATES_CHAT, "I am looking for another job")

        assert mine.scope == MATES
        assert (await book.list(BOSS, CHAT, Wanted.ALL)).entries == []
        with pytest.raises(MemoryRefused, match="unknown"):
            await book.show(BOSS, CHAT, mine.id)
        with pytest.raises(MemoryRefused):
            await book.add(BOSS, CHAT, "He is lazy", scope=str(MATES))


async def test_what_is_for_everybody_is_changed_by_owners_only(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        everybodys = await book.add(BOSS, CHAT, "Deploys happen on Fridays", scope="global")

        with pytest.raises(MemoryRefused, match="not_yours"):
            await book.edit(MATE, MATES_CHAT, everybodys.id, "Never")
        shown = await book.show(MATE, MATES_CHAT, everybodys.id)

        assert (shown.entry.scope, shown.mine) == (GLOBAL, False)


async def test_an_owner_looks_into_skills_in_private_and_a_member_does_not(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        entry_id = await keep(memory, "Reviews begin with the tests", SKILL)

        seen = await book.list(BOSS, CHAT, Wanted.ALL, scope="skill:review")
        unseen = await book.list(MATE, MATES_CHAT, Wanted.ALL, scope="skill:review")
        grouped = await book.list(BOSS, GROUP, Wanted.ALL, scope="skill:review")

        assert [each.id for each in seen.entries] == [entry_id]
        assert list(unseen.entries) == list(grouped.entries) == []


async def test_an_id_may_be_cut_short_where_it_is_still_clear(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        mine = await book.add(BOSS, CHAT, "I like tea")

        assert (await book.show(BOSS, CHAT, mine.id[:4])).entry.id == mine.id
        for wrong in ("", "zzzz", "%", "_"):
            with pytest.raises(MemoryRefused, match="unknown"):
                await book.show(BOSS, CHAT, wrong)


async def test_a_form_filled_in_on_an_older_version_changes_nothing(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        mine = await book.add(BOSS, CHAT, "I like tea")
        newer = await book.edit(BOSS, CHAT, mine.id, "I like coffee", revision=mine.revision)

        with pytest.raises(MemoryRefused, match="changed"):
            await book.edit(BOSS, CHAT, mine.id, "I like water", revision=mine.revision)

        assert newer.text == (await book.show(BOSS, CHAT, mine.id)).entry.text == "I like coffee"


async def test_what_is_written_out_is_read_in_again_once(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        await book.add(BOSS, CHAT, "喜欢简短的回答")
        made = await book.export(BOSS, CHAT)
        lines = (tmp_path / made.path).read_text().splitlines()
        await book.forget(BOSS, CHAT, (await memory.all())[0].id)
        extra = tmp_path / "files" / "more.jsonl"
        extra.parent.mkdir(exist_ok=True)
        rows = [*lines, "not json", json.dumps({"text": "new"}), json.dumps({"kind": "fact"})]
        extra.write_text("\n".join(rows))

        first = await book.bring(BOSS, CHAT, "files/more.jsonl")
        again = await book.bring(BOSS, CHAT, "files/more.jsonl")

        assert (first.added, first.known, first.left) == (1, 0, 1)
        assert first.bad == {2: "no_json", 4: "no_text"}
        assert (again.added, again.known) == (0, 1)
        with pytest.raises(MemoryRefused, match="unreadable"):
            await book.bring(BOSS, CHAT, "../../etc/passwd")


async def test_cleaning_tells_first_and_leaves_what_a_person_wrote(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        await keep(memory, "{{input.topic}} was told by the workflow", MINE)
        twice = await keep(memory, "Boss likes green tea", MINE, source="a")
        await keep(memory, "Boss likes green tea!", MINE, source="b")
        kept = await keep(memory, "{{input.topic}}", MINE, origin=Origin.MANUAL)

        told = await book.clean(BOSS, CHAT, dry=True)
        assert (len(told.noise), len(told.doubles), told.done) == (1, 1, False)
        assert len(await memory.all()) == 4
        done = await book.clean(BOSS, CHAT, dry=False)

        assert done.done
        assert {each.id for each in await memory.all()} == {twice, kept}
        backup = (tmp_path / done.backup).read_text()
        assert backup.count("green tea") == 2


async def test_what_has_faded_is_cleaned_and_what_is_pinned_is_not(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        faded = await keep(memory, "Boss once looked at a red car", MINE)
        await keep(memory, "Boss once looked at a blue car", MINE, pinned=True)
        later = memory.world.clock.time + timedelta(days=90)
        cleaning = replace(book.cleaning, now=lambda: later)

        report = await replace(book, cleaning=cleaning).clean(BOSS, CHAT, dry=True)

        assert [each.id for each in report.weak] == [faded]


async def test_conversations_that_were_brought_in_are_not_cleaned(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        brought = Scope(ScopeKind.CUSTOM, "old talks")
        await keep(memory, "ok", brought, kind=MemoryKind.CELL)
        await keep(memory, "ok", MINE, kind=MemoryKind.CELL)

        report = await book.clean(BOSS, CHAT, dry=False)

        assert [each.scope for each in report.noise] == [MINE]


async def test_what_cannot_be_backed_up_is_not_cleaned(tmp_path: Path) -> None:
    async def full() -> str:
        raise OSError(28, "No space left on device")

    async with booked(tmp_path) as (book, memory):
        await keep(memory, "{{input.topic}} was told by the workflow", MINE)
        cleaning = replace(book.cleaning, back_up=full)
        with pytest.raises(OSError, match="No space"):
            await replace(book, cleaning=cleaning).clean(BOSS, CHAT, dry=False)

        assert len(await memory.all()) == 1


async def test_what_is_cleaned_is_what_was_told_less_what_somebody_changed_meanwhile(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        for n in range(103):
            await keep(memory, f"{{{{input.topic}}}} of workflow {n}", MINE, source=f"w{n}")
        told = await book.clean(BOSS, CHAT, dry=True)
        mine = told.noise[7]

        async def back_up() -> str:
            await book.edit(BOSS, CHAT, mine.id, "The topic is gardens")
            return await book.cleaning.back_up()

        cleaning = replace(book.cleaning, back_up=back_up)
        done = await replace(book, cleaning=cleaning).clean(BOSS, CHAT, dry=False)

        assert [each.id for each in done.noise] == [e.id for e in told.noise if e.id != mine.id]
        assert [each.text for each in await memory.all()] == ["The topic is gardens"]
        assert (tmp_path / done.backup).read_text().count("\n") == 103


async def test_where_nothing_is_to_be_forgotten_nothing_has_faded(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        await keep(memory, "Boss once looked at a red car", MINE)
        later = memory.world.clock.time + timedelta(days=90)
        cleaning = replace(book.cleaning, now=lambda: later, forgets=False)

        assert (await replace(book, cleaning=cleaning).clean(BOSS, CHAT, dry=True)).total == 0


async def test_an_export_misses_and_doubles_nothing_while_memory_changes(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        ids = [await keep(memory, f"The number is {n}", MINE, source=f"n{n}") for n in range(12)]
        read, entries = memory.entries.page, memory.entries

        async def page(scopes: Any, *, after: int = 0, limit: int = 0) -> Sequence[Entry]:
            """Between two pages something goes that is written already, and something comes."""
            found = await read(scopes, after=after, limit=5)
            if after and len(found) == 5:
                async with memory.world.db.write() as tx:
                    await entries.drop(tx, await entries.get(EntryId(ids[0]), [MINE], tx=tx))
                await keep(memory, "The number is 12", MINE, pinned=True)
            return found

        entries.page = page  # type: ignore[method-assign]  # what happens in between is the point
        made = await book.export(BOSS, CHAT)
        lines = [json.loads(line) for line in (tmp_path / made.path).read_text().splitlines()]

        assert [each["text"] for each in lines] == [f"The number is {n}" for n in range(13)]
        assert [each.name for each in (tmp_path / "exports").iterdir()] == [Path(made.path).name]


async def test_a_broken_export_leaves_the_one_before_and_nothing_half(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        await keep(memory, "The number is 1", MINE)
        made = await book.export(BOSS, CHAT)
        before = (tmp_path / made.path).read_text()

        async def page(*_: Any, after: int = 0, **__: Any) -> Sequence[Entry]:
            if after:
                raise StoreUnavailable("disk full")
            return await memory.all()

        memory.entries.page = page  # type: ignore[method-assign]  # the store fails half-way
        with pytest.raises(StoreUnavailable):
            await book.export(BOSS, CHAT)

        assert (tmp_path / made.path).read_text() == before
        assert [each.name for each in (tmp_path / "exports").iterdir()] == [Path(made.path).name]


async def test_what_is_no_backup_is_refused_early(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        (tmp_path / "noise.jsonl").write_text("[]\n" * 5_000)
        with pytest.raises(MemoryRefused, match="unreadable"):
            await book.restore(BOSS, CHAT, "noise.jsonl")


async def test_figures_count_what_may_be_seen(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        await book.add(BOSS, CHAT, "I like tea")
        await keep(memory, "Mate likes coffee", MATES)
        await keep(memory, "Boss may like cats", MINE, state=EntryState.CANDIDATE)

        told = await book.stats(BOSS, CHAT)

        assert told.by_scope == {str(MINE): 2}
        assert told.by_state == {"active": 1, "candidate": 1}


async def test_a_chapter_is_written_under_its_name_in_any_language(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _):
        await book.write_chapter(BOSS, CHAT, "备注", "The office is in Kiel")
        again = await book.write_chapter(BOSS, CHAT, "notes", "The office is in Bonn")

        assert [each.text for each in await book.handbook(BOSS, CHAT)] == [again.text]
        with pytest.raises(MemoryRefused, match="unknown_chapter"):
            await book.write_chapter(BOSS, CHAT, "pricniples", "Be brief")
        with pytest.raises(MemoryRefused, match="not_yours"):
            await book.write_chapter(MATE, MATES_CHAT, "notes", "Mine now")


async def test_a_backup_brings_back_what_was_cleaned_and_not_what_was_forgotten(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        await keep(memory, "{{input.topic}} was told by the workflow", MATES)
        candidate = EntryState.CANDIDATE
        await keep(memory, "Boss may like cats", MINE, state=candidate, importance=0.3)
        secret = await book.add(BOSS, CHAT, "My PIN is on the fridge")
        made = await book.cleaning.back_up()
        before = {facts_of(each) for each in await everything(memory)}
        await book.forget(BOSS, CHAT, secret.id)
        async with memory.world.db.write() as tx:
            for each in await everything(memory):
                await memory.entries.drop(tx, each)

        first = await book.restore(BOSS, CHAT, made)
        again = await book.restore(BOSS, CHAT, made)

        after = {facts_of(each) for each in await everything(memory)}
        assert (first.added, first.known, again.added, again.known) == (2, 1, 0, 3)
        assert {text for text, *_ in before - after} == {"My PIN is on the fridge"}
        assert after < before
        for who, chat in ((MATE, MATES_CHAT), (BOSS, GROUP)):
            with pytest.raises(MemoryRefused, match="not_yours"):
                await book.restore(who, chat, made)
        with pytest.raises(MemoryRefused, match="unreadable"):
            await book.restore(BOSS, CHAT, "../elsewhere.jsonl")


async def everything(memory: Memory) -> list[Entry]:
    return await memory.all(states=tuple(EntryState))


def facts_of(entry: Entry) -> tuple[str, ...]:
    return entry.text, str(entry.scope), entry.kind, entry.state, str(entry.importance)


async def test_a_list_begins_with_what_is_known_and_counts_what_else_there_is(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        await keep(memory, "Drinks tea", MINE)
        await keep(memory, "Said in passing", MINE, kind=MemoryKind.CELL)
        await keep(memory, "Be brief", GLOBAL, kind=MemoryKind.HANDBOOK, key="handbook:quality")
        await keep(memory, "Perhaps", MINE, state=EntryState.CANDIDATE)
        page = await book.list(BOSS, CHAT, Wanted.KNOWN)

        assert [each.text for each in page.entries] == ["Drinks tea"]
        assert {kind: n for kind, n in page.others.items() if n} == {
            Wanted.KNOWN: 1,
            Wanted.CELLS: 1,
            Wanted.HANDBOOK: 1,
            Wanted.CANDIDATES: 1,
        }


async def test_what_has_no_word_of_the_query_itself_is_said_to_stand_near(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        await memory.say("我养了一只猫", "好的。", source="1")
        await memory.say("这里的天气不错", "是的。", source="2")
        found = await book.search(BOSS, CHAT, "一只猫")

        assert {each.entry.text.partition("\n")[0]: each.near for each in found} == {
            "我养了一只猫": False,
            "这里的天气不错": True,
        }


async def test_a_chapter_stays_in_its_place_when_it_is_rewritten(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, _memory):
        for name in ("Principles", "Quality", "Notes"):
            await book.write_chapter(BOSS, CHAT, name, f"{name} first.")
        await book.write_chapter(BOSS, CHAT, "Principles", "Anew.")

        assert [each.text for each in await book.handbook(BOSS, CHAT)] == [
            "Anew.",
            "Quality first.",
            "Notes first.",
        ]


async def test_an_order_whose_first_handling_died_before_its_answer_is_answered_as_done(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        mine = await book.add(BOSS, CHAT, "My shoe size is 44")
        proposed = [
            await keep(memory, text, MINE, kind=MemoryKind.LONGTERM, state=EntryState.CANDIDATE)
            for text in ("Likes tea", "Likes coffee")
        ]
        before = (await book.show(BOSS, CHAT, mine.id)).entry.revision

        for _ in range(2):
            edited = await book.edit(BOSS, CHAT, mine.id, "It is 45", revision=before)
            kept = await book.decide(BOSS, CHAT, proposed[0], keep=True)
            dropped = await book.decide(BOSS, CHAT, proposed[1], keep=False)
            assert edited.text == "It is 45"
            assert (kept.state, dropped.state) == (EntryState.ACTIVE, EntryState.REJECTED)

        await book.forget(BOSS, CHAT, mine.id, source="message:1")
        with pytest.raises(MemoryRefused, match="forgotten"):
            await book.forget(BOSS, CHAT, mine.id, source="message:1")
        with pytest.raises(MemoryRefused, match="unknown"):
            await book.forget(BOSS, CHAT, mine.id, source="message:2")
        with pytest.raises(MemoryRefused, match="changed"):
            await book.edit(BOSS, CHAT, proposed[0], "Likes cocoa", revision=1)


async def test_a_button_decides_about_the_words_that_stood_beside_it(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        made = await keep(
            memory, "Likes tea", MINE, kind=MemoryKind.LONGTERM, state=EntryState.CANDIDATE
        )
        shown = wording((await book.show(BOSS, CHAT, made)).entry)
        await book.edit(BOSS, CHAT, made, "Likes gin")

        for keeps in (True, False):
            with pytest.raises(MemoryRefused, match="changed"):
                await book.decide(BOSS, CHAT, made, keep=keeps, wording=shown)

        anew = wording((await book.show(BOSS, CHAT, made)).entry)
        assert (await book.decide(BOSS, CHAT, made, keep=True, wording=anew)).text == "Likes gin"


async def test_what_was_offered_and_shared_is_answered_as_done(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        drawn = await keep(memory, "Tests run first", MINE, confidence=0.9)
        fact = await memory.entries.get(EntryId(drawn), None)
        async with memory.world.db.write() as tx:
            now = memory.world.clock()
            to = Scope(ScopeKind.SKILL, "deploy")
            assert await offer(memory.entries, tx, fact, to, now=now)
        [candidate] = await memory.all(states=(EntryState.CANDIDATE,))

        for _ in range(2):
            shared = await book.decide(BOSS, CHAT, candidate.id, keep=True)
            assert (shared.scope, shared.state) == (to, EntryState.ACTIVE)


async def test_of_what_was_written_out_only_what_holds_is_brought_in_and_keeps_what_it_is_about(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        await memory.say("call me Moritz", "Hi.", source="1")
        await memory.say("call me Max", "Hi.", source="2")
        await book.write_chapter(BOSS, CHAT, "Quality", "Twice.")
        made = await book.export(BOSS, CHAT)
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / "in.jsonl").write_bytes((tmp_path / made.path).read_bytes())
        brought = await book.bring(MATE, MATES_CHAT, "files/in.jsonl")
        held = await memory.entries.list([MATES])

        assert (brought.added, brought.left, brought.bad) == (1, 4, {})
        assert [(each.text, each.key) for each in held] == [
            ("Wants to be called Max", "profile:name")
        ]


async def test_of_a_long_file_all_is_brought_in_that_can_be_and_the_rest_is_told_by_its_line(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
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

        brought = await book.bring(BOSS, CHAT, "files/in.jsonl", tell=tell)

        assert (brought.added, brought.known) == (250, 1)
        assert brought.bad == {251: "too_long", 252: "empty"}
        assert told == [(100, 253), (200, 253)]
        assert await memory.entries.count([MINE]) == 250
