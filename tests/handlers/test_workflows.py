"""/workflow as people use it: who may what, what is asked, what is refused and how."""

from __future__ import annotations

from typing import Any

import pytest

from cards.actions import ShowWorkflowNameForm
from cards.catalog import catalog_for
from cards.model import ButtonsBlock, Card, CardButton, FormBlock
from cards.views.task_parts import task_card_buttons
from handlers.request import Reply
from handlers.workflows import suggest_name
from storage.records.people import Language
from storage.records.prompt_versions import PromptKind, VersionState
from storage.records.tasks import NodeStatus, TaskStatus, TaskStep
from storage.records.workflows import Diagnostic, InvalidWorkflowFile, WorkflowInput
from tests.builders import make_task, make_view
from tests.fakes.prompts import make_version
from tests.fakes.workflows import make_workflow, make_workflow_fault
from tests.handlers.router_harness import RouterHarness, text_of

TOPIC = WorkflowInput(name="topic", title="What about")
N = WorkflowInput(name="n", title="How many", kind="number")
SIZE = WorkflowInput(name="size", kind="choice", options=("small", "large"))
LOUD = WorkflowInput(name="loud", kind="bool", default=True, required=False)


def desk(*inputs: WorkflowInput) -> RouterHarness:
    made = RouterHarness(make_task("d0neab", TaskStatus.COMPLETED), make_task("k3m9qa"))
    made.world.workflows.workflows = [make_workflow("review", *inputs)]
    return made


def form_of(reply: Reply) -> FormBlock:
    assert reply.card is not None
    return next(block for block in reply.card.blocks if isinstance(block, FormBlock))


def buttons_of(card: Card | None) -> list[CardButton]:
    assert card is not None
    return [
        item for block in card.blocks if isinstance(block, ButtonsBlock) for item in block.items
    ]


async def sent(at: RouterHarness, reply: Reply) -> FormBlock:
    """The form as it was posted, with its token."""
    card = await at.world.post.get_card(reply.key or f"reply:{at._rows}")
    assert card is not None
    return next(block for block in card.blocks if isinstance(block, FormBlock))


async def test_the_list_has_workflows_and_broken_files_with_their_faults() -> None:
    at = desk(TOPIC)
    at.world.workflows.bad = [
        InvalidWorkflowFile(name="old", file="old.yaml", errors=(make_workflow_fault(),))
    ]

    said = text_of(await at.send_message("/workflow"))

    assert "review" in said
    assert "needs topic" in said
    assert "old.yaml" in said
    assert "fix.loop.condition" in said


async def test_an_empty_shelf_says_where_files_go() -> None:
    at = desk()
    at.world.workflows.workflows = []

    assert "/home/boss/workflows" in text_of(
        await at.send_message("/workflow list", who="x-olga", chat="c0")
    )
    assert "/home/boss" not in text_of(await at.send_message("/workflow list"))


async def test_show_tells_title_inputs_steps_and_the_drawing() -> None:
    reply = await desk(TOPIC, SIZE).send_message("/workflow show review")

    said = text_of(reply)
    for part in ("Review a change", "What about", "small / large", "Look at it", "flowchart TD"):
        assert part in said
    assert "review.svg" in said


async def test_a_workflow_without_inputs_starts_at_once() -> None:
    at = desk()

    reply = await at.send_message("/workflow run review")

    assert at.world.workflows.prepared == [("review", {})]
    assert reply.key.startswith("task:")
    assert list(at.world.tasks.workflows) == ["new1xyz"]


async def test_values_are_typed_behind_the_name() -> None:
    at = desk(TOPIC, N, LOUD)

    await at.send_message('/workflow run review topic="cats and dogs" n=2')

    assert at.world.workflows.prepared == [("review", {"topic": "cats and dogs", "n": 2})]


async def test_a_name_alone_runs_it_with_the_words_behind_it() -> None:
    at = desk(TOPIC)

    await at.send_message("/流程 review cats and dogs")

    assert at.world.workflows.prepared == [("review", {"topic": "cats and dogs"})]


async def test_the_same_message_handled_again_makes_one_task() -> None:
    at = desk()

    await at.send_message("/workflow run review", message_id="m1")
    await at.send_message("/workflow run review", message_id="m1")

    assert len(at.world.tasks.created) == 1


async def test_what_is_missing_is_asked_by_a_form_that_keeps_what_is_known() -> None:
    at = desk(TOPIC, N, SIZE)
    reply = await at.send_message("/workflow run review n=2")
    form = await sent(at, reply)

    assert [field.name for field in form.fields] == ["topic", "size"]
    assert "/workflow run review topic=… size=…" in text_of(reply)
    await at.press(form.token, form={"topic": "cats", "size": "small"})

    assert at.world.workflows.prepared == [("review", {"topic": "cats", "n": 2, "size": "small"})]


