"""Whoever reads Chinese is shown Chinese: no English word is left on any card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cards.permission_reasons import build_reason
from handlers.command_table import COMMANDS
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import Language
from storage.records.skills import (
    InvalidSkill,
    MissingRequirement,
    SkillNote,
    SkillSource,
    SkillState,
)
from tests.builders import make_approval, make_task
from tests.cards.untranslated_words import foreign_words, foreign_words_on
from tests.fakes.skills import make_listed_skill
from tests.handlers.router_harness import RouterHarness

OWNER: dict[str, Any] = {"who": "x-olga", "chat": "c0"}
GROUP: dict[str, Any] = {"who": "x-ann", "chat": "g1"}

SAMPLES = frozenset({
    "Olga", "Ann", "Water", "the", "plants", "weekly-report", "pragmatist", "reviewer", "poet",
    "opus", "claude-opus", "claude-haiku", "gpt-", "line", "task", "qa", "ap", "Delete", "logs",
    "old", "make", "jq", "x-ann", "x-olga", "tracker", "Verse", "boss", "shiftboss", "skills",
    "abcdef", "sh", "run", "scripts", "test", "Fine", "report",
    "review", "Review", "change", "Look", "it", "at", "twice", "Is", "good", "flowchart", "TD",
    "Build", "Check", "News", "Stuck", "The", "Write", "backups", "is", "minutes", "written",
    "Writes", "weekly", "nope", "wizard", "nobody", "zzz", "lacking",
})  # fmt: skip
"""Words of the people, tasks and skills in the samples: nobody translates these."""

MORE = (
    "/model auto", "/model opus", "/model nope", "/backend nope", "/backend offline",
    "/persona poet", "/persona show poet", "/persona wizard", "/run --persona poet",
    "/queue wait", "/queue nope", "/skill show weekly-report", "/skill show test",
    "/skill enable weekly-report", "/skill nope", "/skill disable test", "/tools revoke 9",
    "/tools log k3m9qa", "/transcript nope", "/transcript 5e5", "/get k3m9qa", "/logs k3m9qa",
    "/approve ap7x2k", "/reject ap7x2k", "/people remove ann", "/people demote ann",
    "/people remove nobody", "/pair nope", "/language zh", "/stop k3m9qa", "/pause k3m9qa",
    "/workflow show review", "/workflow run review x=1", "/workflow run nope",
    "/workflow validate x: broken", "/workflow validate x: good", "/workflow delete review",
    "/workflow save test k3m9qa", "/workflow save test x: good", "/workflow save review x: good",
    "/workflow save test x: broken", "/workflow delete review yes",
    "/approve zzz", "/priority k3m9qa nope", "/cost nope", "/nope",
)  # fmt: skip


def a_desk() -> RouterHarness:
    desk = RouterHarness(make_task(), language=Language.CHINESE)
    builtin = make_listed_skill("test")
    desk.world.skills.listed = [
        make_listed_skill(state=SkillState.CHANGED),
        replace(builtin, skill=replace(builtin.skill, source=SkillSource.BUILTIN)),
        make_listed_skill(
            "lacking", missing_requirements=(MissingRequirement(key="bins", names=("`jq`",)),)
        ),
    ]
    fault = SkillNote(key="no_description")
    desk.world.skills.bad = [
        InvalidSkill(name="bad", source=SkillSource.USER, path="/skills/bad", errors=(fault,))
    ]
    desk.world.approvals.all["ap7x2k"] = a_request()
    return desk


def a_request() -> Approval:
    payload = {"tool": "exec", "why": build_reason("no_sandbox").to_json(), "pattern": "`make`"}
    return replace(make_approval(kind=ApprovalKind.TOOL), payload=payload)


@pytest.mark.parametrize("asker", [OWNER, GROUP], ids=["owner", "member in a group"])
@pytest.mark.parametrize("said", [*(f"/{each.name}" for each in COMMANDS), *MORE])
async def test_what_is_said_to_a_command_is_chinese(said: str, asker: dict[str, Any]) -> None:
    reply = await a_desk().send_message(said, **asker)

    assert foreign_words(reply.toast, SAMPLES) == set()
    assert reply.card is None or foreign_words_on(reply.card, SAMPLES) == set()
