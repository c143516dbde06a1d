"""Sizes of the whole program's prompts, and what of a chat's a provider's cache holds."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_least, at_most
from tests.emulators.models.script import (
    ApiKind,
    ReceivedRequest,
    ScriptedCall,
    ScriptedReply,
    estimate_tokens,
)
from tests.journeys.model_world import (
    ModelWorld,
    Scene,
    ask,
    model_world,
    plan_reply,
    scene_of,
    script_task,
    step_reply,
)

_TURNS = 10
_STEPS = 5
_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_APIS: tuple[ApiKind, ...] = ("anthropic", "openai")
_MOST_HI = 3_380
_MOST_STEP = 4_000
_ANSWER = "The boats of row {n} were painted green and blue before the harbour festival began. " * 4


async def measure(scale: Scale) -> list[Measurement]:
    """An owner writes to the real program on Telegram, which has the tools of a fresh installation.

    The chat: ten messages with short answers, under the cache rules of each API: Anthropic's
    marks, and OpenAI's automatic prefixes of 1,024 tokens or more in steps of 128. The share is of
    all input tokens of the ten turns, the first included, which no cache can know.

    The steps: a task of five steps, each with one call of a tool, under the same rules. The share
    is of all input tokens of the steps' ten calls; the call that plans has other tools.

    The sizes: the input of the only call that "hi" takes, and of the call that does the step of a
    task with one step; before it comes the call that plans. Counted are the characters of tools,
    instructions and messages as sent, four as a token; a tokenizer counts somewhat fewer."""
    apis = scale.pick(_APIS, _APIS[:1])
    figures: list[Measurement] = []
    for api in apis:
        with tempfile.TemporaryDirectory() as home:
            async with model_world(Path(home), api) as world:
                share = await _cached_share(world)
                figures.append(
                    Figure(f"{api}: cached of a chat's input", 100 * share, "%", at_least(80))
                )
                of_steps = 100 * await _cached_share_of_steps(world)
                name = f"{api}: cached of the input of a task's five steps"
                figures.append(Figure(name, of_steps, "%"))
                figures += await _sizes(world, api)
    return figures


async def _cached_share(world: ModelWorld) -> float:
    boss, chat = world.new_owner()
    begun = len(world.models.billed)
    for n in range(_TURNS):
        cue = f"chat turn {n}"
        world.script.script(cue, "talk", ScriptedReply(text=f"{_ANSWER.format(n=n)}Answer {n}."))
        await ask(
            boss, chat, f"{cue}: my boat is called Anna {n}, what is painted?", f"Answer {n}."
        )
    return _share_since(world, begun, "talk", "chat turn", _TURNS)


async def _cached_share_of_steps(world: ModelWorld) -> float:
    boss, chat = world.new_owner()
    begun = len(world.models.billed)
    titles = [f"fleet step {n}" for n in range(_STEPS)]
    world.script.script("task-fleet", "plan", plan_reply(*titles))
    calls = count()

    def look_and_report(asked: ReceivedRequest) -> ScriptedReply:
        step, is_report = divmod(next(calls), 2)
        if is_report:
            return step_reply(f"{_ANSWER.format(n=step)}Step {step} is over.")(asked)
        return ScriptedReply(calls=[ScriptedCall(name="list", arguments={})])

    world.script.script("fleet step", "step", look_and_report)
    await ask(boss, chat, "/run task-fleet", f"Step {_STEPS - 1} is over.")
    return _share_since(world, begun, "step", "fleet step", 2 * _STEPS)


def _share_since(world: ModelWorld, begun: int, scene: Scene, cue: str, expected: int) -> float:
    usages = [
        usage
        for asked, usage in world.models.billed[begun:]
        if scene_of(asked) == scene and any(cue in each for each in asked.user_texts)
    ]
    if len(usages) != expected:
        raise RuntimeError(f"{len(usages)} calls instead of {expected}")
    read = sum(usage["cache_read_input_tokens"] for usage in usages)
    return read / sum(usage[name] for usage in usages for name in _INPUT)


async def _sizes(world: ModelWorld, api: ApiKind) -> list[Measurement]:
    boss, chat = world.new_owner()
    world.script.script("hi", "talk", ScriptedReply(text="Hello there."))
    await ask(boss, chat, "hi", "Hello there.")
    command = script_task(world.script, "boat")
    await ask(boss, chat, command, "It is done: boat.")
    hi = world.script.requests_for("hi", "talk")
    plan = world.script.requests_for("task-boat", "plan")
    step = world.script.requests_for("step-boat", "step")
    return [
        Figure(f"{api}: “hi”", _size(hi[:1]), "tokens", at_most(_MOST_HI)),
        Figure(f"{api}: the plan of a task with one step", _size(plan), "tokens"),
        Figure(f"{api}: its step", _size(step), "tokens", at_most(_MOST_STEP)),
    ]


def _size(requests: Sequence[ReceivedRequest]) -> int:
    parts = ("tools", "system", "messages")
    return sum(estimate_tokens([each.body.get(part) for part in parts]) for each in requests)
