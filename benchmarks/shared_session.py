"""Input tokens billed for a task whose steps share a session, against a session for every step."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.engine_runs import RealClock
from benchmarks.figures import Figure, Measurement, Scale, at_most
from bot.engine.llm.api.access import ApiAccess, ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import BackendReadiness, BackendRun, RunPurpose, RunRequest, TokenUsage
from bot.engine.tools.file_editing import write_tool
from bot.engine.tools.file_reading import read_tool
from storage.records.tasks import Task, TaskStatus
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.engine_harness import EngineHarness, run_engine
from tests.fakes.backends import OnlyBackend
from tests.waiting import WAIT_SECONDS

_STEPS = 8
_SOURCES = 6
_MODELS = {ApiProvider.ANTHROPIC: "claude-sonnet-5-5", ApiProvider.OPENAI: "gpt-5.2"}
_PRICES = {
    ApiProvider.ANTHROPIC: ((0.1, 1.25),),
    ApiProvider.OPENAI: ((0.1, 1.0), (0.25, 1.0), (0.5, 1.0)),
}
"""The price of a token that is read from the cache and of one that is written to it, where any
other input token costs 1. OpenAI's discount differs by model, and the bar is not for it."""
_CHAPTER_SIZE = 2_000
_SOURCE_SIZES = (4_000, 12_000, 24_000)
_JUDGED_SIZE = 12_000
_TASK = "Make the handbook: eight chapters from the notes, each agreeing with those before. " * 4
_CHAPTER = re.compile(r"Your step now: Chapter (\d+)")
_SENTENCE = "The queue at the east door moves by its own rules, and the notes say which.\n"


async def measure(scale: Scale) -> list[Measurement]:
    """A task of eight steps: each needs six source files and the chapter that the step before has
    written. The model reads in one turn whatever its session does not hold yet, writes a chapter of
    2 KB, and reports. One side works in the task's shared session; the other begins a session at
    every step and is given the task, the plan and every earlier report. Engine, backend, tools,
    model and prompt cache are the same. A figure is the sum of input tokens at their prices: with
    Anthropic's rules a token read from the cache costs 0.1 and one written to it 1.25. The emulated
    API counts four characters as a token. The ratio depends on how much there is to read; the bar
    is for sources of 12 KB each. With OpenAI's rules, shown for three discounts, writing is free.

    A shared session pays off as long as it stays whole: where old results are shortened, the worker
    reads its files again. The run fails if the model cannot see all of a file that it has just
    read."""
    apis = scale.pick(tuple(_MODELS), (ApiProvider.ANTHROPIC,))
    sizes = scale.pick(_SOURCE_SIZES, (_JUDGED_SIZE,))
    steps = scale.pick(_STEPS, 2)
    figures: list[Measurement] = []
    for api in apis:
        for size in sizes:
            figures += await _compare(api, size, steps)
    return figures


async def _compare(api: ApiProvider, size: int, steps: int) -> list[Figure]:
    shared = await _run_task(api, size, steps, is_shared=True)
    separate = await _run_task(api, size, steps, is_shared=False)
    figures = []
    for read_price, write_price in _PRICES[api]:
        name = f"{api}, sources of {size // 1000} KB, a cached token at {read_price}"
        mine = _bill(shared, read_price, write_price)
        theirs = _bill(separate, read_price, write_price)
        is_judged = api is ApiProvider.ANTHROPIC and size == _JUDGED_SIZE
        bar = at_most(0.3) if is_judged else None
        figures += [
            Figure(f"{name}: shared session", mine, "tokens"),
            Figure(f"{name}: a session a step", theirs, "tokens"),
            Figure(f"{name}: ratio", mine / theirs, "×", bar),
        ]
    return figures


@dataclass
class SessionComparisonBackend:
    """The real backend. Where it is not `is_shared`, it gives every step a new session."""

    real: ApiBackend
    model: str
    source_size: int
    steps: int
    is_shared: bool
    spent: list[TokenUsage] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.real.name

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def accepts_tools(self) -> bool:
        return self.real.accepts_tools

    async def check(self) -> BackendReadiness:
        return await self.real.check()

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncGenerator[BackendRun, None]:
        assert request.workspace is not None
        if request.purpose is RunPurpose.STEP:
            _write_sources(request.workspace, self.source_size)
            tools = (read_tool(request.workspace), write_tool(request.workspace))
            request = replace(request, tools=tools)
            if not self.is_shared:
                prompt = _prompt_of_new_session(request.facts, self.steps)
                request = replace(request, history=(), prompt=prompt)
        async with self.real.run(request) as run:
            yield run
            self.spent.append(run.usage_so_far)


def _prompt_of_new_session(facts: Mapping[str, object], steps: int) -> str:
    """Everything that a worker without the earlier steps' session has to be told."""
    done, step = facts["done"], facts["step"]
    assert isinstance(done, list)
    assert isinstance(step, dict)
    marks = ["✅"] * len(done) + ["📍"] + ["○"] * (steps - len(done) - 1)
    plan = "\n".join(f"{mark} Chapter {n}" for n, mark in enumerate(marks, start=1))
    return "\n\n".join(
        [
            f"The Boss's task: {facts['instruction']}",
            f"The plan: {steps} chapters.\n{plan}",
            *(f"Result of “{each['title']}”: {each['summary']}" for each in done),
            f"Your step now: {step['title']}\n{step['detail']}",
        ]
    )


