"""A task that nobody wants to be asked about begins with work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep
from bot.engine.workflow.planner import defer_first_questions, plan_from_answer
from bot.engine.workflow.prompts import plan_prompt
from storage.records.tasks import TaskStatus
from tests.builders import make_task
from tests.engine_harness import RISKY_WORDS, FakeBackend, run_engine

ASK = PlanStep(title="Say which tone", detail="Formal or not?", kind="ask")
WORK = PlanStep(title="Translate it", detail="Into English.")
TASK = "Translate note.txt into English and write it to note-en.txt"


def titles(prompt: str, *steps: PlanStep) -> list[str]:
    plan = plan_from_answer(PlanAnswer(plan="As asked.", steps=list(steps)))
    return [node.title for node in defer_first_questions(plan, prompt, RISKY_WORDS).nodes]


async def test_a_task_does_not_wait_for_a_person_whom_nobody_mentioned(tmp_path: Path) -> None:
    backend = FakeBackend(on_plan=lambda: PlanAnswer(plan="As asked.", steps=[ASK, WORK]))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(
            await world.create_task("Translate the note"), TaskStatus.COMPLETED, TaskStatus.WAITING
        )

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Translate it"]
    assert "- Say which tone: Formal or not?" in backend.requests[-1].prompt


@pytest.mark.parametrize(
    "task",
    [
        TASK,
        "In settings.ini change the port from 8080 to 9090",
        "Run `wc -l names.txt` and report the number of lines",
        "把 note.txt 翻译成英文，写到 note-en.txt",
    ],
)
def test_steps_of_people_before_any_work_are_dropped(task: str) -> None:
    prompt = f"Task: {task}"

    assert titles(prompt, ASK, ASK, WORK) == ["Translate it"]
    assert titles(prompt, WORK, ASK) == ["Translate it", "Say which tone"]
    assert titles(prompt, ASK) == ["Say which tone"]


@pytest.mark.parametrize(
    "task",
    [
        "Ask me which tone, then translate it",
        "Translate it. Wait for my OK before you write",
        "Let me choose the tone",
        "After Ann has signed, translate the contract",
        "先问我用什么语气，再翻译",
        "翻译前给我确认",
        "Translate it\\n\\nNotes from earlier tasks that may help:\\nThe tone is to be confirmed.",
        "Delete the old notes",
        "Send the note to Ann",
        "把旧笔记删掉",
        "Deployment of the note",
    ],
)
def test_people_are_asked_where_the_task_says_so_or_may_do_harm(task: str) -> None:
    assert titles(f"Task: {task}", ASK, WORK) == ["Say which tone", "Translate it"]


@pytest.mark.parametrize(
    "work",
    [
        PlanStep(title="Mail it to Ann"),
        PlanStep(title="Translate it", detail="Then delete the old note."),
        PlanStep(title="Fire it up", repeatable=False),
        PlanStep(title="Book a room"),
    ],
)
def test_people_are_asked_before_steps_that_may_do_harm(work: PlanStep) -> None:
    assert titles(f"Task: {TASK}", ASK, WORK, work) == [ASK.title, WORK.title, work.title]


def test_a_planner_that_lets_no_step_be_repeated_says_nothing_of_harm() -> None:
    steps = [each.model_copy(update={"repeatable": False}) for each in (ASK, WORK)]

    assert titles(f"Task: {TASK}", *steps) == ["Translate it"]


def test_a_question_stays_whose_answer_a_later_step_uses() -> None:
    workflow = """{"nodes": [{"id": "tone", "type": "human", "name": "Which tone?"},
        {"id": "do", "name": "Translate", "prompt": "In this tone: {{outputs.tone}}"}],
        "edges": [{"from": "tone", "to": "do"}]}"""
    plan = plan_from_answer(PlanAnswer(plan="p", workflow=workflow))

    assert defer_first_questions(plan, f"Task: {TASK}", RISKY_WORDS) == plan


def test_the_words_that_every_prompt_has_ask_for_nobody() -> None:
    task = replace(make_task(), instruction=TASK, files=("files/note.txt",))
    prompt = plan_prompt(task, messages=["Today, please."], memories=["Notes are in Chinese."])

    assert titles(prompt, ASK, WORK) == ["Translate it"]
