"""Named workflows: dropped in as files, run by a form, kept from finished work; and in a shell."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.journeys.model_world import (
    ModelWorld,
    ask,
    label_with,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
)
from tests.journeys.program import ShiftbossProcess
from tests.journeys.web_page import open_web_page
from tests.thoroughness import thorough_only

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
DEAD_END = """\
name: Dead end
inputs:
  - {name: n, title: How many, type: number}
nodes:
  - {id: half, type: script, script: {expression: "inputs.n / 2", outputVar: half}}
  - {id: big, type: condition, name: Is it big enough}
  - {id: up, type: assign, assign: {assignments: [{variable: word, value: big}]}}
edges:
  - {from: half, to: big}
  - {from: big, to: up, condition: "variables.half > 10"}
outputs:
  word: variables.word
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
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(tmp_path_factory.mktemp("home"), "openai") as made:
        yield made


def write_workflow(home: Path, name: str, text: str) -> Path:
    folder = home / "workflows"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@on_the_world
async def test_a_new_workflow_file_is_listed_asks_for_inputs_in_a_form_and_runs(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    write_workflow(world.program.home, "report.yaml", REPORT)
    world.script.script("Tell of otters", "step", step_reply("Otters hold hands."))

    await ask(boss, chat, "/workflow list", "report", "needs topic, size")
    await ask(boss, chat, "/workflow show report", "Subject", "short / long")
    await wait_for_message(chat, "Plan diagram")
    form = await ask(boss, chat, "/workflow run report topic=otters", "To start report, fill in")
    await boss.says(chat, "Length: huge", reply_to=form)
    await chat.wait_until(lambda: "must be one of short / long" in form.text)
    await boss.says(chat, "Length: short", reply_to=form)

    ended = await wait_for_message(chat, "said: Otters hold hands.", "n: 12")
    assert "report started" in form.text
    assert "Weekly report: otters" in ended.text
    assert world.script.requests_for("otters", "plan") == []
    (asked,) = world.script.requests_for("Tell of otters", "step")
    assert "Tell of otters, short" in asked.last_text


@thorough_only
@on_the_world
async def test_a_form_on_feishu_starts_a_workflow(world: ModelWorld) -> None:
    boss, chat = world.feishu_owner, world.feishu_chat
    write_workflow(world.program.home, "report.yaml", REPORT)
    world.script.script("Tell of badgers", "step", step_reply("Badgers dig."))

    await boss.says(chat, "/workflow run report")
    form = await chat.wait_for(lambda m: "fill in:" in m.text)
    await boss.presses(form, label_with(form.buttons, "Start"), topic="badgers", size="short")

    await chat.wait_for(lambda m: "said: Badgers dig." in m.text)


@on_the_world
async def test_a_broken_workflow_file_lists_all_its_errors_until_it_is_fixed(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    path = write_workflow(world.program.home, "broken.yaml", BROKEN)

    faults = ("first.type", "again.loop.condition", "again.loop.bodyNodes", "nowhere")
    await ask(boss, chat, "/workflow list", "broken.yaml", *faults)
    await ask(boss, chat, "/workflow run broken", "can't be run", *faults)
    path.write_text(ASKS, encoding="utf-8")

    await ask(boss, chat, "/workflow validate broken", "can be run")


@on_the_world
async def test_a_finished_tasks_plan_is_saved_and_run_again_without_planning(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    world.script.script("kettles", "plan", plan_reply("Look into it", "Write it up"))
    world.script.script("kettles", "step", step_reply("Kettles are done."))
    await boss.says(chat, "/run tell me of kettles")
    ended = await chat.wait_for(lambda m: any("Save as" in each for each in m.buttons))

    await boss.presses(ended, label_with(ended.buttons, "Save as workflow"))
    form = await wait_for_message(chat, "can be run again")
    await boss.says(chat, "kettle-round", reply_to=form)
    await chat.wait_until(lambda: "Saved as workflow kettle-round" in form.text)
    known = {message.id for message in chat.from_bot}
    await boss.says(chat, "/workflow run kettle-round")

    await chat.wait_for(
        lambda m: m.id not in known and any("Save as" in each for each in m.buttons)
    )
    assert len(world.script.requests_for("kettles", "plan")) == 1
    assert len(world.script.requests_for("kettles", "step")) == 4


@on_the_world
async def test_a_workflow_sent_as_a_file_is_saved_shown_and_deleted_by_button(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.sends_document(chat, "w.yaml", ASKS.encode(), "/workflow save sent-one")
    await wait_for_message(chat, "Saved as workflow sent-one")

    await ask(boss, chat, "/workflow save sent-one\n" + SUMS, "--replace sent-one")
    card = await ask(boss, chat, "/workflow delete sent-one", "Delete workflow sent-one?")
    await boss.presses(card, label_with(card.buttons, "Delete"))
    await chat.wait_until(lambda: "deleted." in card.text)

    assert not (world.program.home / "workflows" / "sent-one.yaml").exists()


@on_the_world
async def test_the_web_chat_shows_the_drawing_as_a_picture(world: ModelWorld) -> None:
    write_workflow(world.program.home, "drawn.yaml", REPORT)

    async with open_web_page(world.program) as page:
        await page.send_message("/workflow show drawn")
        shown = await page.next_frame("", '.svg" alt=')

    assert '<img src="/files/workflows/' in shown["html"]


@on_the_world
async def test_a_dead_end_is_repaired_by_a_run_from_an_earlier_node(world: ModelWorld) -> None:
    write_workflow(world.program.home, "dead-end.yaml", DEAD_END)

    async with open_web_page(world.program) as page:
        await page.send_message("/workflow run dead-end n=1")
        failed = await page.next_frame("", "big enough")
        task_id = re.search(r"<code>(\w{6})</code>", failed["html"])
        assert task_id is not None
        await page.send_message(f"/retry {task_id[1]}")
        await page.next_frame("", "would end the same way")
        await page.send_message(f"/rerun {task_id[1]} half n=40 nobody=1")
        await page.next_frame("", "no input")
        await page.send_message(f"/rerun {task_id[1]} half n=40")
        await page.next_frame("", "Running again from half")
        await page.next_frame("", "word: big")
        await page.send_message(f"/steps {task_id[1]}")
        steps = await page.next_frame("", "Plan and run")
        write_workflow(world.program.home, "dead-end.yaml", DEAD_END.replace("/ 2", "/ 4"))
        await page.send_message(f"/diff {task_id[1]}")
        diff = await page.next_frame("", "one change")

    assert steps["html"].count('<img src="/files/workflows/') >= 1
    assert "100" in steps["html"]
    assert "inputs.n / 4" in diff["html"]


def stopped_program(home: Path) -> ShiftbossProcess:
    """A home on which no program runs."""
    home.mkdir()
    return ShiftbossProcess(home=home, settings={"SHIFTBOSS_LOG_LEVEL": "ERROR"})


async def run_json(shiftboss: ShiftbossProcess, *typed: str) -> tuple[int, Any]:
    """The exit status, and what the command says with --json."""
    status, printed = await shiftboss.run_to_end("workflow", *typed, "--json")
    return status, json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0]


async def test_the_command_line_checks_shows_runs_and_evaluates(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    write_workflow(shiftboss.home, "sums.yaml", SUMS)
    (tmp_path / "bad.yaml").write_text(BROKEN, encoding="utf-8")

    status, bad = await run_json(shiftboss, "validate", str(tmp_path / "bad.yaml"))
    assert status == 1
    assert {"first", "again"} <= {each["location"] for each in bad["diagnostics"]}
    assert (await run_json(shiftboss, "show", "sums"))[1]["mermaid"].startswith("flowchart")
    status, worked = await run_json(shiftboss, "eval", "n * 2", "--scope", '{"n": 21}')
    assert (status, worked) == (0, {"value": 42, "type": "number"})


async def test_the_command_line_deletes_a_workflow_and_a_rollback_brings_it_back(
    tmp_path: Path,
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    source = tmp_path / "sums.yaml"
    source.write_text(SUMS, encoding="utf-8")
    await shiftboss.run_to_end("workflow", "save", "sums", str(source))
    file = shiftboss.home / "workflows" / "sums.yaml"

    await shiftboss.run_to_end("workflow", "delete", "sums")
    assert file.exists()
    await shiftboss.run_to_end("workflow", "delete", "sums", "--yes")
    assert not file.exists()
    await shiftboss.run_to_end("workflow", "rollback", "sums", "1")
    assert file.read_text(encoding="utf-8") == SUMS


async def test_the_command_line_runs_a_workflow_and_prints_every_step(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    write_workflow(shiftboss.home, "sums.yaml", SUMS)
    # What waits in the queue is not touched by it.
    await shiftboss.run_to_end("task", "add", "Something else")

    status, ran = await run_json(shiftboss, "run", "sums", "--input", "n=7")

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


async def test_the_command_line_says_for_whom_a_workflow_waits(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    (tmp_path / "ask.yaml").write_text(ASKS, encoding="utf-8")

    status, ran = await run_json(shiftboss, "run", str(tmp_path / "ask.yaml"))

    assert status == 3
    assert [each["title"] for each in ran["waits_for"]] == ["Is it good?"]
    assert [each["title"] for each in ran["nodes"] if each["state"] == "waiting"] == ["Is it good?"]


@thorough_only
async def test_the_command_line_waits_until_a_human_step_times_out(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    (tmp_path / "late.yaml").write_text(NOBODY_COMES, encoding="utf-8")

    status, ran = await run_json(shiftboss, "run", str(tmp_path / "late.yaml"))

    assert status == 0
    assert (ran["outputs"], ran["waits_for"]) == ({"counted": True}, [])
    never = next(each for each in ran["nodes"] if each["node"] == "never")
    assert "expired" in never["output"]["error"]


async def test_the_command_line_finishes_all_other_steps_before_it_reports_a_wait(
    tmp_path: Path,
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    (tmp_path / "two.yaml").write_text(BRANCHES, encoding="utf-8")

    status, ran = await run_json(shiftboss, "run", str(tmp_path / "two.yaml"))

    assert status == 3
    assert [each["title"] for each in ran["waits_for"]] == ["Is it good?"]
    states = {each["node"]: each["state"] for each in ran["nodes"]}
    assert (states["rest"], states["up"]) == ("done", "done")
