"""Input tokens billed for one task: its steps in one shared session, against a session a step.

The same engine, backend, tools and model both times; the emulated API counts its prompt cache as
the real one does. What is assumed is said in the lines printed and in docs/performance.md.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.core import RealClock
from benchmarks.figures import held
from bot.engine.agent.tools.read import read as reading
from bot.engine.agent.tools.write import write as writing
from bot.engine.llm.access import Access, Api
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import Purpose, Run, RunRequest, Usage
from storage.records.tasks import Task, TaskStatus
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Call, Reply
from tests.engine_world import Engine, FakeBackend, engine

_STEPS = 8
_FILES = 6
_BAR = 0.3
_MODELS = {Api.ANTHROPIC: "claude-sonnet-5-5", Api.OPENAI: "gpt-5.2"}
_PRICES = {Api.ANTHROPIC: ((0.1, 1.25),), Api.OPENAI: ((0.1, 1.0), (0.25, 1.0), (0.5, 1.0))}
"""What a token costs that is read from the cache, and one that is written to it, where one that
is neither costs 1. OpenAI's discount differs by model, and the bar is not held against it."""
_REPORT = 2_000
_SIZES = (4_000, 12_000, 24_000)
_JUDGED = 12_000
_TASK = "Make the handbook: eight chapters from the notes, each agreeing with those before. " * 4
_CHAPTER = re.compile(r"Your step now: Chapter (\d+)")
_SENTENCE = "The queue at the east door moves by its own rules, and the notes say which. "
_PER_SOURCE = "source-{}.md"
_PER_CHAPTER = "chapter-{}.md"


@dataclass
class Sessions(FakeBackend):
    """The real backend with the engine's session, or with a new one for every step."""

    real: ApiBackend | None = None
    model: str = ""
    fresh: bool = False
    plan: str = ""
    spent: list[Usage] = field(default_factory=list)

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncGenerator[Run, None]:
        assert self.real is not None
        assert request.workspace is not None
        tools = (reading(request.workspace), writing(request.workspace))
        request = replace(request, model=self.model)
        if request.purpose is Purpose.STEP:
            request = replace(request, tools=tools)
            if self.fresh:
                request = replace(request, history=(), prompt=_alone(request.facts))
        async with self.real.run(request) as run:
            yield run
            self.spent.append(run.spent)


def _alone(facts: Mapping[str, object]) -> str:
    """All that a worker who knows nothing of the steps before needs to be told: the task, the
    plan, what the steps before reported, and its own step."""
    done, step = facts["done"], facts["step"]
    assert isinstance(done, list)
    assert isinstance(step, dict)
    marks = ["✅"] * len(done) + ["📍"] + ["○"] * (_STEPS - len(done) - 1)
    plan = "\n".join(f"{mark} Chapter {n}" for n, mark in enumerate(marks, start=1))
    return "\n\n".join(
        [
            f"The Boss's task: {facts['instruction']}",
            f"The plan: {_STEPS} chapters.\n{plan}",
            *(f"Result of “{each['title']}”: {each['summary']}" for each in done),
            f"Your step now: {step['title']}\n{step['detail']}",
        ]
    )


async def measure() -> list[str]:
    lines = [
        (
            f"{_STEPS} steps; each needs {_FILES} source files and the chapter before, reads"
            " what its session does not hold yet, writes one file, reports"
        )
    ]
    for api in _MODELS:
        for size in _SIZES:
            lines += await _compare(api, size)
    return lines


async def _compare(api: Api, size: int) -> list[str]:
    shared = await _spent(api, size, fresh=False)
    alone = await _spent(api, size, fresh=True)
    lines = []
    for read, write in _PRICES[api]:
        mine, theirs = _bill(shared, read, write), _bill(alone, read, write)
        told = f"{api}, files of {size // 1000} KB, a cached token at {read}:"
        told += f" {mine:,.0f} against {theirs:,.0f}, ratio"
        is_judged = api is Api.ANTHROPIC and size == _JUDGED
        ratio = mine / theirs
        lines.append(held(told, ratio, "", _BAR) if is_judged else f"{told} {ratio:.2f}")
    return lines