async def _run_task(
    api: ApiProvider, size: int, steps: int, *, is_shared: bool
) -> list[TokenUsage]:
    """The usage of each run of the whole task, its planning included."""
    writer = HandbookModel(steps)
    with tempfile.TemporaryDirectory() as folder:
        async with ModelEmulator() as models:
            models.replies(writer.reply)
            url = models.url if api is ApiProvider.ANTHROPIC else models.openai_url
            access = ApiAccess(provider=api, key=models.key, base_url=url)
            async with aclosing(ApiBackend(access, ())) as real:
                worker = SessionComparisonBackend(
                    real=real,
                    model=_MODELS[api],
                    source_size=size,
                    steps=steps,
                    is_shared=is_shared,
                )
                async with run_engine(
                    Path(folder), backends=OnlyBackend(worker), clock=RealClock()
                ) as world:
                    await _complete(world, await world.create_task(_TASK), writer)
            if models.refused or len(worker.spent) != steps + 1:
                raise RuntimeError(f"{len(worker.spent)} runs, refused: {models.refused}")
    return worker.spent


async def _complete(world: EngineHarness, task: Task, writer: HandbookModel) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (now := await world.store.tasks.get(task.id)).status is not TaskStatus.COMPLETED:
            if writer.problem or now.status.is_final or now.status is TaskStatus.BLOCKED:
                raise RuntimeError(writer.problem or f"{now.status}: {now.status_reason}")
            await asyncio.sleep(0.02)


def _write_sources(workspace: Path, size: int) -> None:
    for n in range(1, _SOURCES + 1):
        name = _source(n)
        if not (workspace / name).exists():
            (workspace / name).write_text(_text(name, size))


def _source(n: int) -> str:
    return f"source-{n}.md"


def _chapter(n: int) -> str:
    return f"chapter-{n}.md"


def _text(name: str, size: int) -> str:
    half = _SENTENCE * (size // len(_SENTENCE) // 2)
    middle, end = _marks(name)
    return f"# {name}\n{half}{middle}\n{half}{end}\n"


def _marks(name: str) -> tuple[str, str]:
    """Two lines of a file. A prompt that lacks one of them does not hold the whole file: long
    results of tools are cut at their end, and old ones in their middle."""
    return f"(middle of {name})", f"(end of {name})"


def _is_whole(name: str, prompt: str) -> bool:
    return all(mark in prompt for mark in _marks(name))


def _bill(spent: list[TokenUsage], read_price: float, write_price: float) -> float:
    """Input tokens, each at its price."""
    return sum(
        usage.input_tokens
        - (1 - read_price) * usage.cache_read_tokens
        - (1 - write_price) * usage.cache_write_tokens
        for usage in spent
    )


@dataclass
class HandbookModel:
    """The model of both sides: it reads the files that it cannot see yet, writes, and reports.
    `problem` says which files it asked for and still cannot see."""

    steps: int
    problem: str = ""

    def reply(self, asked: ReceivedRequest) -> ScriptedReply:
        form = next(name for name in asked.tools if name not in {"read", "write"})
        if "steps" in (asked.tools[form].get("properties") or {}):
            return _calls(form, self._plan())
        found = _CHAPTER.search(asked.last_text)
        assert found is not None, asked.last_text
        return self._write_chapter(asked, form, int(found[1]))

    def _write_chapter(self, asked: ReceivedRequest, form: str, number: int) -> ScriptedReply:
        needed = [_source(n) for n in range(1, _SOURCES + 1)]
        if number > 1:
            needed.append(_chapter(number - 1))
        prompt, mine = json.dumps(asked.body["messages"]), _chapter(number)
        missing = [name for name in needed if not _is_whole(name, prompt)]
        if missing and any(name == "read" for name, _ in asked.tool_results):
            self.problem = f"chapter {number}: read, but not to be seen: {', '.join(missing)}"
        if missing:
            return _calls("read", *({"path": each} for each in missing))
        if not _is_whole(mine, prompt):
            return _calls("write", {"path": mine, "content": _text(mine, _CHAPTER_SIZE)})
        summary = f"Chapter {number} is written. " + _SENTENCE.strip() * 4
        return _calls(
            form, {"status": "done", "summary": summary, "files": [mine], "needs_replan": False}
        )

    def _plan(self) -> dict[str, object]:
        steps = [
            {"title": f"Chapter {n}", "detail": f"Write {_chapter(n)} from all the sources."}
            for n in range(1, self.steps + 1)
        ]
        return {"plan": f"{self.steps} chapters.", "steps": steps, "answer": ""}


def _calls(name: str, *arguments: Mapping[str, object]) -> ScriptedReply:
    return ScriptedReply(calls=[ScriptedCall(name=name, arguments=each) for each in arguments])
