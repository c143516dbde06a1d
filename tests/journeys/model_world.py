"""The real program on emulated platforms and emulated models, and who on them says what."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tests.emulators.feishu.people import User as FeishuUser
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat as FeishuChat
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Api, Asked, Call, Reply
from tests.emulators.models.worker import work
from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.people import User
from tests.journeys.program import Program

PATIENCE = 60.0
_BOSSES = 40
_PAGE_IDS = itertools.count(10_000_000)

Line: TypeAlias = Reply | Callable[[Asked], Reply]
Scene: TypeAlias = Literal["plan", "step", "talk", "notes"]


def fill(**value: Any) -> Callable[[Asked], Reply]:
    """Fill in the form that the request has on offer."""

    def reply(asked: Asked) -> Reply:
        form = next(name for name, schema in asked.tools.items() if _scene_of(schema))
        return Reply(calls=[Call(name=form, arguments=value)])

    return reply


def steps(*titles: str, repeatable: bool = True) -> Callable[[Asked], Reply]:
    planned = [{"title": title, "detail": "", "repeatable": repeatable} for title in titles]
    return fill(plan="As asked.", steps=planned, answer="")


def done(summary: str, *files: str) -> Callable[[Asked], Reply]:
    return fill(status="done", summary=summary, files=list(files), needs_replan=False)


def held(line: Line, go: asyncio.Event) -> Callable[[Asked], Reply]:
    """The same answer once it is let go: a step that is under way as long as the test wants."""

    def reply(asked: Asked) -> Reply:
        return replace(line if isinstance(line, Reply) else line(asked), hold=go)

    return reply


def writes(path: str, content: str = "some text") -> Reply:
    return Reply(calls=[Call(name="write", arguments={"path": path, "content": content})])


class Stage:
    """Which answer a model gives to whom: by a cue in what was said. Lines are given once each,
    in order; a last line that is a function goes on for ever. Without a line the worker answers."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, Scene], deque[Line]] = {}
        self.asked: list[Asked] = []

    def on(self, cue: str, scene: Scene, *lines: Line) -> None:
        self._lines[cue, scene] = deque(lines)

    async def under_way(self, cue: str, scene: Scene = "step", count: int = 1) -> None:
        """Until so many requests of the scene have come."""
        async with asyncio.timeout(PATIENCE):
            while len(self.heard(cue, scene)) < count:
                await asyncio.sleep(0.02)

    def heard(self, cue: str, scene: Scene | None = None) -> list[Asked]:
        """The requests that this cue led to."""
        return [
            asked
            for asked in self.asked
            if any(cue in said for said in asked.said) and scene in {None, scene_of(asked)}
        ]

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        scene = scene_of(asked)
        for said in reversed(asked.said):
            for (cue, wanted), lines in self._lines.items():
                if cue in said and wanted == scene and lines:
                    last = len(lines) == 1 and not isinstance(lines[0], Reply)
                    line = lines[0] if last else lines.popleft()
                    return line if isinstance(line, Reply) else line(asked)
        return fill(memories=[])(asked) if scene == "notes" else work(asked)


def scene_of(asked: Asked) -> Scene:
    return next((s for schema in asked.tools.values() if (s := _scene_of(schema))), "talk")


def _scene_of(schema: Mapping[str, Any]) -> Scene | None:
    fields = set(schema.get("properties") or ())
    if "memories" in fields:
        return "notes"
    if {"plan", "steps"} <= fields:
        return "plan"
    return "step" if {"status", "summary"} <= fields else None


@dataclass
class World:
    """One program that serves both platforms and the web chat with one kind of model."""

    api: Api
    telegram: TelegramEmulator
    feishu: FeishuEmulator
    models: Models
    stage: Stage
    shiftboss: Program
    feishu_boss: FeishuUser
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def boss(self, language: str = "en") -> tuple[User, Chat]:
        """An owner nobody has heard of yet, and their private chat: a session of their own."""
        number = next(self._numbers)
        boss = self.telegram.user(number, f"Boss {number}", language)
        return boss, self.telegram.private_chat(boss)

    @property
    def feishu_chat(self) -> FeishuChat:
        return self.feishu.p2p(self.feishu_boss)

    async def until(self, holds: Callable[[], Any], timeout: float = PATIENCE) -> None:
        """Wait for something that the models or the platforms see."""
        async with asyncio.timeout(timeout):
            while not holds():
                await asyncio.sleep(0.02)

    async def restarted(self, **settings: str) -> None:
        """Stop it politely and start it again, with other settings where given."""
        await self.shiftboss.stop()
        self.shiftboss.settings = {**self.shiftboss.settings, **settings}
        await self.shiftboss.start()


