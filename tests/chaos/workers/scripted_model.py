"""The model's answers in the stories of workers: the same question always gets the same answer,
because every life that finds no answer asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tests.emulators.models.default_replies import default_reply
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.journeys.model_world import Scene, plan_reply, scene_of, step_reply

ScriptLine: TypeAlias = Callable[[ReceivedRequest], ScriptedReply]

_REPORTS = "Your helpers report"
_CUT = ("cut off while it ran", "interrupted before this call ended")
_TOOLS = {"write", "read", "exec", "ask_user", "sessions_spawn", "skill_load"}
_NEVER = asyncio.Event()


def writes(path: str, content: str) -> ScriptedCall:
    return ScriptedCall(name="write", arguments={"path": path, "content": content})


def reads(path: str) -> ScriptedCall:
    return ScriptedCall(name="read", arguments={"path": path})


def runs(command: str) -> ScriptedCall:
    return ScriptedCall(name="exec", arguments={"command": command})


def careful(wish: ScriptedCall, path: str, content: str, end: ScriptLine) -> ScriptLine:
    """Want one thing that shows in this file. Told that it was cut off, look first and want it
    again only where it has not been done."""

    def line(asked: ReceivedRequest) -> ScriptedReply:
        results = _results(asked)
        if not results:
            return ScriptedReply(calls=[wish])
        tool, text = results[-1]
        if any(each in text for each in _CUT):
            return ScriptedReply(calls=[reads(path)])
        if tool == "read" and content not in text:
            return ScriptedReply(calls=[wish])
        return end(asked)

    return line


def asks(question: str, *options: str) -> ScriptLine:
    """Ask, and end with what was answered."""
    call = ScriptedCall(name="ask_user", arguments={"question": question, "options": list(options)})

    def line(asked: ReceivedRequest) -> ScriptedReply:
        results = _results(asked)
        return (
            step_reply(f"So it is {results[-1][1]}.")(asked)
            if results
            else ScriptedReply(calls=[call])
        )

    return line


def sends(tasks: Sequence[str], sent: ScriptLine, end: ScriptLine) -> ScriptLine:
    """Send helpers off, say so, and end when all have reported."""
    labels = {each: f"the {each.removeprefix('help-')}" for each in tasks}

    def line(asked: ReceivedRequest) -> ScriptedReply:
        heard = "".join(said for said in asked.user_texts if _REPORTS in said)
        missing = [each for each, label in labels.items() if f"“{label}”" not in heard]
        if not missing:
            return end(asked)
        wishes = [{"task": each, "label": labels[each]} for each in missing]
        calls = [ScriptedCall(name="sessions_spawn", arguments=wish) for wish in wishes]
        return sent(asked) if _results(asked) else ScriptedReply(calls=calls)

    return line


def says(text: str) -> ScriptLine:
    return lambda _asked: ScriptedReply(text=text)


def fails(_asked: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(failure=ScriptedFailure(status=400))


def never_ends(_asked: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(text="never said", hold=_NEVER)


def once(call: ScriptedCall, end: ScriptLine, *, before: Sequence[ScriptedCall] = ()) -> ScriptLine:
    """Want one thing, and end whatever comes of it."""

    def line(asked: ReceivedRequest) -> ScriptedReply:
        had = len(_results(asked))
        if had < len(before):
            return ScriptedReply(calls=before)
        return end(asked) if had > len(before) else ScriptedReply(calls=[call])

    return line


def _results(asked: ReceivedRequest) -> Sequence[tuple[str, str]]:
    """Of tools, not of the forms that were filled in before."""
    return [(tool, text) for tool, text in asked.tool_results if tool in _TOOLS]


def scripted_model(
    tasks: Mapping[str, ScriptLine], talks: Mapping[str, ScriptLine], *, unsafe: Sequence[str] = ()
) -> ScriptLine:
    """A model that knows these tasks, of one step each and not repeatable where `unsafe`, and what
    to say in these talks: by the newest words that it was told."""
    known: dict[tuple[str, Scene], ScriptLine] = {}
    for cue, line in tasks.items():
        known[cue, "plan"] = plan_reply(f"do {cue}", repeatable=cue not in unsafe)
        known[cue, "step"] = line
    known.update({(cue, "talk"): line for cue, line in talks.items()})

    def answer(asked: ReceivedRequest) -> ScriptedReply:
        scene = scene_of(asked)
        for said in reversed(asked.user_texts):
            for (cue, wanted), line in known.items():
                if cue in said and wanted == scene:
                    return line(asked)
        return default_reply(asked)

    return answer
