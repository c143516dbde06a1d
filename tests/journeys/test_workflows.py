"""Each kind of node does what it is called, on Telegram, on Feishu in Chinese and on the web."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.emulators.telegram.chats import TelegramMessage
from tests.journeys.model_world import (
    ModelWorld,
    fill_form,
    held_reply,
    label_with,
    model_world,
    shows,
    step_reply,
    wait_for_message,
)
from tests.journeys.program_store import open_store
from tests.journeys.web_page import open_web_page
from tests.thoroughness import sampled

pytestmark = pytest.mark.asyncio(loop_scope="module")

FINISHED = "Task finished"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(tmp_path_factory.mktemp("home"), "openai") as made:
        yield made


def keep(world: ModelWorld, name: str, text: str) -> None:
    folder = world.program.home / "workflows"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def now(title: str) -> str:
    """How a worker is told which step is its own."""
    return f"Your step now: {title}"


def tries(world: ModelWorld, title: str) -> int:
    """How often the model was asked for that step."""
    return sum(
        bool(asked.user_texts) and now(title) in asked.user_texts[-1]
        for asked in world.script.requests
    )


def order(world: ModelWorld, *titles: str) -> list[str]:
    """These steps as the model was asked for them, the first time each."""
    begun: list[str] = []
    for asked in world.script.requests:
        last = asked.user_texts[-1] if asked.user_texts else ""
        begun += [title for title in titles if now(title) in last and title not in begun]
    return begun


REVIEW = """\
name: Review
nodes:
  - {id: start, type: start}
  - {id: draft, type: task, name: "draft the owl page"}
  - {id: review, type: task, name: "review the owl page"}
  - {id: good, type: condition}
  - {id: publish, type: task, name: "print the owl page"}
  - {id: end, type: end}
edges:
  - {from: start, to: draft}
  - {from: draft, to: review}
  - {from: review, to: good}
  - {from: good, to: publish, condition: "outputs.review.approved"}
  - {from: good, to: draft, maxLoops: 3, onLimit: fail}
  - {from: publish, to: end}
"""


async def test_a_review_node_repeats_the_step_until_it_approves(world: ModelWorld) -> None:
    """start, task, condition, an edge that leads back, end"""
    boss, chat = world.new_owner()
    keep(world, "owls", REVIEW)
    world.script.script(now("draft the owl page"), "step", step_reply("drafted"))
    said = deque(["too short. approved: false", "fine. approved: true"])

    def review(asked: ReceivedRequest) -> ScriptedReply:
        return step_reply(said.popleft())(asked)

    world.script.script(now("review the owl page"), "step", review)
    world.script.script(now("print the owl page"), "step", step_reply("the owls are printed"))

    await boss.says(chat, "/workflow run owls")

    await wait_for_message(chat, FINISHED, "the owls are printed")
    assert tries(world, "review the owl page") == 2


TYPED = """\
name: Typed review
nodes:
  - {id: draft, name: "draft the elk page"}
  - {id: review, name: "review the elk page", output: {approved: bool, notes: text}}
  - {id: fix, name: "mend the elk page: {{outputs.review.notes}}"}
  - {id: publish, name: "print the elk page"}
edges:
  - {from: draft, to: review}
  - {from: review, to: publish, condition: outputs.review.approved}
  - {from: review, to: fix}
  - {from: fix, to: review, maxLoops: 1, onLimit: fail}
"""


async def test_a_declared_output_is_asked_for_checked_and_decides(world: ModelWorld) -> None:
    """The first review forgets its output: it is told what is missing, in the same conversation."""
    boss, chat = world.new_owner()
    keep(world, "elks", TYPED)
    told = {"status": "done", "summary": "Seen. approved: true, I think."}
    said = deque(
        [
            fill_form(**told, output={"notes": "too short"}),
            fill_form(**told, output={"approved": "No", "notes": "too short"}),
            fill_form(**told, output={"approved": "yes", "notes": ""}),
        ]
    )
    reviews: list[ReceivedRequest] = []

    def review(asked: ReceivedRequest) -> ScriptedReply:
        reviews.append(asked)
        return said.popleft()(asked)

    world.script.script(now("draft the elk page"), "step", step_reply("drafted"))
    world.script.script(now("mend the elk page"), "step", step_reply("mended"))
    world.script.script(now("print the elk page"), "step", step_reply("the elks are printed"))
    world.script.script(now("review the elk page"), "step", review)

    await boss.says(chat, "/workflow run elks")

    await wait_for_message(chat, FINISHED, "the elks are printed")
    (form,) = [each for each in reviews[0].tools.values() if "status" in each["properties"]]
    assert "output" in form["required"]
    assert form["properties"]["output"]["properties"]["approved"] == {"type": "boolean"}
    assert "missing or wrong: approved (boolean)" in str(reviews[1].body)
    assert tries(world, "mend the elk page: too short") == 1
    assert len(reviews) == 3


UNCLEAR = """\
name: Unclear review
nodes:
  - {id: draft, name: "draft the yak page"}
  - {id: review, name: "review the yak page"}
  - {id: fix, name: "mend the yak page"}
  - {id: publish, name: "print the yak page"}
