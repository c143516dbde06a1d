"""Without a model: a plan from the text, the few things that can be done, and honesty."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bot.engine.llm.answer_schemas import PROPOSE_TASK, IntentAnswer, PlanAnswer, StepAnswer
from bot.engine.llm.backend import (
    AgentEvent,
    Backend,
    BackendDenied,
    RunLimits,
    RunPurpose,
    RunRequest,
    RunResult,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from bot.engine.llm.offline.backend import OfflineBackend
from bot.engine.llm.tool_calls import CallAuthorizer, CallDecision, CallVerdict, ToolCall
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.llm.builders import recording_tool

NOTE = {code: catalog_for(Language(code))("offline.note") for code in ("en", "zh")}
HAIKU = "write a haiku about queues and save it to haiku.md"


def _request(
    purpose: RunPurpose,
    facts: Mapping[str, Any],
    result: type[BaseModel] | None,
    *,
    workspace: Path | None = None,
    language: str = "en",
    limits: RunLimits | None = None,
) -> RunRequest:
    return RunRequest(
        purpose=purpose,
        prompt="a prompt for models",
        system="",
        model="offline",
        language=language,
        workspace=workspace,
        result=result,
        limits=limits or RunLimits(),
        facts=facts,
    )


async def _run(
    request: RunRequest, backend: Backend | None = None
) -> tuple[list[AgentEvent], RunResult]:
    async with (backend or OfflineBackend()).run(request) as run:
        events = [event async for event in run.events]
        return events, run.result


async def _plan(text: str, language: str = "en") -> PlanAnswer:
    _, result = await _run(_request(RunPurpose.PLAN, {"text": text}, PlanAnswer, language=language))
    assert isinstance(result.value, PlanAnswer)
    return result.value


async def _whole_task(text: str, workspace: Path, language: str = "en") -> list[StepAnswer]:
    """Plan the text and do its steps, as the runner would."""
    answers: list[StepAnswer] = []
    done: list[dict[str, Any]] = []
    for step in (await _plan(text, language)).steps:
        facts = {
            "instruction": text,
            "step": {"title": step.title, "detail": step.detail},
            "done": list(done),
        }
        request = _request(
            RunPurpose.STEP, facts, StepAnswer, workspace=workspace, language=language
        )
        _, result = await _run(request)
        assert isinstance(result.value, StepAnswer)
        answers.append(result.value)
        done.append({"title": step.title, "summary": result.value.summary, "files": []})
    return answers


async def test_the_first_journey_makes_a_file_in_two_honest_steps(tmp_path: Path) -> None:
    made, saved = await _whole_task(HAIKU, tmp_path)

    assert (made.status, saved.status) == ("done", "done")
    assert "template" in made.summary
    assert saved.files == ["haiku.md"]
    lines = (tmp_path / "haiku.md").read_text().splitlines()
    assert lines[0] == "# queues"
    assert len(lines) == 5
    assert all(line in made.summary for line in lines)
    assert all(answer.summary.endswith(NOTE["en"]) for answer in (made, saved))


async def test_the_same_in_chinese(tmp_path: Path) -> None:
    answers = await _whole_task("写一首关于队列的俳句，然后保存到 haiku.md", tmp_path, "zh")

    assert [answer.status for answer in answers] == ["done", "done"]
    assert "号码安静地等待" in (tmp_path / "haiku.md").read_text()
    assert all(answer.summary.endswith(NOTE["zh"]) for answer in answers)


async def test_steps_build_on_what_earlier_steps_made(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("A queue. " * 3 + "\nThe queue is long. Tea.")
    text = (
        "1. summarise notes.txt\n2. save it to s.md\n3. count the words in s.md\n"
        "4. list files\n5. save the list to l.md"
    )

    answers = await _whole_task(text, tmp_path)

    assert [answer.status for answer in answers] == ["done"] * 5
    assert "queue" in (tmp_path / "s.md").read_text()
    assert (tmp_path / "l.md").read_text() == "- notes.txt\n- s.md\n"


async def test_a_long_step_is_done_by_its_whole_text_though_its_title_is_cut(
    tmp_path: Path,
) -> None:
    words = " ".join(f"word{n}" for n in range(80))

    (answer,) = await _whole_task(f'write "{words}" to long.txt', tmp_path)

    assert answer.status == "done"
    assert (tmp_path / "long.txt").read_text() == f"{words}\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("build me a website for my bakery", "blocked"),
        ("read missing.md", "error"),
        ("save it to x.md", "error"),
        ("write 'x' to ../x.md", "error"),
        ("write 'x' to /etc/x.md", "error"),
        ("summarise it", "error"),
        ("wait 3 hours", "error"),
        ("create an empty file there.md", "error"),
    ],
)
async def test_what_cannot_be_done_is_never_called_done(
    tmp_path: Path, text: str, status: str
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "there.md").write_text("kept")

    (answer,) = await _whole_task(text, workspace)

    assert answer.status == status
    assert answer.files == []
    assert answer.summary.endswith(NOTE["en"])
    assert [one.name for one in tmp_path.rglob("*")] == ["work", "there.md"]
    assert (workspace / "there.md").read_text() == "kept"


async def test_talk_that_amounts_to_work_is_proposed_where_it_can_be() -> None:
    proposed: list[Mapping[str, Any]] = []
    tool = recording_tool("asked", proposed, PROPOSE_TASK)
    request = replace(_request(RunPurpose.CHAT, {"text": HAIKU}, None), tools=(tool,))

    _, result = await _run(request)
    await _run(replace(request, facts={"text": "what is a queue?"}))

    assert proposed == [{"title": HAIKU, "task": HAIKU, "priority": "important"}]
    assert NOTE["en"] in result.text


@pytest.mark.parametrize(
    "text", ["write a business plan for my bakery", f"{HAIKU}, then build me a website"]
)
async def test_work_that_the_rules_cannot_do_is_not_proposed(text: str) -> None:
    proposed: list[Mapping[str, Any]] = []
    tool = recording_tool("asked", proposed, PROPOSE_TASK)

    _, result = await _run(replace(_request(RunPurpose.CHAT, {"text": text}, None), tools=(tool,)))

    assert proposed == []
    assert catalog_for(Language.ENGLISH)("offline.cannot_answer") in result.text


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("text", ["hello", "what is a queue?", HAIKU, "say hi", "count words: a b"])
async def test_every_chat_answer_says_who_speaks(text: str, language: str) -> None:
    request = _request(RunPurpose.CHAT, {"text": text}, None, language=language)

    events, result = await _run(request)

    assert result.text.endswith(NOTE[language])
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(deltas) > 5
    assert "".join(deltas) == result.text
    assert result.value is None


@given(st.text(max_size=300))
async def test_any_text_gets_a_plan_or_an_answer_with_the_note(text: str) -> None:
    plan = await _plan(text)

    assert (plan.plan or plan.answer).endswith(NOTE["en"])
    assert plan.steps or plan.answer


async def test_a_greeting_is_answered_without_steps() -> None:
    plan = await _plan("hello!")

    assert plan.steps == []
    assert plan.answer.startswith("Hello")


async def test_intent_is_a_value_without_talk() -> None:
    events, result = await _run(_request(RunPurpose.INTENT, {"text": HAIKU}, IntentAnswer))

    assert isinstance(result.value, IntentAnswer)
    assert (result.value.kind, result.value.title) == ("task", HAIKU)
    assert events == []
    assert result.new_history == ()


async def test_work_on_files_shows_as_a_tool_call(tmp_path: Path) -> None:
    facts = {"instruction": "", "step": {"title": "write 'x' to a.txt", "detail": ""}, "done": []}

    events, _ = await _run(_request(RunPurpose.STEP, facts, StepAnswer, workspace=tmp_path))

    assert events[0] == ToolStarted(call_id="offline-1", name="write", title="write a.txt")
    assert isinstance(events[1], ToolFinished)
    assert events[1].succeeded


CUT = CallDecision(verdict=CallVerdict.ANSWER, text="Error: cut off", has_failed=True)
DONE_BEFORE = CallDecision(verdict=CallVerdict.ANSWER, text="Wrote `a.txt`.")
ALLOWED = CallDecision(verdict=CallVerdict.ALLOW)
PENDING = CallDecision(verdict=CallVerdict.PENDING)


@dataclass
class ScriptedAuthorizer:
    decisions: Sequence[CallDecision]
    asked: list[str] = field(default_factory=list)
    outcomes: dict[str, bool] = field(default_factory=dict)

    async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision:
        self.asked.append(call.call_id)
        return self.decisions[len(self.asked) - 1]

    async def record_outcome(
        self, call_id: str, *, succeeded: bool, outcome: str, size: int = 0
    ) -> None:
        self.outcomes[call_id] = succeeded

    def restart(self) -> CallAuthorizer:
        raise AssertionError


@pytest.mark.parametrize(
    ("decisions", "answers", "asked", "end"),
    [
        ([CUT, ALLOWED], {}, ["offline-1", "offline-2"], ("done", True)),
        ([CUT, CUT, ALLOWED], {}, ["offline-1", "offline-2", "offline-3"], ("done", True)),
        ([CUT, PENDING], {}, ["offline-1", "offline-2"], ("", False)),
        ([ALLOWED], {"offline-2": ALLOWED}, ["offline-2"], ("done", True)),
        ([ALLOWED], {"offline-2": CUT}, ["offline-1"], ("done", True)),
        ([DONE_BEFORE], {}, ["offline-1"], ("done", False)),
        ([CUT] * 20, {}, [f"offline-{n}" for n in range(1, 21)], ("blocked", False)),
    ],
)
async def test_a_call_that_was_cut_off_is_made_again_and_never_called_done(
    tmp_path: Path,
    decisions: Sequence[CallDecision],
    answers: Mapping[str, CallDecision],
    asked: Sequence[str],
    end: tuple[str, bool],
) -> None:
    status, written = end
    permit = ScriptedAuthorizer(decisions)
    facts = {"instruction": "", "step": {"title": "write 'x' to a.txt", "detail": ""}, "done": []}
    request = _request(RunPurpose.STEP, facts, StepAnswer, workspace=tmp_path)

    _, result = await _run(replace(request, permit=permit, answers=answers))

    assert permit.asked == asked
    assert (tmp_path / "a.txt").exists() is written
    if status:
        assert isinstance(result.value, StepAnswer)
        assert (result.value.status, bool(result.value.files)) == (status, status == "done")
    else:
        assert [each.call_id for each in result.suspended] == asked[-1:]


async def test_without_facts_the_prompt_is_read() -> None:
    request = _request(RunPurpose.STEP, {}, StepAnswer)

    _, result = await _run(request)

    assert isinstance(result.value, StepAnswer)
    assert result.value.status == "blocked"


async def test_waiting_waits_as_long_as_it_says_and_ends_when_cancelled() -> None:
    asked: list[float] = []
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        waiting.set()
        await asyncio.Event().wait()

    facts = {"instruction": "", "step": {"title": "wait 5 minutes", "detail": ""}, "done": []}
    request = _request(RunPurpose.STEP, facts, StepAnswer)
    task = asyncio.ensure_future(_run(request, OfflineBackend(sleep=sleep)))
    await waiting.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert asked == [300.0]


async def test_a_form_it_does_not_know_is_refused_not_guessed() -> None:
    class Verdict(BaseModel):
        good: bool

    with pytest.raises(BackendDenied):
        await _run(_request(RunPurpose.CHAT, {"text": "hello"}, Verdict))


async def test_it_is_always_ready_and_costs_nothing() -> None:
    backend: Backend = OfflineBackend()

    _, result = await _run(_request(RunPurpose.CHAT, {"text": "hello"}, None), backend)

    assert (await backend.check()).problem == ""
    assert result.usage.cost == 0
    assert result.usage.requests == 0


async def test_the_result_is_not_there_before_the_end() -> None:
    async with OfflineBackend().run(_request(RunPurpose.CHAT, {"text": "hello"}, None)) as run:
        with pytest.raises(RuntimeError):
            _ = run.result
