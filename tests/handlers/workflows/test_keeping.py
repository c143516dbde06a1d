"""A finished task's plan, offered to be kept."""

from __future__ import annotations

from typing import Any

import pytest

from cards.model import Button, Buttons, Form
from cards.views.controls import ending_buttons
from cards.words import words_for
from cards.workflow_actions import AskWorkflowName
from handlers.workflows.keeping import name_for
from storage.records.people import Language
from storage.records.tasks import NodeStatus, Step, TaskStatus
from tests.handlers.desk import Desk, text_of
from tests.samples import a_task, a_view


def offers(status: TaskStatus, steps: int) -> bool:
    done = tuple(Step(path=f"s{n}", title="Look", status=NodeStatus.DONE) for n in range(steps))
    view = a_view(a_task("d0neab", status), *done)
    buttons = ending_buttons(view, words_for(Language.ENGLISH))
    return any(isinstance(each.action, AskWorkflowName) for each in buttons)


@pytest.mark.parametrize(
    ("status", "steps", "offered"),
    [
        (TaskStatus.COMPLETED, 2, True),
        (TaskStatus.COMPLETED, 1, False),
        (TaskStatus.FAILED, 3, False),
        (TaskStatus.BLOCKED, 3, False),
    ],
)
def test_only_finished_work_of_several_steps_is_worth_keeping(
    status: TaskStatus, steps: int, offered: bool
) -> None:
    assert offers(status, steps) is offered


async def test_the_button_asks_an_owner_for_a_name_and_keeps_the_plan_under_it() -> None:
    at = Desk(a_task("d0neab", TaskStatus.COMPLETED, title="Water the plants!"))
    token = at.world.post.put(AskWorkflowName(task_id="d0neab"))

    assert not (await at.press(token)).good
    owner: dict[str, Any] = {"who": "x-olga", "chat": "c0"}
    token = at.world.post.put(AskWorkflowName(task_id="d0neab"), chat="c0")
    asked = await at.press(token, **owner)
    assert "water-the-plants" in text_of(asked)
    card = await at.world.post.card(f"reply:{at._rows}")
    assert card is not None
    form = next(block for block in card.blocks if isinstance(block, Form))
    saved = await at.press(form.token, form={"name": ""}, **owner)

    assert list(at.world.workflows.saved) == ["water-the-plants"]
    assert saved.card is not None
    assert [
        type(item)
        for block in saved.card.blocks
        if isinstance(block, Buttons)
        for item in block.items
    ] == [Button, Button]


@pytest.mark.parametrize(
    ("title", "name"),
    [("写周报！", "写周报"), ("../../etc", "etc"), ("!!!", "d0neab"), ("a_b c", "a-b-c")],
)
def test_a_title_makes_a_name_that_is_safe(title: str, name: str) -> None:
    assert name_for(a_task("d0neab", title=title)) == name
