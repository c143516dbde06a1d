"""The real program on emulated platforms and emulated models, and who on them says what."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.emulators.models.default_replies import default_reply
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import (
    ApiKind,
    ReceivedRequest,
    ScriptedCall,
    ScriptedReply,
    stream_pieces,
)
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.platform_world import PlatformWorld, open_platforms
from tests.waiting import WAIT_SECONDS, wait_until

_OWNER_IDS = range(1, 40)
_PAUSED_AT = 30

ScriptLine: TypeAlias = ScriptedReply | Callable[[ReceivedRequest], ScriptedReply]
Scene: TypeAlias = Literal["plan", "step", "talk", "notes"]


def fill_form(**value: Any) -> Callable[[ReceivedRequest], ScriptedReply]:
    """Fill in the form that the request has on offer."""

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        form = next(name for name, schema in asked.tools.items() if _scene_of(schema))
        return ScriptedReply(calls=[ScriptedCall(name=form, arguments=value)])

    return reply


def plan_reply(*titles: str, repeatable: bool = True) -> Callable[[ReceivedRequest], ScriptedReply]:
    planned = [{"title": title, "detail": "", "repeatable": repeatable} for title in titles]
    return fill_form(plan="As asked.", steps=planned, answer="")


def step_reply(summary: str, *files: str) -> Callable[[ReceivedRequest], ScriptedReply]:
    return fill_form(status="done", summary=summary, files=list(files), needs_replan=False)


def held_reply(line: ScriptLine, go: asyncio.Event) -> Callable[[ReceivedRequest], ScriptedReply]:
    """The same answer once it is let go: a step that is under way as long as the test wants."""

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        return replace(line if isinstance(line, ScriptedReply) else line(asked), hold=go)

    return reply


def through(
    replies: Sequence[Sequence[ScriptedCall]], end: Callable[[ReceivedRequest], ScriptedReply]
) -> Callable[[ReceivedRequest], ScriptedReply]:
    """Make the calls of each reply, whatever comes of them, and end."""
    after = {sum(map(len, replies[:n])): calls for n, calls in enumerate(replies)}
    tools = {call.name for calls in replies for call in calls}

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        results = [tool for tool, _ in asked.tool_results if tool in tools]
        calls = after.get(len(results))
        return end(asked) if calls is None else ScriptedReply(calls=list(calls))

    return reply


def write_call(path: str, content: str = "some text") -> ScriptedReply:
    return ScriptedReply(
        calls=[ScriptedCall(name="write", arguments={"path": path, "content": content})]
    )


def run_call(command: str) -> ScriptedReply:
    return ScriptedReply(calls=[ScriptedCall(name="exec", arguments={"command": command})])


class ScriptedModel:
    """Which answer a model gives to whom: by a cue in what was said. Lines are given once each,
    in order; a last line that is a function goes on for ever. Without a line the worker answers."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, Scene], deque[ScriptLine]] = {}
        self.requests: list[ReceivedRequest] = []

    def script(self, cue: str, scene: Scene, *lines: ScriptLine) -> None:
        self._lines[cue, scene] = deque(lines)

    async def wait_for_request(self, cue: str, scene: Scene = "step", count: int = 1) -> None:
        """Until so many requests of the scene have come."""
        await wait_until(lambda: len(self.requests_for(cue, scene)) >= count)

    def requests_for(self, cue: str, scene: Scene | None = None) -> list[ReceivedRequest]:
        """The requests that this cue led to."""
        return [
            asked
            for asked in self.requests
            if any(cue in said for said in asked.user_texts) and scene in {None, scene_of(asked)}
        ]

    def __call__(self, asked: ReceivedRequest) -> ScriptedReply:
        self.requests.append(asked)
        scene = scene_of(asked)
        for said in reversed(asked.user_texts):
            for (cue, wanted), lines in self._lines.items():
                if cue in said and wanted == scene and lines:
                    last = len(lines) == 1 and not isinstance(lines[0], ScriptedReply)
                    line = lines[0] if last else lines.popleft()
                    return line if isinstance(line, ScriptedReply) else line(asked)
        return fill_form(memories=[])(asked) if scene == "notes" else default_reply(asked)


def scene_of(asked: ReceivedRequest) -> Scene:
    return next((s for schema in asked.tools.values() if (s := _scene_of(schema))), "talk")


