"""Each kind of node does what it is called, on Telegram, on Feishu in Chinese and on the web."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.feishu.world import Message as FeishuMessage
from tests.emulators.models.script import Asked, Reply
from tests.emulators.telegram.chats import Message
from tests.journeys.model_world import (
    PATIENCE,
    World,
    done,
    fill,
    held,
    label_with,
    shows,
    told,
    web_page,
    world,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

FINISHED = "Task finished"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    async with world(tmp_path_factory.mktemp("home"), "openai") as made:
        yield made


def keep(place: World, name: str, text: str) -> None:
    folder = place.shiftboss.home / "workflows"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def now(title: str) -> str:
    """How a worker is told which step is its own."""
    return f"Your step now: {title}"


def tries(place: World, title: str) -> int:
    """How often the model was asked for that step."""
    return sum(bool(asked.said) and now(title) in asked.said[-1] for asked in place.stage.asked)


def order(place: World, *titles: str) -> list[str]:
    """These steps as the model was asked for them, the first time each."""
    begun: list[str] = []
    for asked in place.stage.asked:
        last = asked.said[-1] if asked.said else ""
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


async def test_a_review_sends_back_until_it_is_good(place: World) -> None:
    """start, task, condition, an edge that leads back, end"""
    boss, chat = place.boss()
    keep(place, "owls", REVIEW)
    place.stage.on(now("draft the owl page"), "step", done("drafted"))
    said = deque(["too short. approved: false", "fine. approved: true"])

    def review(asked: Asked) -> Reply:
        return done(said.popleft())(asked)

    place.stage.on(now("review the owl page"), "step", review)
    place.stage.on(now("print the owl page"), "step", done("the owls are printed"))

    await boss.says(chat, "/workflow run owls")

    await told(chat, FINISHED, "the owls are printed")
    assert tries(place, "review the owl page") == 2


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


@pytest.mark.parametrize(("kind", "total"), [("big", 200), ("small", 146), ("odd", 142)])
async def test_sums_are_done_without_a_worker(place: World, kind: str, total: int) -> None:
    """switch with a default, assign, script, join any, loops that count, test before and after"""
    boss, chat = place.boss()
    keep(place, "sums", SUMS)
    before = len(place.stage.asked)

    await boss.says(chat, f"/workflow run sums kind={kind}")

    await told(chat, FINISHED, f"total: {total}")
    assert len(place.stage.asked) == before


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


async def test_branches_run_at_once_pause_as_one_and_meet(place: World) -> None:
    """parallel and join; pause and resume by button, and a step put in between"""
    boss, chat = place.boss()
    keep(place, "lanes", LANES)
    go = asyncio.Event()
    for side in ("left", "right"):
        place.stage.on(now(f"dig the {side} tunnel"), "step", held(done(f"{side} dug"), go))
    place.stage.on(now("open both tunnels"), "step", done("both are open"))

    await boss.says(chat, "/workflow run lanes")
    await place.stage.under_way(now("dig the left tunnel"))
    await place.stage.under_way(now("dig the right tunnel"))
    card = await chat.wait_for(lambda m: any("Pause" in each for each in m.buttons), PATIENCE)
    await boss.presses(card, label_with(card.buttons, "Pause"))
    go.set()
    stopped = await chat.wait_for(lambda m: any("Resume" in each for each in m.buttons), PATIENCE)
    assert not place.stage.heard(now("open both tunnels"), "step")
    (task,) = re.findall(r"^(\w{6}) · ", stopped.text, re.MULTILINE)
    await boss.says(chat, f"/inject {task} sweep the tunnels")
    await chat.wait_until(lambda: "sweep the tunnels" in stopped.text, PATIENCE)
    await boss.presses(stopped, label_with(stopped.buttons, "Resume"))

    await told(chat, FINISHED)
    assert place.stage.heard(now("open both tunnels"), "step")
    assert place.stage.heard(now("sweep the tunnels"), "step")
    begun = ("dig the left tunnel", "dig the right tunnel", "open both tunnels")
    assert order(place, *begun)[-1] == "open both tunnels"


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


async def test_items_run_at_once_come_in_order_and_risky_ones_ask_each(place: World) -> None:
    """foreach, parallel and one after the other; each risky item is asked about by its own words"""
    boss, chat = place.boss()
    keep(place, "items", ITEMS)
    gates = {colour: asyncio.Event() for colour in ("red", "green", "blue")}
    for colour, gate in gates.items():
        cue = now(f"mix {colour} paint")
        place.stage.on(cue, "step", held(done(f"mixed {colour}"), gate))
        place.stage.on(now(f"deploy {colour} to"), "step", done(f"shipped {colour}"))

    await boss.says(chat, "/workflow run items")
    for colour in gates:
        await place.stage.under_way(now(f"mix {colour} paint"))
    for colour in ("blue", "green", "red"):
        gates[colour].set()
    for colour, word in (("red", "Approve"), ("green", "Reject"), ("blue", "Approve")):
        asks = await chat.wait_for(_asking(f"deploy {colour} to production", word), PATIENCE)
        await boss.presses(asks, label_with(asks.buttons, word))

    await told(chat, FINISHED, "first: mixed red", "last: mixed blue")
    assert place.stage.heard(now("deploy blue to"), "step")
    assert not place.stage.heard(now("deploy green to"), "step")


def _asking(title: str, word: str) -> Any:
    def fits(message: Message) -> bool:
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


async def test_rests_and_people_are_waited_for_over_a_kill_and_one_may_be_late(
    place: World,
) -> None:
    """delay, schedule, human; two branches ask at once, by button, and with a time of their own"""
    boss, chat = place.boss()
    keep(place, "waits", WAITS)
    place.stage.on(now("boil the water"), "step", done("boiled"))
    place.stage.on(now("serve tea and cake"), "step", done("tea and cake are served"))

    await boss.says(chat, "/workflow run waits")
    tea = await chat.wait_for(_asking("Is the tea good?", "Approve"), PATIENCE)
    await chat.wait_for(_asking("Is the cake good?", "Approve"), PATIENCE)
    await place.shiftboss.kill()
    _hours_pass(place.shiftboss.home, 2)
    await place.shiftboss.start()
    await told(chat, "Expired", "Is the cake good?")
    assert not place.stage.heard(now("serve tea and cake"), "step")
    await boss.presses(tea, label_with(tea.buttons, "Approve"))

    await told(chat, FINISHED, "tea and cake are served")
    assert tries(place, "boil the water") == 1


REST = """\
name: Rest
nodes:
  - {id: rest, type: delay, delay: {value: 1, unit: h}}