edges:
  - {from: draft, to: review}
  - {from: review, to: publish, condition: outputs.review.approved == true}
  - {from: review, to: fix}
  - {from: fix, to: review, maxLoops: 1, onLimit: fail}
"""


async def test_a_review_that_leaves_it_open_asks_and_uses_up_no_round(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    keep(world, "yaks", UNCLEAR)
    review = step_reply("Good structure, *weak* ending. I am torn about the yaks.")
    world.script.script(now("draft the yak page"), "step", step_reply("drafted"))
    world.script.script(now("review the yak page"), "step", review)
    world.script.script(now("mend the yak page"), "step", step_reply("mended"))
    world.script.script(now("print the yak page"), "step", step_reply("the yaks are printed"))
    await boss.says(chat, "/workflow run yaks")

    first = await wait_for_message(chat, "outputs.review.approved", "I am torn about the yaks")
    assert tries(world, "mend the yak page") == 0
    await boss.presses(first, label_with(first.buttons, "No"))
    await world.script.wait_for_request(now("review the yak page"), count=2)
    second = await chat.wait_for(
        lambda m: shows(m, "outputs.review.approved", "I am torn") and m.id != first.id
    )
    await boss.presses(second, label_with(second.buttons, "Yes"))

    await wait_for_message(chat, FINISHED, "the yaks are printed")
    assert tries(world, "mend the yak page") == 1


SUMS = """\
name: Sums
inputs:
  - {name: kind, title: Kind, type: text}
variables: {total: 0, log: ""}
nodes:
  - {id: pick, type: switch, switch: {expression: inputs.kind, defaultTarget: other,
     cases: [{value: big, targetNode: big}, {value: small, targetNode: small}]}}
  - {id: big, type: assign, assign: {assignments: [{variable: step, value: 10}]}}
  - {id: small, type: assign, assign: {assignments: [{variable: step, value: 1}]}}
  - {id: other, type: assign, assign: {assignments: [{variable: step, value: 5}]}}
  - {id: any, type: join, join: {mode: any}}
  - {id: count, type: loop, loop: {type: for, init: "1", end: "4", step: "1", loopVar: i,
     bodyNodes: [add]}}
  - {id: add, type: script, script: {expression: "variables.total + i * variables.step",
     outputVar: total}}
  - {id: grow, type: loop, loop: {type: while, condition: "variables.total < 70",
     maxIterations: 50, bodyNodes: [more]}}
  - {id: more, type: script, script: {expression: "variables.total + 7", outputVar: total}}
  - {id: once, type: loop, loop: {type: until, condition: "true", bodyNodes: [last]}}
  - {id: last, type: script, script: {expression: "variables.total * 2", outputVar: total}}
edges:
  - {from: pick, to: big}
  - {from: pick, to: small}
  - {from: pick, to: other}
  - {from: big, to: any}
  - {from: small, to: any}
  - {from: other, to: any}
  - {from: any, to: count}
  - {from: count, to: grow}
  - {from: grow, to: once}
outputs: {total: variables.total}
"""


@pytest.mark.parametrize(
    ("kind", "total"), [("odd", 142), ("big", 200), ("small", 146)][: sampled(3, 1)]
)
async def test_expressions_are_computed_without_a_worker(
    world: ModelWorld, kind: str, total: int
) -> None:
    """switch with a default, assign, script, join any, loops that count, test before and after"""
    boss, chat = world.new_owner()
    keep(world, "sums", SUMS)
    before = len(world.script.requests)

    await boss.says(chat, f"/workflow run sums kind={kind}")

    await wait_for_message(chat, FINISHED, f"total: {total}")
    assert len(world.script.requests) == before


LANES = """\
name: Lanes
settings: {maxParallel: 2}
nodes:
  - {id: fork, type: parallel}
  - {id: left, type: task, name: "dig the left tunnel"}
  - {id: right, type: task, name: "dig the right tunnel"}
  - {id: meet, type: join}
  - {id: out, type: task, name: "open both tunnels"}
edges:
  - {from: fork, to: left}
  - {from: fork, to: right}
  - {from: left, to: meet}
  - {from: right, to: meet}
  - {from: meet, to: out}