async def _spent(api: Api, size: int, *, fresh: bool) -> list[Usage]:
    """What each call of the whole task used, planning too."""
    with tempfile.TemporaryDirectory() as folder:
        async with Models() as models:
            models.replies(_answer)
            url = models.url if api is Api.ANTHROPIC else models.openai_url
            real = ApiBackend(Access(api=api, key=models.key, base_url=url), ())
            worker = Sessions(real=real, model=_MODELS[api], fresh=fresh)
            async with engine(Path(folder), worker, clock=RealClock()) as world:
                task = await world.add(_TASK)
                _write_sources(Path(folder) / "work" / task.id, size)
                await _completed(world, task)
            await real.aclose()
            if models.refused or len(worker.spent) != _STEPS + 1:
                raise RuntimeError(f"not the work that was meant: {models.refused}")
    return worker.spent


async def _completed(world: Engine, task: Task) -> None:
    async with asyncio.timeout(120):
        while (now := await world.store.tasks.get(task.id)).status is not TaskStatus.COMPLETED:
            if now.status.is_final or now.status is TaskStatus.BLOCKED:
                raise RuntimeError(f"{now.status}: {now.status_reason}")
            await asyncio.sleep(0.02)


def _write_sources(workspace: Path, size: int) -> None:
    workspace.mkdir(parents=True, exist_ok=True)
    for n in range(1, _FILES + 1):
        text = f"# Source {n}\n" + _SENTENCE * (size // len(_SENTENCE))
        (workspace / _PER_SOURCE.format(n)).write_text(text)


def _bill(spent: list[Usage], read: float, write: float) -> float:
    """Input tokens, each at its price."""
    return sum(
        usage.input_tokens
        - (1 - read) * usage.cache_read_tokens
        - (1 - write) * usage.cache_write_tokens
        for usage in spent
    )


def _answer(asked: Asked) -> Reply:
    """The model of both sides: it reads what it needs and cannot see yet, writes, reports."""
    form = next(name for name in asked.tools if name not in {"read", "write"})
    if "steps" in (asked.tools[form].get("properties") or {}):
        return Reply(calls=[Call(name=form, arguments=_plan())])
    found = _CHAPTER.search(asked.last)
    assert found is not None, asked.last
    chapter = int(found[1])
    needed = [_PER_SOURCE.format(n) for n in range(1, _FILES + 1)]
    if chapter > 1:
        needed.append(_PER_CHAPTER.format(chapter - 1))
    seen = _seen(asked)
    missing = [name for name in needed if name not in seen]
    if missing:
        return Reply(calls=[Call(name="read", arguments={"path": each}) for each in missing])
    mine = _PER_CHAPTER.format(chapter)
    if mine not in seen:
        content = f"# Chapter {chapter}\n" + _SENTENCE * (_REPORT // len(_SENTENCE))
        return Reply(calls=[Call(name="write", arguments={"path": mine, "content": content})])
    summary = f"Chapter {chapter} is written. " + _SENTENCE * 4
    value = {"status": "done", "summary": summary, "files": [mine], "needs_replan": False}
    return Reply(calls=[Call(name=form, arguments=value)])


def _plan() -> dict[str, object]:
    steps = [
        {"title": f"Chapter {n}", "detail": f"Write {_PER_CHAPTER.format(n)} from all the sources."}
        for n in range(1, _STEPS + 1)
    ]
    return {"plan": f"{_STEPS} chapters.", "steps": steps, "answer": ""}


def _seen(asked: Asked) -> set[str]:
    """The files whose content stands in the prompt: read or written earlier in it."""
    return set(re.findall(r'(?:source|chapter)-\d+\.md(?=\\*")', _calls(asked)))


def _calls(asked: Asked) -> str:
    """The arguments of all tool calls in the prompt."""
    made = []
    for message in asked.body["messages"]:
        made += [str(call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        content = message["content"]
        if isinstance(content, list):
            made += [f'"{b["input"].get("path", "")}"' for b in content if b["type"] == "tool_use"]
    return "\n".join(made)