@asynccontextmanager
async def world(home: Path, api: Api, **settings: str) -> AsyncGenerator[World, None]:
    """`settings` go before those that make everything work."""
    async with TelegramEmulator() as telegram, FeishuEmulator() as feishu, Models() as models:
        feishu_boss = feishu.user("Boss")
        stage = Stage()
        models.replies(stage)
        owners = [f"telegram:{number}" for number in range(1, _BOSSES)]
        shiftboss = Program(
            home=home,
            settings={
                "TELEGRAM_BOT_TOKEN": telegram.token,
                "TELEGRAM_BASE_URL": telegram.base_url,
                "FEISHU_APP_ID": feishu.app_id,
                "FEISHU_APP_SECRET": feishu.app_secret,
                "FEISHU_DOMAIN": feishu.domain,
                "SHIFTBOSS_OWNERS": ",".join([*owners, f"feishu:{feishu_boss.open_id}"]),
                "SHIFTBOSS_SLOTS": "16",
                **access(models, api),
                **settings,
            },
        )
        try:
            await shiftboss.start()
            await feishu.connected(timeout=PATIENCE)
            yield World(
                api=api,
                telegram=telegram,
                feishu=feishu,
                models=models,
                stage=stage,
                shiftboss=shiftboss,
                feishu_boss=feishu_boss,
            )
        finally:
            await shiftboss.end()


@asynccontextmanager
async def staged(api: Api = "openai") -> AsyncGenerator[tuple[Stage, Mapping[str, str]], None]:
    """A stage, and the settings with which a program's work is done on it."""
    async with Models() as models:
        stage = Stage()
        models.replies(stage)
        yield stage, access(models, api)


def access(models: Models, api: Api) -> dict[str, str]:
    if api == "anthropic":
        return {"ANTHROPIC_API_KEY": models.key, "ANTHROPIC_BASE_URL": models.url}
    return {
        "OPENAI_API_KEY": models.key,
        "OPENAI_BASE_URL": models.openai_url,
        "SHIFTBOSS_MODEL": "openai:local-model",
    }


def shows(message: Message, *parts: str) -> bool:
    return message.from_bot and all(part in message.text for part in parts)


async def told(chat: Chat, *parts: str, timeout: float = PATIENCE) -> Message:
    """The bot's first message with all of these in it."""
    return await chat.wait_for(lambda m: shows(m, *parts), timeout)


def label_with(labels: Sequence[str], word: str) -> str:
    return next(label for label in labels if word in label)


class Page:
    """An open page of the web chat."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.frames: list[dict[str, Any]] = []

    async def says(self, text: str) -> None:
        frame = {"type": "say", "id": f"page-{next(_PAGE_IDS)}", "text": text}
        await self._socket.send(json.dumps(frame))

    async def frame(self, kind: str, part: str = "", timeout: float = PATIENCE) -> dict[str, Any]:
        """The next frame of that kind, or of any, with this in its HTML."""
        async with asyncio.timeout(timeout):
            while True:
                frame: dict[str, Any] = json.loads(await self._socket.recv())
                self.frames.append(frame)
                if kind in {"", frame["type"]} and part in frame.get("html", ""):
                    return frame


@asynccontextmanager
async def web_page(shiftboss: Program) -> AsyncGenerator[Page, None]:
    """Opened by the printed address, as a browser opens it."""
    url = httpx.URL(shiftboss.address)
    origin = f"http://127.0.0.1:{url.port}"
    async with httpx.AsyncClient(trust_env=False) as browser:
        await browser.get(url, follow_redirects=True)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    async with connect(
        f"ws://127.0.0.1:{url.port}/ws",
        origin=Origin(origin),
        additional_headers={"cookie": cookies, "accept-language": "en"},
        proxy=None,
    ) as socket:
        yield Page(socket)
