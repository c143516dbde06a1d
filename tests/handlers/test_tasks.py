"""Tasks by command: made, listed, shown, moved."""

from __future__ import annotations

import pytest

from cards.actions import ShowTask, SubmitMessageForm, SubmitTaskForm
from handlers.parsing import split_steps
from storage.records.people import ChatId, Language
from storage.records.tasks import (
    EventKind,
    NodeStatus,
    TaskControl,
    TaskId,
    TaskPriority,
    TaskStatus,
)
from tests.builders import make_event, make_step, make_task, make_view
from tests.handlers.router_harness import RouterHarness, text_of


async def test_run_makes_a_task_and_shows_its_live_card() -> None:
    desk = RouterHarness()

    reply = await desk.send_message(
        "/run -p urgent Water the plants", files=("in/1.png",), message_id="m7"
    )

    new = desk.world.tasks.created[0]
    assert (new.instruction, new.priority, new.files) == (
        "Water the plants",
        TaskPriority.URGENT,
        ("in/1.png",),
    )
    assert new.reply_to == "m7"
    assert reply.key == "task:new1xyz"
    assert "Water the plants" in text_of(reply)


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("/run write", TaskPriority.IMPORTANT),
        ("/run -p 紧急 write", TaskPriority.URGENT),
        ("/新任务 -p 普通 写诗", TaskPriority.NORMAL),
        ("/RUN -p Important write", TaskPriority.IMPORTANT),
    ],
)
async def test_priorities_are_taken_in_both_vocabularies(text: str, priority: TaskPriority) -> None:
    desk = RouterHarness()

    await desk.send_message(text)

    assert desk.world.tasks.created[0].priority is priority


async def test_an_unknown_priority_makes_nothing_and_names_those_there_are() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/run -p asap write")

    assert desk.world.tasks.created == []
    assert "urgent" in text_of(reply)


@pytest.mark.parametrize(
    "text",
    [
        "/run @opus write",
        "/run -p urgent @opus write",
        "/run @opus -p urgent write",
        "@opus /run write",
    ],
)
async def test_a_task_may_choose_its_model(text: str) -> None:
    desk = RouterHarness()

    await desk.send_message(text)

    new = desk.world.tasks.created[0]
    assert (new.model, new.backend, new.instruction) == ("claude-opus", "anthropic", "write")


async def test_a_first_word_that_is_also_a_model_stays_in_the_task() -> None:
    desk = RouterHarness()

    await desk.send_message("/run haiku about queues")

    assert desk.world.tasks.created[0].instruction == "haiku about queues"


async def test_run_without_text_asks_by_form_and_the_form_makes_the_task() -> None:
    desk = RouterHarness()
    await desk.send_message("/run")
    token = desk.world.post.token("reply:1", SubmitTaskForm)

    reply = await desk.press(token, form={"text": " Feed the cat ", "priority": "urgent"})

    new = desk.world.tasks.created[0]
    assert (new.instruction, new.priority) == ("Feed the cat", TaskPriority.URGENT)
    assert reply.key == "task:new1xyz"
    assert list(desk.world.post.tokens("reply:1")) == []


async def test_an_empty_form_is_not_used_up() -> None:
    desk = RouterHarness()
    await desk.send_message("/run")
    token = desk.world.post.token("reply:1", SubmitTaskForm)

    empty = await desk.press(token, form={"text": "  "})
    await desk.press(token, form={"text": "Feed the cat"})

    assert not empty.good
    assert len(desk.world.tasks.created) == 1


async def test_a_reply_to_the_form_card_answers_it() -> None:
    desk = RouterHarness()
    await desk.send_message("/run")
    desk.world.post.shown[ChatId("c1"), "m99"] = "reply:1"

    await desk.send_message("Feed the cat\nPriority: Urgent\nand the dog", reply_to="m99")

    new = desk.world.tasks.created[0]
    assert new.instruction == "Feed the cat\nand the dog"


async def test_a_message_handled_again_makes_one_task() -> None:
    desk = RouterHarness()
    row = desk.row(desk.message("/run write"))

    first, second = await desk.deliver(row), await desk.deliver(row)

    assert len(desk.world.tasks.created) == 1
    assert first.key == second.key


