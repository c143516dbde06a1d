"""What owners decide about skills is kept by exact hash, the last word about each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from storage.agents.skills import SkillRepo
from storage.db import Database
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.people import People
from storage.records.people import Channel
from storage.records.workers.skills import SeenSkill, SkillDecision
from tests.samples import NOW


@pytest.fixture
async def decision(db: Database) -> SkillDecision:
    people = People(db, Ids(), Chats(db, Ids()))
    await people.ensure_owners(((Channel.TELEGRAM, "7"),), now=NOW, local="Olga")
    olga = await people.who(Channel.TELEGRAM, "7")
    assert olga is not None
    return SkillDecision(
        name="one", hash="a" * 64, source="/x", enabled=True, decided_by=olga.id, decided_at=NOW
    )


async def test_the_last_decision_about_a_hash_counts(db: Database, decision: SkillDecision) -> None:
    repo = SkillRepo(db)
    later = replace(decision, enabled=False, decided_at=NOW + timedelta(minutes=1))

    await repo.decide(decision)
    await repo.decide(later)

    assert await repo.decisions() == [later]


async def test_another_hash_is_another_decision_and_the_newest_comes_last(
    db: Database, decision: SkillDecision
) -> None:
    repo = SkillRepo(db)
    later = replace(decision, hash="b" * 64, decided_at=NOW + timedelta(minutes=1))

    await repo.decide(later)
    await repo.decide(decision)

    assert await repo.decisions() == [decision, later]


async def test_what_was_seen_is_kept_with_its_hash(db: Database, decision: SkillDecision) -> None:
    repo = SkillRepo(db)
    seen = SeenSkill(files={"SKILL.md": "d" * 64}, text="---\n周报")

    await repo.decide(decision, seen)

    assert await repo.seen(decision.hash) == seen
    assert await repo.seen("b" * 64) is None
