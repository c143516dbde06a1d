"""/log: kept with its flags, warned of, listed and found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.records.task_logs import LogKind, LogMatch
from storage.records.tasks import TaskStatus
from tests.builders import make_task
from tests.handlers.router_harness import RouterHarness, text_of

RUNNING = make_task(status=TaskStatus.RUNNING)
UNPLANNED = replace(RUNNING, graph_version=0)


async def test_a_log_is_kept_with_its_flags_wherever_they_stand() -> None:
    desk = RouterHarness(RUNNING)

    reply = await desk.send_message(
        '/log k3m --phase "phase two" finding --attempt 3 it is  green, @ann'
    )

    (jotting,) = desk.world.notebook.jottings
    assert (jotting.kind, jotting.text) == (LogKind.FINDING, "it is  green, @ann")
    assert (jotting.stage, jotting.attempt) == ("phase two", 3)
    assert "Finding saved · log 1" in text_of(reply)
    assert reply.data is not None
    assert (reply.data["kind"], reply.data["task"]) == ("finding", "k3m9qa")


@pytest.mark.parametrize(
    ("word", "kind"),
    [("发现", LogKind.FINDING), ("错误", LogKind.ERROR), ("里程碑", LogKind.MILESTONE)],
)
async def test_kinds_may_be_named_in_chinese(word: str, kind: LogKind) -> None:
    desk = RouterHarness(RUNNING)

    await desk.send_message(f"/记录 k3m {word} 接口只收 JSON")

    assert [(j.kind, j.text) for j in desk.world.notebook.jottings] == [(kind, "接口只收 JSON")]


async def test_a_text_of_several_lines_stays_as_it_is() -> None:
    desk = RouterHarness(RUNNING)

    await desk.send_message("/log k3m finding\nfirst\n\n  second")

    assert desk.world.notebook.jottings[0].text == "first\n\n  second"


async def test_a_file_sent_along_needs_no_words() -> None:
    desk = RouterHarness(RUNNING)

    await desk.send_message("/log k3m resource", files=("files/in/1/plan.pdf",))

    (jotting,) = desk.world.notebook.jottings
    assert (jotting.text, jotting.attachments) == ("plan.pdf", ("files/in/1/plan.pdf",))


async def test_what_is_amiss_is_said_with_the_log() -> None:
    desk = RouterHarness(UNPLANNED)

    text = text_of(await desk.send_message("/log k3m finding " + "x" * 501))

    assert "/plan k3m9qa" in text
    assert "500 characters" in text


async def test_errors_are_counted_aloud_and_the_third_asks_for_another_way() -> None:
    desk = RouterHarness(replace(RUNNING, errors=1))
    desk.world.tasks.tasks[RUNNING.id] = replace(RUNNING, errors=1)
    second = text_of(await desk.send_message("/log k3m error boom"))
    desk.world.tasks.tasks[RUNNING.id] = replace(RUNNING, errors=2)
    third = text_of(await desk.send_message("/log k3m error boom"))
    desk.world.tasks.tasks[RUNNING.id] = replace(RUNNING, errors=4)
    fifth = text_of(await desk.send_message("/log k3m error boom"))

    assert "2/5" in second
    assert "Change your approach" not in second
    assert "3/5" in third
    assert "Change your approach" in third
    assert "5/5" in fifth
    assert "needs a person" in fifth


async def test_the_tenth_log_shows_the_goal_again() -> None:
    desk = RouterHarness(replace(RUNNING, instruction="Water every plant"))

    texts = [text_of(await desk.send_message(f"/log k3m progress {n}")) for n in range(10)]

    assert ["Water every plant" in text for text in texts] == [False] * 9 + [True]


async def test_logs_are_listed_all_or_of_one_kind() -> None:
    desk = RouterHarness(RUNNING)
    await desk.send_message("/log k3m finding green")
    await desk.send_message("/log k3m error boom")

    every, errors = await desk.send_message("/log k3m"), await desk.send_message("/log k3m 错误")

    assert "green" in text_of(every)
    assert "boom" in text_of(every)
    assert "green" not in text_of(errors)
    assert errors.data is not None
    assert [entry["text"] for entry in errors.data["logs"]] == ["boom"]


async def test_a_search_tells_whose_log_it_found() -> None:
    desk = RouterHarness(RUNNING)
    await desk.send_message("/log k3m finding port 5433 is open")
    entry = desk.world.notebook.entries[0]
    desk.world.notebook.recalled = [LogMatch(task=RUNNING, entry=entry)]

    found, none = (
        await desk.send_message("/log search port open"),
        await desk.send_message("/记录 搜索 nothing"),
    )

    assert "port 5433" in text_of(found)
    assert "k3m9qa" in text_of(found)
    assert "No matching logs" in text_of(none)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/log", "/log id"),
        ("/log zzz finding x", "No such task"),
        ("/log k3m guess x", "No such log kind: guess"),
        ("/log k3m error --attempt two x", "Not a number: two"),
        ("/log k3m resource --file missing.txt x", "No such file: missing.txt"),
        ("/log search", "/log id"),
    ],
)
async def test_what_cannot_be_kept_is_refused_clearly(said: str, told: str) -> None:
    desk = RouterHarness(RUNNING)

    reply = await desk.send_message(said)

    assert told in text_of(reply)
    assert not reply.good
    assert desk.world.notebook.jottings == []


async def test_logs_shows_what_happened_as_before() -> None:
    desk = RouterHarness(RUNNING)

    assert "History of k3m9qa" in text_of(await desk.send_message("/logs k3m"))
    assert "History of k3m9qa" in text_of(await desk.send_message("/日志 k3m", hint="en"))


async def test_as_many_are_listed_as_are_asked_for() -> None:
    desk = RouterHarness(RUNNING)
    for n in range(4):
        await desk.send_message(f"/log k3m finding -- --last {n}")

    reply = await desk.send_message("/log k3m finding --last 2")

    assert reply.data is not None
    assert [entry["text"] for entry in reply.data["logs"]] == ["--last 2", "--last 3"]
    assert reply.data["total"] == 4
