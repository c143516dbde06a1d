"""A trigger starts its workflow with what was meant for it, and for whom it was meant."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from storage.db import Transaction
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.people import Channel, Person, PersonRole
from storage.records.triggers import Trigger, TriggerKind
from tests.bot.engine.schedule.test_triggers import trigger_world
from tests.engine_harness import CHAT, ManualClock


@pytest.mark.parametrize("moved", ["in", "."], ids=["folder", "folder around it"])
@pytest.mark.parametrize("when", ["before", "between"])
async def test_a_watched_folder_that_becomes_a_link_gives_no_file_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str, when: str
) -> None:
    """A worker that may write around the folder replaces it, also between the look and the copy."""
    shared, home, private = tmp_path / "shared", tmp_path / "home", tmp_path / "private"
    for each in (shared / "in", home, private / "in"):
        each.mkdir(parents=True)
    for each in (private, private / "in"):
        (each / "id_key").write_text("secret")
    clock = ManualClock()

    def swap() -> None:
        target = (shared / moved).resolve()
        shutil.move(target, tmp_path / "away")
        target.symlink_to(private)

    async with trigger_world(home, clock) as world:
        trigger, _ = await world.add(
            TriggerKind.FILE, folder=str(shared / "in"), inputs={"topic": "a file"}
        )
        (shared / "in" / "id_key").write_text("harmless")
        clock.advance(days=400)
        find = world.service.triggers.find_unfired

        async def find_then_swap(trigger: Trigger, there: Mapping[str, str]) -> Collection[str]:
            found = await find(trigger, there)
            swap()
            return found

        if when == "before":
            swap()
            with pytest.raises(NotADirectoryError):
                await world.service.look_for_files(trigger)
        else:
            monkeypatch.setattr(world.service.triggers, "find_unfired", find_then_swap)
            await world.service.look_for_files(trigger)

        assert await world.titles() == []
    assert [each for each in home.rglob("id_key") if each.is_file()] == []


async def test_whoever_takes_the_name_of_the_sender_is_not_the_sender(tmp_path: Path) -> None:
    async with trigger_world(tmp_path) as world:
        db = world.here.engine.db
        people = PeopleRepo(db, IdGenerator(), ChatRepo(db, IdGenerator()))

        async def join(tx: Transaction, account: str, name: str) -> Person:
            return await people.get_or_create(
                tx,
                Channel.TELEGRAM,
                account,
                name=name,
                role=PersonRole.MEMBER,
                now=ManualClock()(),
            )

        async with db.write() as tx:
            ann = await join(tx, "51", "Ann")
        by_name, _ = await world.add(TriggerKind.MESSAGE, pattern="note {topic}", sender="Ann")

        said = world.service.on_message
        assert await said("note otters", chat=CHAT.id, by=ann, source="m1") is not None
        async with db.write() as tx:
            other = await join(tx, "52", "Ann")
            posing = await join(tx, "53", ann.id)
        assert await said("note keys", chat=CHAT.id, by=other, source="m2") is None
        await world.service.remove(by_name.id)
        await world.add(TriggerKind.MESSAGE, pattern="note {topic}", sender=ann.id)
        assert await said("note birds", chat=CHAT.id, by=ann, source="m3") is not None
        assert await said("note keys", chat=CHAT.id, by=posing, source="m4") is None
        assert await world.titles() == ["Note: otters", "Note: birds"]
