"""Named workflows: dropped in as files, run by a form, kept from finished work; and in a shell."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.people import User
from tests.journeys.model_world import (
    PATIENCE,
    World,
    done,
    label_with,
    shows,
    steps,
    told,
    web_page,
    world,
)
from tests.journeys.program import Program
from tests.thorough import long

REPORT = """\
name: Weekly report
description: A report about one subject.
inputs:
  - {name: topic, title: Subject}
  - {name: size, title: Length, type: choice, options: [short, long]}
nodes:
  - {id: write, type: task, name: "Tell of {{inputs.topic}}, {{inputs.size}}"}
  - {id: twice, type: script, script: {expression: "len(inputs.topic) * 2", outputVar: n}}
edges:
  - {from: write, to: twice}
outputs:
  said: outputs.write.summary
  n: variables.n
"""
BROKEN = """\
name: Broken
nodes:
  - {id: first, type: banana}
  - {id: again, type: loop, loop: {type: while, condition: "1 +", bodyNodes: [nobody]}}
edges:
  - {from: first, to: nowhere}
"""
SUMS = """\
name: Sums
inputs:
  - {name: n, title: How many, type: number}
nodes:
  - {id: add, type: script, script: {expression: "inputs.n * 2", outputVar: twice}}
  - {id: rest, type: delay, delay: {value: 0.2, unit: s}}
  - {id: big, type: condition}
  - {id: up, type: assign, assign: {assignments: [{variable: word, value: big}]}}
  - {id: down, type: assign, assign: {assignments: [{variable: word, value: small}]}}
edges:
  - {from: add, to: rest}
  - {from: rest, to: big}
  - {from: big, to: up, condition: "variables.twice > 10"}
  - {from: big, to: down}
outputs:
  twice: variables.twice
  word: variables.word
"""
ASKS = """\
name: Ask
nodes:
  - {id: ok, type: human, name: "Is it good?"}
"""
NOBODY_COMES = """\
name: Nobody comes
nodes:
  - {id: soon, type: human, name: "Is it good?", human: {timeout: 1, autoApprove: true}}
  - {id: rest, type: delay, delay: 0.2s}
  - {id: never, type: human, name: "Is it bad?", human: {timeout: 1}, onError: continue}
outputs:
  counted: outputs.soon.approved
"""
BRANCHES = """\
name: Branches
nodes:
  - {id: all, type: parallel}
  - {id: rest, type: delay, delay: 1s}
  - {id: up, type: assign, assign: {assignments: [{variable: word, value: rested}]}}
  - {id: ok, type: human, name: "Is it good?"}
edges:
  - {from: all, to: rest}
  - {from: rest, to: up}
  - {from: all, to: ok}
