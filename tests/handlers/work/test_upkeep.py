"""/done, /phase, /block, /interrupt, /token, /update, /delete and /search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.records.tasks import Priority, TaskStatus
from tests.handlers.desk import Desk, text_of
from tests.samples import a_task

RUNNING = a_task(status=TaskStatus.RUNNING)
URGENT = a_task("u9", title="Fire", priority=Priority.URGENT)


@pytest.mark.parametrize(
    ("said", "summary", "forced"),
    [
        ("", "", False),
        ("-s all is well", "all is well", False),
        ('-s "all is well" --force', "all is well", True),
        ("--force -s all is well", "all is well", True),
        ("-s all is well —force --tokens-now 1,200", "all is well", True),
        ("all is well", "all is well", False),
    ],
)
async def test_done_takes_its_flags_in_any_order(said: str, summary: str, forced: bool) -> None:
    desk = Desk(RUNNING)

    reply = await desk.say(f"/done k3m {said}")

    assert desk.world.notebook.told == [("done", "k3m9qa", summary)]
    assert desk.world.notebook.forced == [forced]
    assert "Finished" in text_of(reply)
    assert ("1.2k tokens" in text_of(reply)) is ("1,200" in said)
    assert reply.data is not None
    assert reply.data["status"] == "completed"


async def test_done_warns_of_a_plan_and_a_milestone_never_kept() -> None:
    text = text_of(await Desk(replace(RUNNING, graph_version=0)).say("/done k3m"))

    assert "never had a plan" in text
    assert "No milestone" in text


async def test_done_twice_says_so() -> None:
    text = text_of(await Desk(a_task(status=TaskStatus.COMPLETED)).say("/完成 k3m", hint="en"))

    assert "finished before" in text


async def test_done_before_it_began_needs_force() -> None:
    desk = Desk(a_task())

    refused, forced = await desk.say("/done k3m"), await desk.say("/done k3m --force")

    assert not refused.good
    assert "/done k3m9qa --force" in text_of(refused)
    assert "Finished" in text_of(forced)


async def test_a_phase_is_kept_and_says_what_is_more_important() -> None:
    desk = Desk(RUNNING)
    calm = text_of(await desk.say("/phase k3m half way"))
    desk.world.notebook.tasks = [URGENT]

    reply = await desk.say("/phase k3m nearly there")

    assert "keep going" in calm
    assert "half way" in calm
    assert "Fire" in text_of(reply)
    assert "/interrupt k3m9qa" in text_of(reply)
    assert reply.data is not None
    assert (reply.data["stage"], reply.data["urgent"]["id"]) == ("nearly there", "u9")


async def test_blocking_what_shiftboss_works_on_says_what_to_do_instead() -> None:
    refused = await Desk(RUNNING).say("/block k3m no key")

    assert not refused.good
    assert "/pause k3m9qa" in text_of(refused)
    assert "/block k3m9qa" in text_of(refused)


async def test_blocking_interrupting_and_deleting_say_what_they_did() -> None:
    desk = Desk(replace(RUNNING, outside=True))

    texts = [
        text_of(await desk.say(said))
        for said in ("/block k3m no key", "/interrupt k3m at the gate", "/delete k3m")
    ]

    parts = ("no key", "at the gate", "Deleted")
    assert all(part in text for part, text in zip(parts, texts, strict=True))
    assert [told[0] for told in desk.world.notebook.told] == ["block", "interrupt", "delete"]


async def test_tokens_are_counted_from_a_whole_number() -> None:
    desk = Desk(RUNNING)

    good, bad = await desk.say("/token k3m 12,000"), await desk.say("/token k3m many")

    assert desk.world.notebook.told == [("tokens", "k3m9qa", "12000")]
    assert good.good
    assert "Not a number: many" in text_of(bad)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("title Water all", "title Water all"),
        ("任务名称 浇花", "title 浇花"),
        ("原始指令 浇所有的花", "instruction 浇所有的花"),
        ("优先级 紧急", "priority 紧急"),
        ("stage testing", "stage testing"),
    ],
)
async def test_fields_have_names_in_both_languages(said: str, kept: str) -> None:
    desk = Desk(RUNNING)

    await desk.say(f"/update k3m {said}", hint="en")

    assert desk.world.notebook.told == [("amend", "k3m9qa", kept)]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/update k3m colour red", "No such field: colour"),
        ("/update k3m priority soon", "priority cannot be soon"),
        ("/update k3m", "/update id field value"),
        ("/phase k3m", "/phase id text"),
        ("/block k3m", "/block id reason"),
        ("/interrupt k3m", "/interrupt id note"),
        ("/token k3m", "/token id n"),
        ("/delete", "/delete id"),
        ("/done", "/done id"),
        ("/search", "/search words"),
    ],
)
async def test_what_is_missing_or_wrong_is_said(said: str, told: str) -> None:
    desk = Desk(RUNNING)

    reply = await desk.say(said)

    assert told in text_of(reply)
    assert not reply.good
    assert desk.world.notebook.told == []


async def test_a_search_lists_tasks_with_their_ids() -> None:
    desk = Desk(RUNNING)
    desk.world.notebook.tasks = [RUNNING]

    found, none = await desk.say("/search plants"), await desk.say("/搜索 elephants", hint="en")

    assert "k3m9qa" in text_of(found)
    assert found.data is not None
    assert [task["id"] for task in found.data["tasks"]] == ["k3m9qa"]
    assert "No task" in text_of(none)
