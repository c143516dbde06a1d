"""/done, /phase, /block, /interrupt, /token, /update, /delete and /search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.records.tasks import TaskPriority, TaskStatus
from tests.builders import make_task
from tests.handlers.router_harness import RouterHarness, text_of

RUNNING = make_task(status=TaskStatus.RUNNING)
URGENT = make_task("u9", title="Fire", priority=TaskPriority.URGENT)


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
    desk = RouterHarness(RUNNING)

    reply = await desk.send_message(f"/done k3m {said}")

    assert desk.world.notebook.calls == [("done", "k3m9qa", summary)]
    assert desk.world.notebook.forced == [forced]
    assert "Finished" in text_of(reply)
    assert ("1.2k tokens" in text_of(reply)) is ("1,200" in said)
    assert reply.data is not None
    assert reply.data["status"] == "completed"


async def test_done_warns_of_a_plan_and_a_milestone_never_kept() -> None:
    text = text_of(await RouterHarness(replace(RUNNING, graph_version=0)).send_message("/done k3m"))

    assert "had no plan" in text
    assert "No milestone" in text


async def test_done_twice_says_so() -> None:
    text = text_of(
        await RouterHarness(make_task(status=TaskStatus.COMPLETED)).send_message(
            "/完成 k3m", hint="en"
        )
    )

    assert "already finished" in text


async def test_done_before_it_began_needs_force() -> None:
    desk = RouterHarness(make_task())

    refused, forced = (
        await desk.send_message("/done k3m"),
        await desk.send_message("/done k3m --force"),
    )

    assert not refused.good
    assert "/done k3m9qa --force" in text_of(refused)
    assert "Finished" in text_of(forced)


async def test_a_phase_is_kept_and_says_what_is_more_important() -> None:
    desk = RouterHarness(RUNNING)
    calm = text_of(await desk.send_message("/phase k3m half way"))
    desk.world.notebook.tasks = [URGENT]

    reply = await desk.send_message("/phase k3m nearly there")

    assert "Keep going" in calm
    assert "half way" in calm
    assert "Fire" in text_of(reply)
    assert "/interrupt k3m9qa" in text_of(reply)
    assert reply.data is not None
    assert (reply.data["stage"], reply.data["urgent"]["id"]) == ("nearly there", "u9")


async def test_blocking_what_shiftboss_works_on_says_what_to_do_instead() -> None:
    refused = await RouterHarness(RUNNING).send_message("/block k3m no key")

    assert not refused.good
    assert "/pause k3m9qa" in text_of(refused)
    assert "/block k3m9qa" in text_of(refused)


async def test_blocking_interrupting_and_deleting_say_what_they_did() -> None:
    desk = RouterHarness(replace(RUNNING, outside=True))

    texts = [
        text_of(await desk.send_message(said))
        for said in ("/block k3m no key", "/interrupt k3m at the gate", "/delete k3m")
    ]

    parts = ("no key", "at the gate", "Deleted")
    assert all(part in text for part, text in zip(parts, texts, strict=True))
    assert [told[0] for told in desk.world.notebook.calls] == ["block", "interrupt", "delete"]


async def test_tokens_are_counted_from_a_whole_number() -> None:
    desk = RouterHarness(RUNNING)

    good, bad = (
        await desk.send_message("/token k3m 12,000"),
        await desk.send_message("/token k3m many"),
    )

    assert desk.world.notebook.calls == [("tokens", "k3m9qa", "12000")]
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
    desk = RouterHarness(RUNNING)

    await desk.send_message(f"/update k3m {said}", hint="en")

    assert desk.world.notebook.calls == [("amend", "k3m9qa", kept)]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/update k3m colour red", "No such field: colour"),
        ("/update k3m priority soon", "Can't set priority to soon"),
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
    desk = RouterHarness(RUNNING)

    reply = await desk.send_message(said)

    assert told in text_of(reply)
    assert not reply.good
    assert desk.world.notebook.calls == []


async def test_a_search_lists_tasks_with_their_ids() -> None:
    desk = RouterHarness(RUNNING)
    desk.world.notebook.tasks = [RUNNING]

    found, none = (
        await desk.send_message("/search plants"),
        await desk.send_message("/搜索 elephants", hint="en"),
    )

    assert "k3m9qa" in text_of(found)
    assert found.data is not None
    assert [task["id"] for task in found.data["tasks"]] == ["k3m9qa"]
    assert "No matching tasks" in text_of(none)