def _scene_of(schema: Mapping[str, Any]) -> Scene | None:
    fields = set(schema.get("properties") or ())
    if "memories" in fields:
        return "notes"
    if {"plan", "steps"} <= fields:
        return "plan"
    return "step" if {"status", "summary"} <= fields else None


@dataclass
class ModelWorld(PlatformWorld):
    """One program that serves both platforms and the web chat with one kind of model."""

    api: ApiKind
    models: ModelEmulator
    script: ScriptedModel
    _numbers: Iterator[int] = field(default_factory=lambda: iter(_OWNER_IDS[1:]))

    def new_owner(self, language: str = "en") -> tuple[TelegramUser, TelegramChat]:
        """An owner who has not written yet, and their private chat: a session of their own."""
        number = next(self._numbers)
        boss = self.telegram.user(number, f"Boss {number}", language)
        return boss, self.telegram.private_chat(boss)

    async def wait_until(self, holds: Callable[[], Any], timeout: float = WAIT_SECONDS) -> None:
        """Wait for something that the models or the platforms see."""
        await wait_until(holds, timeout)

    async def restart(self, **settings: str) -> None:
        """Stop it politely and start it again, with other settings where given."""
        await self.program.stop()
        self.program.settings = {**self.program.settings, **settings}
        await self.program.start()


@asynccontextmanager
async def model_world(
    home: Path, api: ApiKind, **settings: str
) -> AsyncGenerator[ModelWorld, None]:
    async with ModelEmulator() as models:
        script = ScriptedModel()
        models.replies(script)
        base = {"SHIFTBOSS_SLOTS": "16", **model_settings(models, api)}
        async with open_platforms(
            home, owner_ids=_OWNER_IDS, feishu_owner="Boss", **base | settings
        ) as platforms:
            yield ModelWorld(api=api, models=models, script=script, **vars(platforms))


@asynccontextmanager
async def scripted_model(
    api: ApiKind = "openai",
) -> AsyncGenerator[tuple[ScriptedModel, Mapping[str, str]], None]:
    """A stage, and the settings with which a program's work is done on it."""
    async with ModelEmulator() as models:
        stage = ScriptedModel()
        models.replies(stage)
        yield stage, model_settings(models, api)


def model_settings(models: ModelEmulator, api: ApiKind) -> dict[str, str]:
    if api == "anthropic":
        return {"ANTHROPIC_API_KEY": models.key, "ANTHROPIC_BASE_URL": models.url}
    return {
        "OPENAI_API_KEY": models.key,
        "OPENAI_BASE_URL": models.openai_url,
        "SHIFTBOSS_MODEL": "openai:local-model",
    }


def shows(message: TelegramMessage, *parts: str) -> bool:
    return message.from_bot and all(part in message.text for part in parts)


async def wait_for_message(
    chat: TelegramChat, *parts: str, timeout: float = WAIT_SECONDS
) -> TelegramMessage:
    """The bot's first message with all of these in it."""
    return await chat.wait_for(lambda m: shows(m, *parts), timeout)


async def ask(
    who: TelegramUser,
    chat: TelegramChat,
    text: str,
    *expects: str,
    reply_to: TelegramMessage | None = None,
) -> TelegramMessage:
    """Say this; the bot's next message with all of these parts in it."""
    known = {message.id for message in chat.from_bot}
    await who.says(chat, text, reply_to=reply_to)
    return await chat.wait_for(lambda m: m.id not in known and shows(m, *expects))


async def start_new_conversation(boss: TelegramUser, chat: TelegramChat) -> None:
    await ask(boss, chat, "/reset", "Started a new conversation")


def script_task(script: ScriptedModel, cue: str, *lines: ScriptedReply) -> str:
    """Script a task of one step whose worker says these lines first; the command that starts it."""
    script.script(f"task-{cue}", "plan", plan_reply(f"step-{cue}"))
    script.script(f"step-{cue}", "step", *lines, step_reply(f"It is done: {cue}."))
    return f"/run task-{cue}"


def paused_answer(text: str) -> tuple[ScriptedReply, asyncio.Event]:
    """An answer that stops in its middle until the event is set."""
    go = asyncio.Event()
    assert len(stream_pieces(text)) > _PAUSED_AT, "too short to stop in its middle"
    return ScriptedReply(text=text, hold=go, hold_after=_PAUSED_AT), go


def pictures_in(asked: ReceivedRequest) -> list[Any]:
    return [
        block
        for message in asked.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] in {"image", "image_url"}
    ]


def label_with(labels: Sequence[str], word: str) -> str:
    return next(label for label in labels if word in label)