"""


async def test_branches_run_in_parallel_pause_together_and_join(world: ModelWorld) -> None:
    """parallel and join; pause and resume by button, and a step put in between"""
    boss, chat = world.new_owner()
    keep(world, "lanes", LANES)
    go = asyncio.Event()
    for side in ("left", "right"):
        world.script.script(
            now(f"dig the {side} tunnel"), "step", held_reply(step_reply(f"{side} dug"), go)
        )
    world.script.script(now("open both tunnels"), "step", step_reply("both are open"))

    await boss.says(chat, "/workflow run lanes")
    await world.script.wait_for_request(now("dig the left tunnel"))
    await world.script.wait_for_request(now("dig the right tunnel"))
    card = await chat.wait_for(lambda m: any("Pause" in each for each in m.buttons))
    await boss.presses(card, label_with(card.buttons, "Pause"))
    go.set()
    stopped = await chat.wait_for(lambda m: any("Resume" in each for each in m.buttons))
    assert not world.script.requests_for(now("open both tunnels"), "step")
    (task,) = re.findall(r"^(\w{6}) · ", stopped.text, re.MULTILINE)
    await boss.says(chat, f"/inject {task} sweep the tunnels")
    await chat.wait_until(lambda: "sweep the tunnels" in stopped.text)
    await boss.presses(stopped, label_with(stopped.buttons, "Resume"))

    await wait_for_message(chat, FINISHED)
    assert world.script.requests_for(now("open both tunnels"), "step")
    assert world.script.requests_for(now("sweep the tunnels"), "step")
    begun = ("dig the left tunnel", "dig the right tunnel", "open both tunnels")
    assert order(world, *begun)[-1] == "open both tunnels"


ITEMS = """\
name: Items
settings: {maxParallel: 3}
variables: {colours: [red, green, blue]}
nodes:
  - {id: each, type: foreach, foreach: {collection: variables.colours, itemVar: colour,
     mode: parallel, maxParallel: 3, bodyNodes: [mix]}}
  - {id: mix, type: task, name: "mix {{colour}} paint"}
  - {id: ship, type: foreach, onError: continue, foreach: {collection: variables.colours,
     bodyNodes: [send]}}
  - {id: send, type: task, name: "deploy {{item}} to production"}
edges:
  - {from: each, to: ship}
outputs:
  first: outputs.each.results[0].result
  last: outputs.each.results[2].result
"""


async def test_loop_items_run_in_parallel_report_in_order_and_ask_for_each_risky_one(
    world: ModelWorld,
) -> None:
    """foreach, parallel and one after the other; each risky item is asked about by its own words"""
    boss, chat = world.new_owner()
    keep(world, "items", ITEMS)
    gates = {colour: asyncio.Event() for colour in ("red", "green", "blue")}
    for colour, gate in gates.items():
        cue = now(f"mix {colour} paint")
        world.script.script(cue, "step", held_reply(step_reply(f"mixed {colour}"), gate))
        world.script.script(now(f"deploy {colour} to"), "step", step_reply(f"shipped {colour}"))

    await boss.says(chat, "/workflow run items")
    for colour in gates:
        await world.script.wait_for_request(now(f"mix {colour} paint"))
    for colour in ("blue", "green", "red"):
        gates[colour].set()
    for colour, word in (("red", "Approve"), ("green", "Reject"), ("blue", "Approve")):
        asks = await chat.wait_for(_asking(f"deploy {colour} to production", word))
        await boss.presses(asks, label_with(asks.buttons, word))

    await wait_for_message(chat, FINISHED, "first: mixed red", "last: mixed blue")
    assert world.script.requests_for(now("deploy blue to"), "step")
    assert not world.script.requests_for(now("deploy green to"), "step")


def _asking(title: str, word: str) -> Any:
    def fits(message: TelegramMessage) -> bool:
        return shows(message, title) and any(word in each for each in message.buttons)

    return fits


WAITS = """\
name: Waits
settings: {maxParallel: 3}
nodes:
  - {id: boil, type: task, name: "boil the water"}
  - {id: fork, type: parallel}
  - {id: rest, type: delay, delay: {value: 1, unit: h}}
  - {id: past, type: schedule, schedule: {datetime: "2020-01-01T09:00", timezone: Asia/Shanghai}}
  - {id: tea, type: human, name: "Is the tea good?"}
  - {id: cake, type: human, name: "Is the cake good?", human: {timeout: 1h, autoApprove: true}}
  - {id: all, type: join}
  - {id: serve, type: task, name: "serve tea and cake"}