async def test_a_form_sent_twice_makes_one_task() -> None:
    at = desk(TOPIC)
    form = await sent(at, await at.send_message("/workflow run review"))

    await at.press(form.token, form={"topic": "cats"})
    await at.press(form.token, form={"topic": "cats"})

    assert len(at.world.tasks.created) == 1


async def test_a_wrong_value_is_asked_again_with_what_would_fit() -> None:
    at = desk(TOPIC, N, SIZE)
    form = await sent(at, await at.send_message("/workflow run review"))

    reply = await at.press(form.token, form={"topic": "cats", "n": "many", "size": "huge"})

    said = text_of(reply)
    assert "must be a number" in said
    assert "one of small / large" in said
    assert reply.in_place
    again = await sent(at, reply)
    assert [field.name for field in again.fields] == ["n", "size"]
    await at.press(again.token, form={"n": "2", "size": "large"})
    assert at.world.workflows.prepared == [("review", {"topic": "cats", "n": 2, "size": "large"})]


async def test_an_unknown_input_says_which_there_are() -> None:
    at = desk(TOPIC)

    reply = await at.send_message("/workflow run review topic=cats colour=red")

    assert not reply.good
    assert "colour" in text_of(reply)
    assert "topic" in text_of(reply)
    assert at.world.workflows.prepared == []


async def test_a_run_button_asks_too_where_something_is_missing() -> None:
    at = desk(TOPIC)
    await at.send_message("/workflow list")
    shelf = await at.world.post.get_card("reply:1")

    reply = await at.press(buttons_of(shelf)[0].token)

    assert [field.name for field in form_of(reply).fields] == ["topic"]


async def test_a_broken_workflow_is_not_run_and_says_all_that_is_wrong() -> None:
    at = desk()
    faults = (make_workflow_fault(), Diagnostic(code="link"))
    at.world.workflows.bad = [InvalidWorkflowFile(name="old", file="old.yaml", errors=faults)]

    for order in ("run old", "show old", "validate old"):
        reply = await at.send_message(f"/workflow {order}")
        assert not reply.good
        assert "fix.loop.condition" in text_of(reply)
        assert "symbolic link, not read" in text_of(reply)


async def test_a_text_is_checked_as_it_was_pasted() -> None:
    at = desk()

    good = await at.send_message("/workflow validate\n```yaml\nname: x\n  nodes: []\n```")
    bad = await at.send_message("/workflow validate name: broken")

    assert "can be run" in text_of(good)
    assert "can't be run" in text_of(bad)
    assert not bad.good


@pytest.mark.parametrize("order", ["save weekly d0neab", "delete review"])
async def test_only_owners_keep_and_delete(order: str) -> None:
    at = desk()

    reply = await at.send_message(f"/workflow {order}")

    assert not reply.good
    assert at.world.workflows.saved == {}
    assert len(at.world.workflows.workflows) == 1


async def test_a_finished_tasks_plan_is_kept_under_a_name() -> None:
    at = desk()

    reply = await at.send_message("/workflow save weekly d0neab", who="x-olga", chat="c0")

    assert reply.good
    assert list(at.world.workflows.saved) == ["weekly"]


async def test_an_unfinished_task_is_not_kept() -> None:
    reply = await desk().send_message("/workflow save weekly k3m9qa", who="x-olga", chat="c0")

    assert "not finished" in text_of(reply)


async def test_a_text_or_file_that_was_sent_is_kept_as_it_is() -> None:
    at = desk()
    at.world.workflows.files["inbox/w.yaml"] = "name: From a file\n"

    await at.send_message("/workflow save one\nname: x\nnodes:\n  - id: a", who="x-olga", chat="c0")
    await at.send_message("/workflow save two", who="x-olga", chat="c0", files=("inbox/w.yaml",))

    assert at.world.workflows.saved == {
        "one": "name: x\nnodes:\n  - id: a",
        "two": "name: From a file\n",
    }


async def test_nothing_is_overwritten_without_being_asked() -> None:
    at = desk()

    refused = await at.send_message("/workflow save review name: new", who="x-olga", chat="c0")
    done = await at.send_message(
        "/workflow save --replace review name: new", who="x-olga", chat="c0"
    )

    assert "--replace" in text_of(refused)
    assert not refused.good
    assert done.good
    assert at.world.workflows.saved == {"review": "name: new"}


