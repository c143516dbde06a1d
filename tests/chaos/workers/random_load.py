"""Workers under load: tasks of a model that writes files, with leave or without, and sends off
helpers, on a service that is sometimes tired."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path

from storage.records.tasks import TaskPriority
from tests.chaos.channels import ChannelClient
from tests.chaos.inspection import rows
from tests.chaos.workers.scripted_model import ScriptLine, careful, says, sends, writes
from tests.emulators.models.default_replies import default_reply
from tests.emulators.models.script import ReceivedRequest, ScriptedFailure, ScriptedReply
from tests.journeys.model_world import plan_reply, scene_of, step_reply

ASKED = {"SHIFTBOSS_TOOLS_ASK_FOR": "write(*-1.txt), write(*-4.txt), write(*-7.txt)"}
"""Every third file takes leave."""

_HELPED = 3
_LOOK = "look at "
_JOB = re.compile(r"job (alone|helped) (file-\d+\.txt)")
_HELP = re.compile(r"help-(file-\d+\.txt)")
_TIRED = 0.08
_A_PRESS = 5.0
_REST = 0.1


def task_of(number: int, chance: random.Random) -> str:
    kind = "helped" if is_helped(number) else "alone"
    return f"/run -p {chance.choice(list(TaskPriority))} job {kind} file-{number}.txt"


def is_helped(number: int) -> bool:
    """A helper that was cut off does not do it again."""
    return number % _HELPED == _HELPED - 1


def text_of(number: object) -> str:
    return f"number <{number}>"


def work_of(seed: int) -> ScriptLine:
    """A model for such tasks."""
    luck = random.Random(seed)
    tired = False

    def answer(asked: ReceivedRequest) -> ScriptedReply:
        nonlocal tired
        tired = not tired and luck.random() < _TIRED
        if tired:
            return ScriptedReply(failure=ScriptedFailure(status=429, retry_after="1"))
        return _answer(asked)

    return answer


def _answer(asked: ReceivedRequest) -> ScriptedReply:
    scene = scene_of(asked)
    for said in reversed(asked.user_texts):
        if scene == "talk" and (helped := _HELP.search(said)):
            return _written(helped[1], says(f"{helped[1]} is there."))(asked)
        if scene != "talk" and (job := _JOB.search(said)):
            if scene == "plan":
                return plan_reply(job[0], f"{_LOOK}{job[0]}")(asked)
            if f"Your step now: {_LOOK}" in said:
                return step_reply("It looks good.")(asked)
            if job[1] == "alone":
                return _written(job[2], step_reply("It is written."))(asked)
            return sends([f"help-{job[2]}"], step_reply("One is off."), step_reply("It is told."))(
                asked
            )
    return default_reply(asked)


def _written(name: str, end: ScriptLine) -> ScriptLine:
    text = text_of(name.removeprefix("file-").removesuffix(".txt"))
    return careful(writes(name, text), name, text, end)


async def allow_all(home: Path, channel: ChannelClient) -> None:
    """Press whatever waits; a helper may have given up waiting before."""
    while True:
        for (title,) in rows(home, "SELECT title FROM approvals WHERE state = 'waiting'"):
            named = re.search(r"file-\d+\.txt", title)
            if named is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_A_PRESS):
                        await channel.press("Once", about=named[0])
        await asyncio.sleep(_REST)