edges:
  - {from: boil, to: fork}
  - {from: fork, to: rest}
  - {from: rest, to: past}
  - {from: past, to: all}
  - {from: fork, to: tea}
  - {from: tea, to: all}
  - {from: fork, to: cake}
  - {from: cake, to: all}
  - {from: all, to: serve}
"""


async def test_timers_and_human_steps_survive_a_kill_and_one_may_time_out(
    world: ModelWorld,
) -> None:
    """delay, schedule, human; two branches ask at once, by button, and with a time of their own"""
    boss, chat = world.new_owner()
    keep(world, "waits", WAITS)
    world.script.script(now("boil the water"), "step", step_reply("boiled"))
    world.script.script(now("serve tea and cake"), "step", step_reply("tea and cake are served"))

    await boss.says(chat, "/workflow run waits")
    tea = await chat.wait_for(_asking("Is the tea good?", "Approve"))
    await chat.wait_for(_asking("Is the cake good?", "Approve"))
    await world.program.kill()
    _hours_pass(world.program.home, 2)
    await world.program.start()
    await wait_for_message(chat, "Expired", "Is the cake good?")
    assert not world.script.requests_for(now("serve tea and cake"), "step")
    await boss.presses(tea, label_with(tea.buttons, "Approve"))

    await wait_for_message(chat, FINISHED, "tea and cake are served")
    assert tries(world, "boil the water") == 1


REST = """\
name: Rest
nodes:
  - {id: rest, type: delay, delay: {value: 1, unit: h}}
"""


async def test_a_card_shows_until_when_a_timer_waits(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    keep(world, "rest", REST)

    await boss.says(chat, "/workflow run rest")
    await wait_for_message(chat, "Waiting until")


def _hours_pass(home: Path, hours: int) -> None:
    """While it is not there: what it waits for comes so much nearer."""
    span = hours * 3600 * 1_000_000
    with open_store(home) as store:
        for table in ("tasks", "node_runs"):
            store.execute(f"UPDATE {table} SET wake_at = wake_at - ?", (span,))


CHINESE = """\
name: 汇总
settings: {maxParallel: 2}
variables: {地点: [东, 西]}
nodes:
  - {id: each, type: foreach, foreach: {collection: variables.地点, mode: parallel,
     bodyNodes: [look]}}
  - {id: look, type: task, name: "看看{{item}}边"}
  - {id: ask, type: human, name: "可以发布吗？"}
  - {id: tell, type: task, name: "发布两边的情况"}
edges:
  - {from: each, to: ask}
  - {from: ask, to: tell}
"""


async def test_a_workflow_runs_in_chinese_on_feishu(world: ModelWorld) -> None:
    """foreach and human, by Chinese words"""
    boss, chat = world.feishu_owner, world.feishu_chat
    keep(world, "huizong", CHINESE)
    for side in ("东", "西"):
        world.script.script(now(f"看看{side}边"), "step", step_reply(f"{side}边很好"))
    world.script.script(now("发布两边的情况"), "step", step_reply("都发布了"))

    await boss.says(chat, "/语言 中文")
    await boss.says(chat, "/流程 运行 huizong")
    asks = await chat.wait_for(
        lambda m: _reads(m, "可以发布吗") and any("通过" in each for each in m.buttons),
    )
    await boss.presses(asks, label_with(asks.buttons, "通过"))

    await chat.wait_for(lambda m: _reads(m, "都发布了"))
    assert tries(world, "看看东边") == 1


def _reads(message: FeishuMessage, *parts: str) -> bool:
    return all(part in f"{message.header}\n{message.text}" for part in parts)


PLANNED = {
    "name": "Bees",
    "nodes": [
        {"id": "look", "type": "task", "name": "look at the bees"},
        {"id": "many", "type": "condition"},
        {"id": "split", "type": "task", "name": "split the hive"},
        {"id": "leave", "type": "task", "name": "leave the hive alone"},
    ],
    "edges": [
        {"from": "look", "to": "many"},
        {"from": "many", "to": "split", "condition": "outputs.look.bees > 1000"},
        {"from": "many", "to": "leave"},
    ],
}


async def test_a_model_writes_a_workflow_that_runs_in_the_web_chat(world: ModelWorld) -> None:
    """A plan with a choice in it, made by the planner."""
    plan = fill_form(plan="It depends.", steps=[], answer="", workflow=json.dumps(PLANNED))
    world.script.script("see to the bees", "plan", plan)
    world.script.script(now("look at the bees"), "step", step_reply("bees: 5000"))
    world.script.script(now("split the hive"), "step", step_reply("the hive is split"))

    async with open_web_page(world.program) as page:
        await page.send_message("/run see to the bees")
        await page.next_frame("", "the hive is split")

    assert not world.script.requests_for(now("leave the hive alone"), "step")