async def test_versions_are_listed_compared_and_brought_back_by_button() -> None:
    at = desk()
    for number, text in enumerate(("name: one", "name: two"), 1):
        signal = {"via": "page"}
        state = VersionState.RETIRED if number == 1 else VersionState.WRITTEN
        facts: dict[str, Any] = {"number": number, "content": text, "author": "p0", "state": state}
        at.world.workflows.versions.append(
            make_version(kind=PromptKind.WORKFLOW, name="review", signal=signal, parent=1, **facts)
        )

    listed = await at.send_message("/workflow versions review", who="x-olga", chat="c0")
    compared = await at.send_message("/workflow diff review 1 2")
    refused = await at.send_message("/workflow rollback review 1")
    nothing = await at.send_message("/workflow rollback review x", who="x-olga", chat="c0")
    card = await at.world.post.get_card("reply:1")
    back = next(each for each in buttons_of(card) if "Version 1" in each.label)
    await at.press(back.token, who="x-olga", chat="c0")

    assert "Olga (dashboard)" in text_of(listed)
    assert "+name: two" in text_of(compared)
    assert not refused.good
    assert "no version x" in text_of(nothing)
    assert at.world.workflows.saved == {"review": "name: one"}


async def test_deleting_is_asked_about_first() -> None:
    at = desk()
    asked = await at.send_message("/workflow delete review", who="x-olga", chat="c0")
    assert len(at.world.workflows.workflows) == 1

    card = await at.world.post.get_card("reply:1")
    await at.press(buttons_of(card)[0].token, who="x-olga", chat="c0")

    assert "Delete workflow review?" in text_of(asked)
    assert at.world.workflows.workflows == []


async def test_a_member_cannot_press_what_only_owners_may() -> None:
    at = desk()
    await at.send_message("/workflow delete review", who="x-olga", chat="c0")
    card = await at.world.post.get_card("reply:1")

    reply = await at.press(buttons_of(card)[0].token)

    assert not reply.good
    assert len(at.world.workflows.workflows) == 1


async def test_it_speaks_chinese() -> None:
    at = RouterHarness(language=Language.CHINESE)
    at.world.workflows.workflows = [make_workflow("review", N)]

    said = text_of(await at.send_message("/流程 运行 review n=很多"))

    assert "必须是数字" in said


def offers(status: TaskStatus, steps: int) -> bool:
    done = tuple(TaskStep(path=f"s{n}", title="Look", status=NodeStatus.DONE) for n in range(steps))
    view = make_view(make_task("d0neab", status), *done)
    buttons = task_card_buttons(view, catalog_for(Language.ENGLISH))
    return any(isinstance(each.action, ShowWorkflowNameForm) for each in buttons)


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
    at = RouterHarness(make_task("d0neab", TaskStatus.COMPLETED, title="Water the plants!"))
    token = at.world.post.add_button_card(ShowWorkflowNameForm(task_id="d0neab"))

    assert not (await at.press(token)).good
    owner: dict[str, Any] = {"who": "x-olga", "chat": "c0"}
    token = at.world.post.add_button_card(ShowWorkflowNameForm(task_id="d0neab"), chat="c0")
    asked = await at.press(token, **owner)
    assert "water-the-plants" in text_of(asked)
    card = await at.world.post.get_card(f"reply:{at._rows}")
    assert card is not None
    form = next(block for block in card.blocks if isinstance(block, FormBlock))
    saved = await at.press(form.token, form={"name": ""}, **owner)

    assert list(at.world.workflows.saved) == ["water-the-plants"]
    assert saved.card is not None
    assert [
        type(item)
        for block in saved.card.blocks
        if isinstance(block, ButtonsBlock)
        for item in block.items
    ] == [CardButton, CardButton]


@pytest.mark.parametrize(
    ("title", "name"),
    [("写周报！", "写周报"), ("../../etc", "etc"), ("!!!", "d0neab"), ("a_b c", "a-b-c")],
)
def test_a_title_makes_a_name_that_is_safe(title: str, name: str) -> None:
    assert suggest_name(make_task("d0neab", title=title)) == name


async def test_an_expression_is_evaluated_in_a_run_for_those_who_may_see_the_task() -> None:
    at = desk()

    found = await at.send_message("/workflow eval --task k3m --node look outputs.look > 1")
    unknown = await at.send_message("/workflow eval --task k3m nothing")
    vague = await at.send_message("/workflow eval outputs.look")

    assert found.data == {"path": "look", "value": "k3m9qa: outputs.look > 1", "type": "text"}
    assert not unknown.good
    assert "Names there: outputs" in text_of(unknown)
    assert "--task ID" in text_of(vague)
    assert not (await at.send_message("/workflow eval --task zzz 1")).good
