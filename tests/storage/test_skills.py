"""Owners' decisions about skills are stored by exact hash, the last one of each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from storage.db import Database
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.people import Channel
from storage.records.skills import EnabledSkillSnapshot, SkillDecision
from storage.skills import SkillRepo
from tests.builders import NOW


@pytest.fixture
async def decision(db: Database) -> SkillDecision:
    people = PeopleRepo(db, IdGenerator(), ChatRepo(db, IdGenerator()))
    await people.ensure_owners(((Channel.TELEGRAM, "7"),), now=NOW, local_name="Olga")
    olga = await people.find_by_account(Channel.TELEGRAM, "7")
    assert olga is not None
    return SkillDecision(
        name="one", hash="a" * 64, source="/x", enabled=True, decided_by=olga.id, decided_at=NOW
    )


async def test_the_last_decision_about_a_hash_counts(db: Database, decision: SkillDecision) -> None:
    repo = SkillRepo(db)
    later = replace(decision, enabled=False, decided_at=NOW + timedelta(minutes=1))

    await repo.save_decision(decision)
    await repo.save_decision(later)

    assert list(await repo.list_decisions()) == [later]


async def test_another_hash_is_another_decision_and_the_newest_comes_last(
    db: Database, decision: SkillDecision
) -> None:
    repo = SkillRepo(db)
    later = replace(decision, hash="b" * 64, decided_at=NOW + timedelta(minutes=1))

    await repo.save_decision(later)
    await repo.save_decision(decision)

    assert list(await repo.list_decisions()) == [decision, later]


async def test_what_was_seen_is_kept_with_its_hash(db: Database, decision: SkillDecision) -> None:
    repo = SkillRepo(db)
    seen = EnabledSkillSnapshot(files={"SKILL.md": "d" * 64}, text="---\n周报")

    await repo.save_decision(decision, seen)

    assert await repo.find_enabled_snapshot(decision.hash) == seen
    assert await repo.find_enabled_snapshot("b" * 64) is None