"""


async def test_a_card_says_until_when_it_rests(place: World) -> None:
    boss, chat = place.boss()
    keep(place, "rest", REST)

    await boss.says(chat, "/workflow run rest")
    await told(chat, "Waits until")


def _hours_pass(home: Path, hours: int) -> None:
    """While it is not there: what it waits for comes so much nearer."""
    span = hours * 3600 * 1_000_000
    with closing(sqlite3.connect(home / "shiftboss.db")) as store, store:
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


async def test_in_chinese_on_feishu(place: World) -> None:
    """foreach and human, by Chinese words"""
    boss, chat = place.feishu_boss, place.feishu_chat
    keep(place, "huizong", CHINESE)
    for side in ("东", "西"):
        place.stage.on(now(f"看看{side}边"), "step", done(f"{side}边很好"))
    place.stage.on(now("发布两边的情况"), "step", done("都发布了"))

    await boss.says(chat, "/语言 中文")
    await boss.says(chat, "/流程 运行 huizong")
    asks = await chat.wait_for(
        lambda m: _reads(m, "可以发布吗") and any("通过" in each for each in m.buttons),
        timeout=PATIENCE,
    )
    await boss.presses(asks, label_with(asks.buttons, "通过"))

    await chat.wait_for(lambda m: _reads(m, "都发布了"), timeout=PATIENCE)
    assert tries(place, "看看东边") == 1


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


async def test_a_model_draws_a_workflow_and_it_runs_on_the_web(place: World) -> None:
    """A plan with a choice in it, made by the planner."""
    plan = fill(plan="It depends.", steps=[], answer="", workflow=json.dumps(PLANNED))
    place.stage.on("see to the bees", "plan", plan)
    place.stage.on(now("look at the bees"), "step", done("bees: 5000"))
    place.stage.on(now("split the hive"), "step", done("the hive is split"))

    async with web_page(place.shiftboss) as page:
        await page.says("/run see to the bees")
        await page.frame("", "the hive is split")

    assert not place.stage.heard(now("leave the hive alone"), "step")
