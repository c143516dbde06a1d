"""A form of a human step, filled in on a Feishu card and by a reply on Telegram."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.emulators.feishu.callbacks import button_action
from tests.journeys.model_world import model_world, step_reply
from tests.journeys.platform_world import (
    ask_on_telegram_as,
    feishu_press_outcome,
    labels,
    platform_world,
)
from tests.journeys.program_store import open_store
from tests.journeys.web_page import open_web_page

PAY = """\
name: Pay
nodes:
  - id: pay
    type: human
    name: "Pay the invoice"
    human:
      form:
        - {name: amount, title: How much, type: number}
        - {name: day, title: Which day, type: date}
        - {name: account, title: Account, type: choice, options: [main, spare], default: main}
        - {name: at_once, title: At once, type: bool, required: false}
        - {name: note, title: Note, type: text, required: false}
outputs:
  amount: outputs.pay.amount
"""


async def test_a_form_is_filled_in_on_a_card_and_by_a_reply_and_the_second_person_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "pay.yaml").write_text(PAY, encoding="utf-8")
    async with platform_world(tmp_path) as here:
        await here.ask("/start")
        await here.ask_on_feishu("/start")
        boss, chief, chat = here.telegram_owner, here.feishu_owner, here.telegram_chat
        team = here.telegram.group("Team")

        # From a group, both owners are asked in private. The one on Feishu is first.
        await boss.says(team, "/workflow run pay", mention=True)
        card = await here.feishu_chat.wait_for(lambda m: bool(labels(m, "Approve")))
        asked = await chat.wait_for(lambda m: "Which day" in m.text)
        send = labels(card, "Approve")[0]
        wrong = chief.presses(card, send, amount="much", day="2026-02-30")
        told = await feishu_press_outcome(card, wrong, "must be a number")
        assert "How much must be a number" in told.replace("*", "")
        assert labels(card, "Approve"), "the form stays"
        assert _values(tmp_path) == [None]
        fill = {"amount": "12.5", "day": "2026-03-01", "account": "spare", "at_once": "yes"}
        right = chief.presses(card, send, **fill, note="for Bo")
        assert "Approved" in await feishu_press_outcome(card, right, "✅ Approved")
        await team.wait_for_text("Task finished")
        await chat.wait_until(lambda: "Approved" in asked.text)
        late = await ask_on_telegram_as(
            boss, chat, "How much: 7\nWhich day: 2026-03-02", reply_to=asked, expects="first"
        )
        assert "Chief decided first" in late
        first = {"amount": 12.5, "day": "2026-03-01", "account": "spare", "at_once": True}
        assert _values(tmp_path) == [first | {"note": "for Bo"}]

        # The one on Telegram is first; the other had the card still open.
        await boss.says(team, "/workflow run pay", mention=True)
        again = await here.feishu_chat.wait_for(
            lambda m: m.message_id != card.message_id and bool(labels(m, "Approve"))
        )
        open_form = button_action(again, send, {"amount": "1", "day": "2026-03-03"})
        asked = await chat.wait_for(lambda m: m.id != asked.id and "Which day" in m.text)
        told = await ask_on_telegram_as(
            boss, chat, "How much: 3\nWhich day: tomorrow", reply_to=asked, expects="must be a date"
        )
        assert "tomorrow" in told
        short = await ask_on_telegram_as(
            boss, chat, "How much: 3", reply_to=asked, expects="Which day"
        )
        assert "Approved" not in short
        await boss.says(chat, "How much: 3\nWhich day: 2026/3/2", reply_to=asked)
        await chat.wait_until(lambda: "Approved" in asked.text)
        await here.feishu_chat.wait_for(
            lambda m: m.message_id == again.message_id and not m.buttons
        )
        press = here.feishu.presses.send(again, chief.open_id, open_form)
        assert "Boss decided first" in await feishu_press_outcome(again, press, "decided first")
        assert _values(tmp_path)[1] == {"amount": 3, "day": "2026-03-02"}
        await here.ask("/approvals", expects="Nothing")


def _values(home: Path) -> list[Any]:
    with open_store(home) as store:
        rows = store.execute(
            "SELECT payload FROM approvals WHERE kind = 'human' ORDER BY created_at"
        )
        return [json.loads(row[0]).get("values") for row in rows]


SORT = """\
name: Sort
nodes:
  - {id: look, name: Look at it, prompt: How large is it?}
  - {id: which, type: switch, expression: outputs.look.size,
     cases: {big: print, small: mail}, default: file}
  - {id: print, type: assign, assign: {assignments: {way: printed}}}
  - {id: mail, type: assign, assign: {assignments: {way: mailed}}}
  - {id: file, type: assign, assign: {assignments: {way: filed}}}
edges: [{from: look, to: which}]
outputs:
  way: variables.way
"""


async def test_about_a_switch_one_card_asks_with_a_button_for_each_case(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "sort.yaml").write_text(SORT, encoding="utf-8")
    async with model_world(tmp_path, "openai", SHIFTBOSS_LANGUAGE="en") as world:
        world.script.script("How large", "step", step_reply("I am torn."))
        boss, chat = world.new_owner()
        await boss.says(chat, "/workflow run sort")
        asked = await chat.wait_for(lambda m: "small" in m.buttons)
        assert asked.buttons[:3] == ["big", "small", "None of these"]
        await boss.presses(asked, "small")
        await chat.wait_for(lambda m: "Task finished" in m.text and "mailed" in m.text)

        chief, talk = world.feishu_owner, world.feishu_chat
        await chief.says(talk, "/workflow run sort")
        card = await talk.wait_for(lambda m: "big" in m.buttons)
        await chief.presses(card, "big")
        await talk.wait_for(lambda m: "printed" in m.text)

        async with open_web_page(world.program) as page:
            await page.send_message("/workflow run sort")
            frame = await page.next_frame("", "None of these")
            await page.press(frame["html"], "None of these")
            await page.next_frame("", "filed")