async def test_a_corrected_message_does_not_make_a_second_task() -> None:
    desk = RouterHarness()
    await desk.send_message("/run write", message_id="m1")

    same = await desk.send_message("/run write", message_id="m1", edited=True)
    other = await desk.send_message("/run write more", message_id="m1", edited=True)

    assert len(desk.world.tasks.created) == 1
    assert same.key == "task:new1xyz"
    assert "/stop new1xyz" in text_of(other)


async def test_the_list_shows_unfinished_tasks_first_with_ids_that_resolve() -> None:
    desk = RouterHarness(
        make_task("d0neaa", TaskStatus.COMPLETED, title="Old"),
        make_task("paused", TaskStatus.PAUSED, title="Waits"),
    )

    text = text_of(await desk.send_message("/list"))

    assert text.index("In progress") < text.index("Waits") < text.index("Finished")
    assert text.index("Finished") < text.index("Old")
    shown = [each for _, each, _ in desk.world.post.tokens("reply:1")]
    for action in shown:
        if isinstance(action, ShowTask):
            assert "Nothing" not in text_of(await desk.send_message(f"/get {action.task_id}"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [("/list paused", "Waits"), ("/list 已暂停", "Waits"), ("/list banana", "Waits")],
)
async def test_the_list_takes_a_status_in_both_vocabularies(text: str, shown: str) -> None:
    desk = RouterHarness(make_task("paused", TaskStatus.PAUSED, title="Waits"))

    assert shown in text_of(await desk.send_message(text))


async def test_a_list_of_nothing_says_so() -> None:
    desk = RouterHarness()

    assert "/run" in text_of(await desk.send_message("/list"))
    assert "Failed" in text_of(await desk.send_message("/list failed"))


@pytest.mark.parametrize("typed", ["k3m", "K3M9QA", "task-k3m9qa"])
async def test_get_takes_the_beginning_of_an_id(typed: str) -> None:
    desk = RouterHarness(make_task())

    assert "Water the plants" in text_of(await desk.send_message(f"/get {typed}"))


async def test_none_one_and_several_matches_are_three_answers() -> None:
    desk = RouterHarness(make_task("k3m9qa"), make_task("k3zzzz"))

    none, one, several = [
        text_of(await desk.send_message(f"/get {typed}")) for typed in ("zz", "k3m", "k3")
    ]

    assert "/list" in none
    assert "Water the plants" in one
    assert "k3m9qa" in several
    assert "k3zzzz" in several


async def test_the_details_show_the_timeline_with_previews_and_errors() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.FAILED))
    steps = (make_step(), make_step("2", "Open it", NodeStatus.FAILED))
    desk.world.tasks.views[TaskId("k3m9qa")] = make_view(
        desk.world.tasks.tasks[TaskId("k3m9qa")], *steps
    )

    text = text_of(await desk.send_message("/get k3m"))

    assert "It was in the shed." in text
    assert "The shed is locked." in text
    assert "$0.0123" in text


async def test_a_task_that_is_about_to_pause_is_not_offered_a_pause() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.RUNNING, control=TaskControl.PAUSE))

    for asked in ("/get k3m", "/list"):
        text = text_of(await desk.send_message(asked))
        assert "/pause" not in text
        assert "/resume k3m" in text


async def test_logs_are_in_the_boss_time_zone() -> None:
    desk = RouterHarness(make_task())
    desk.world.tasks.event_log[TaskId("k3m9qa")] = [
        make_event(EventKind.STEP_DONE, "Found the can")
    ]

    text = text_of(await desk.send_message("/logs k3m"))

    assert "13:06:07 step done Found the can" in text


async def test_pause_tells_when_it_takes_effect_and_why() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.RUNNING))

    text = text_of(await desk.send_message("/pause k3m need the water"))

    assert desk.world.tasks.reasons == ["need the water"]
    assert "after the current step" in text
    assert "need the water" in text
    assert "/resume k3m9qa" in text


