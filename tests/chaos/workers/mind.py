"""What the model says in the stories of workers: always the same to the same question, since it is
asked again by every life that finds no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tests.emulators.models.script import Asked, Call, Failure, Reply
from tests.emulators.models.worker import work
from tests.journeys.model_world import Scene, done, scene_of, steps

Line: TypeAlias = Callable[[Asked], Reply]

_REPORTS = "Your helpers report"
_CUT = "cut off while it ran"
_TOOLS = {"write", "read", "exec", "ask_user", "sessions_spawn", "skill_load"}
_NEVER = asyncio.Event()


def writes(path: str, content: str) -> Call:
    return Call(name="write", arguments={"path": path, "content": content})


def reads(path: str) -> Call:
    return Call(name="read", arguments={"path": path})


def runs(command: str) -> Call:
    return Call(name="exec", arguments={"command": command})


def careful(wish: Call, path: str, content: str, end: Line) -> Line:
    """Want one thing that shows in this file. Told that it was cut off, look first and want it
    again only where it has not been done."""

    def line(asked: Asked) -> Reply:
        results = _results(asked)
        if not results:
            return Reply(calls=[wish])
        tool, text = results[-1]
        if _CUT in text:
            return Reply(calls=[reads(path)])
        if tool == "read" and content not in text:
            return Reply(calls=[wish])
        return end(asked)

    return line


def asks(question: str, *options: str) -> Line:
    """Ask, and end with what was answered."""
    call = Call(name="ask_user", arguments={"question": question, "options": list(options)})

    def line(asked: Asked) -> Reply:
        results = _results(asked)
        return done(f"So it is {results[-1][1]}.")(asked) if results else Reply(calls=[call])

    return line


def sends(tasks: Sequence[str], sent: Line, end: Line) -> Line:
    """Send helpers off, say so, and end when all have reported."""
    labels = {each: f"the {each.removeprefix('help-')}" for each in tasks}

    def line(asked: Asked) -> Reply:
        heard = "".join(said for said in asked.said if _REPORTS in said)
        missing = [each for each, label in labels.items() if f"“{label}”" not in heard]
        if not missing:
            return end(asked)
        wishes = [{"task": each, "label": labels[each]} for each in missing]
        calls = [Call(name="sessions_spawn", arguments=wish) for wish in wishes]
        return sent(asked) if _results(asked) else Reply(calls=calls)

    return line


def says(text: str) -> Line:
    return lambda _asked: Reply(text=text)


def fails(_asked: Asked) -> Reply:
    return Reply(failure=Failure(status=400))


def never_ends(_asked: Asked) -> Reply:
    return Reply(text="never said", hold=_NEVER)


def once(call: Call, end: Line, *, before: Sequence[Call] = ()) -> Line:
    """Want one thing, and end whatever comes of it."""

    def line(asked: Asked) -> Reply:
        had = len(_results(asked))
        if had < len(before):
            return Reply(calls=before)
        return end(asked) if had > len(before) else Reply(calls=[call])

    return line


def _results(asked: Asked) -> Sequence[tuple[str, str]]:
    """Of tools, not of the forms that were filled in before."""
    return [(tool, text) for tool, text in asked.results if tool in _TOOLS]


def mind(
    tasks: Mapping[str, Line], talks: Mapping[str, Line], *, unsafe: Sequence[str] = ()
) -> Line:
    """A model that knows these tasks, of one step each and not repeatable where `unsafe`, and what
    to say in these talks: by the newest words that it was told."""
    known: dict[tuple[str, Scene], Line] = {}
    for cue, line in tasks.items():
        known[cue, "plan"] = steps(f"do {cue}", repeatable=cue not in unsafe)
        known[cue, "step"] = line
    known.update({(cue, "talk"): line for cue, line in talks.items()})

    def answer(asked: Asked) -> Reply:
        scene = scene_of(asked)
        for said in reversed(asked.said):
            for (cue, wanted), line in known.items():
                if cue in said and wanted == scene:
                    return line(asked)
        return work(asked)

    return answer