settings: {timeout: 2h}
"""

on_the_world = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    async with world(tmp_path_factory.mktemp("home"), "openai") as made:
        yield made


def put(home: Path, name: str, text: str) -> Path:
    folder = home / "workflows"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


async def ask(
    who: User, chat: Chat, text: str, *expects: str, reply_to: Message | None = None
) -> Message:
    """What is said to this, with these words in it."""
    known = {message.id for message in chat.from_bot}
    await who.says(chat, text, reply_to=reply_to)
    return await chat.wait_for(lambda m: m.id not in known and shows(m, *expects), PATIENCE)


@on_the_world
async def test_a_file_dropped_in_is_listed_asked_for_by_a_form_and_runs_to_its_end(
    place: World,
) -> None:
    boss, chat = place.boss()
    put(place.shiftboss.home, "report.yaml", REPORT)
    place.stage.on("Tell of otters", "step", done("Otters hold hands."))

    await ask(boss, chat, "/workflow list", "report", "asks for topic, size")
    await ask(boss, chat, "/workflow show report", "Subject", "short / long", "flowchart")
    form = await ask(boss, chat, "/workflow run report topic=otters", "Before report can start")
    await boss.says(chat, "Length: huge", reply_to=form)
    await chat.wait_until(lambda: "must be one of short / long" in form.text, timeout=PATIENCE)
    await boss.says(chat, "Length: short", reply_to=form)

    ended = await told(chat, "said: Otters hold hands.", "n: 12")
    assert "has started" in form.text
    assert "Weekly report: otters" in ended.text
    assert place.stage.heard("otters", "plan") == []
    (asked,) = place.stage.heard("Tell of otters", "step")
    assert "Tell of otters, short" in asked.last


@long
@on_the_world
async def test_a_form_on_feishu_starts_it_too(place: World) -> None:
    boss, chat = place.feishu_boss, place.feishu_chat
    put(place.shiftboss.home, "report.yaml", REPORT)
    place.stage.on("Tell of badgers", "step", done("Badgers dig."))

    await boss.says(chat, "/workflow run report")
    form = await chat.wait_for(lambda m: "can start:" in m.text, timeout=PATIENCE)
    await boss.presses(form, label_with(form.buttons, "Start"), topic="badgers", size="short")

    await chat.wait_for(lambda m: "said: Badgers dig." in m.text, timeout=PATIENCE)


@on_the_world
async def test_a_broken_file_is_told_with_all_its_faults_until_it_is_mended(place: World) -> None:
    boss, chat = place.boss()
    path = put(place.shiftboss.home, "broken.yaml", BROKEN)

    faults = ("first.type", "again.loop.condition", "again.loop.bodyNodes", "nowhere")
    await ask(boss, chat, "/workflow list", "broken.yaml", *faults)
    await ask(boss, chat, "/workflow run broken", "cannot be run", *faults)
    path.write_text(ASKS, encoding="utf-8")

    await ask(boss, chat, "/workflow validate broken", "can be run")


@on_the_world
async def test_a_finished_tasks_plan_is_kept_and_run_again_without_planning(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("kettles", "plan", steps("Look into it", "Write it up"))
    place.stage.on("kettles", "step", done("Kettles are done."))
    await boss.says(chat, "/run tell me of kettles")
    ended = await chat.wait_for(lambda m: any("Save as" in each for each in m.buttons), PATIENCE)

    await boss.presses(ended, label_with(ended.buttons, "Save as workflow"))
    form = await told(chat, "Keep as a workflow")
    await boss.says(chat, "kettle-round", reply_to=form)
    await chat.wait_until(lambda: "Kept as workflow kettle-round" in form.text, timeout=PATIENCE)
    known = {message.id for message in chat.from_bot}
    await boss.says(chat, "/workflow run kettle-round")

    await chat.wait_for(
        lambda m: m.id not in known and any("Save as" in each for each in m.buttons), PATIENCE
    )
    assert len(place.stage.heard("kettles", "plan")) == 1
    assert len(place.stage.heard("kettles", "step")) == 4


@on_the_world
async def test_a_file_that_is_sent_is_kept_shown_and_deleted_by_a_button(place: World) -> None:
    boss, chat = place.boss()
    await boss.sends_document(chat, "w.yaml", ASKS.encode(), "/workflow save sent-one")
    await told(chat, "Kept as workflow sent-one")

    await ask(boss, chat, "/workflow save sent-one\n" + SUMS, "--replace sent-one")
    card = await ask(boss, chat, "/workflow delete sent-one", "Delete workflow sent-one?")
    await boss.presses(card, label_with(card.buttons, "Delete"))
    await chat.wait_until(lambda: "is deleted" in card.text, timeout=PATIENCE)

    assert not (place.shiftboss.home / "workflows" / "sent-one.yaml").exists()


@on_the_world
async def test_the_web_chat_shows_the_drawing_as_a_picture(place: World) -> None:
    put(place.shiftboss.home, "drawn.yaml", REPORT)

    async with web_page(place.shiftboss) as page:
        await page.says("/workflow show drawn")
        shown = await page.frame("", '.svg" alt=')

    assert '<img src="/files/workflows/' in shown["html"]


def alone(home: Path) -> Program:
    """A home on which no program runs."""
    home.mkdir()
    return Program(home=home, settings={"SHIFTBOSS_LOG_LEVEL": "ERROR"})


async def said(shiftboss: Program, *typed: str) -> tuple[int, Any]:
    """The exit status, and what the command says with --json."""
    status, printed = await shiftboss.run_to_end("workflow", *typed, "--json")
    return status, json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0]


async def test_a_shell_checks_shows_runs_and_works_out(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    put(shiftboss.home, "sums.yaml", SUMS)
    (tmp_path / "bad.yaml").write_text(BROKEN, encoding="utf-8")

    status, bad = await said(shiftboss, "validate", str(tmp_path / "bad.yaml"))
    assert status == 1
    assert {"first", "again"} <= {fault["where"] for fault in bad["faults"]}
    assert (await said(shiftboss, "show", "sums"))[1]["mermaid"].startswith("flowchart")
    status, worked = await said(shiftboss, "eval", "n * 2", "--scope", '{"n": 21}')
    assert (status, worked) == (0, {"value": 42, "type": "number"})


async def test_a_shell_runs_a_workflow_to_its_end_and_tells_all_of_it(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    put(shiftboss.home, "sums.yaml", SUMS)
    # What waits in the queue is not touched by it.
    await shiftboss.run_to_end("task", "add", "Something else")

    status, ran = await said(shiftboss, "run", "sums", "--input", "n=7")

    assert status == 0
    assert ran["task"]["status"] == "completed"
    assert ran["outputs"] == {"twice": 14, "word": "big"}
    states = {each["node"]: each["state"] for each in ran["nodes"]}
    assert (states["add"], states["up"], states["down"]) == ("done", "done", "skipped")
    assert {"workflow", "node"} <= {each["kind"] for each in ran["spans"]}
    listed = json.loads((await shiftboss.run_to_end("task", "list", "--json"))[1])
    assert [(each["title"], each["status"]) for each in listed["tasks"]] == [
        ("Something else", "pending")
    ]


async def test_a_shell_says_for_whom_a_workflow_waits(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    (tmp_path / "ask.yaml").write_text(ASKS, encoding="utf-8")

    status, ran = await said(shiftboss, "run", str(tmp_path / "ask.yaml"))

    assert status == 3
    assert [each["title"] for each in ran["waits_for"]] == ["Is it good?"]


@long
async def test_a_shell_waits_out_the_time_that_people_are_given(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    (tmp_path / "late.yaml").write_text(NOBODY_COMES, encoding="utf-8")

    status, ran = await said(shiftboss, "run", str(tmp_path / "late.yaml"))

    assert status == 0
    assert (ran["outputs"], ran["waits_for"]) == ({"counted": True}, [])
    never = next(each for each in ran["nodes"] if each["node"] == "never")
    assert "nobody" in never["output"]["error"].lower()


async def test_a_shell_does_all_that_needs_nobody_before_it_says_for_whom_it_waits(
    tmp_path: Path,
) -> None:
    shiftboss = alone(tmp_path / "home")
    (tmp_path / "two.yaml").write_text(BRANCHES, encoding="utf-8")

    status, ran = await said(shiftboss, "run", str(tmp_path / "two.yaml"))

    assert status == 3
    assert [each["title"] for each in ran["waits_for"]] == ["Is it good?"]
    states = {each["node"]: each["state"] for each in ran["nodes"]}
    assert (states["rest"], states["up"]) == ("done", "done")