@pytest.mark.parametrize(
    ("text", "status", "move"),
    [
        ("/pause k3m", TaskStatus.PENDING, "pause"),
        ("/resume k3m", TaskStatus.PAUSED, "resume"),
        ("/继续 k3m", TaskStatus.PAUSED, "resume"),
        ("/stop k3m", TaskStatus.RUNNING, "stop"),
        ("/停止 k3m", TaskStatus.RUNNING, "stop"),
        ("/retry k3m", TaskStatus.FAILED, "retry"),
        ("/重试 k3m", TaskStatus.FAILED, "retry"),
        ("/priority k3m urgent", TaskStatus.PENDING, "priority"),
        ("/priority urgent k3m", TaskStatus.PENDING, "priority"),
        ("/优先级 k3m 紧急", TaskStatus.PENDING, "priority"),
    ],
)
async def test_a_task_is_moved_by_command(text: str, status: TaskStatus, move: str) -> None:
    desk = RouterHarness(make_task(status=status))

    reply = await desk.send_message(text)

    assert desk.world.tasks.moves == [(move, "k3m9qa", "inbox:1")]
    assert "k3m9qa" in text_of(reply)


async def test_a_stop_that_undoes_things_first_says_so() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.RUNNING))
    desk.world.tasks.undoes = True

    assert "undone first" in text_of(await desk.send_message("/stop k3m"))


async def test_an_answer_goes_with_the_resumption() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.BLOCKED))

    await desk.send_message("/resume k3m Paris, not  Lyon")

    assert desk.world.tasks.messages == ["Paris, not  Lyon"]


@pytest.mark.parametrize("word", ["pause", "retry", "get", "logs", "priority"])
async def test_a_command_without_its_id_shows_how_it_is_used(word: str) -> None:
    desk = RouterHarness(make_task())

    text = text_of(await desk.send_message(f"/{word}"))

    assert f"/{word} id" in text
    assert desk.world.tasks.moves == []


async def test_what_the_state_forbids_is_said_with_the_state() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.COMPLETED))

    text = text_of(await desk.send_message("/stop k3m"))

    assert "Completed" in text
    assert desk.world.tasks.moves == []


async def test_another_members_task_is_not_there() -> None:
    desk = RouterHarness(make_task(by="olga", chat="c0"))

    assert "No such task" in text_of(await desk.send_message("/stop k3m"))
    assert desk.world.tasks.moves == []


async def test_everything_about_tasks_is_said_in_chinese_too() -> None:
    desk = RouterHarness(make_task(title="浇花"))
    await desk.world.people.set_language(desk.world.ann, Language.CHINESE)

    assert "任务列表" in text_of(await desk.send_message("/list"))
    assert "暂停" in text_of(await desk.send_message("/pause k3m"))
    assert "没有这个任务" in text_of(await desk.send_message("/get zz"))
    assert "新任务" in text_of(await desk.send_message("/run"))


@pytest.mark.parametrize("text", ["/retry k3m", "/resume k3m"])
@pytest.mark.parametrize("status", [TaskStatus.PENDING, TaskStatus.RUNNING])
async def test_what_is_on_its_way_is_not_said_to_be_taken_up_again(
    text: str, status: TaskStatus
) -> None:
    desk = RouterHarness(make_task(status=status))

    assert "Already running or queued" in text_of(await desk.send_message(text))
    assert desk.world.tasks.moves == []


async def test_a_priority_that_is_none_is_named_without_the_id_before_it() -> None:
    said = text_of(await RouterHarness(make_task()).send_message("/priority k3m lala"))

    assert "No such priority: lala" in said


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("check the totals", ("check the totals",)),
        ("a → b -> c", ("a", "b", "c")),
        ("配置：网络\n 测试 ", ("配置：网络", "测试")),
        ("→ \n ->", ()),
        ("\n".join(f"s{n}" for n in range(20)), tuple(f"s{n}" for n in range(10))),
    ],
)
def test_steps_are_read_as_people_write_them(text: str, titles: tuple[str, ...]) -> None:
    assert split_steps(text) == titles


def test_a_long_title_is_cut() -> None:
    assert len(split_steps("x" * 5000)[0]) == 200


def test_the_form_of_a_message_has_no_command_of_its_own() -> None:
    assert SubmitMessageForm(task_id="k").command == ""
