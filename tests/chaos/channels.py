"""A channel as the Boss knows it: write, press, look; how it does that is in here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal, Protocol, TypeAlias

from tests.chaos.web_page import ShownMessage, WebChannelClient
from tests.emulators.feishu.callbacks import CallbackFailed
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut, rate_limited
from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.telegram.chats import TelegramMessage
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import (
    DropAfterFault,
    DropBeforeFault,
    RateLimitFault,
    ServerErrorFault,
)
from tests.journeys.program import ShiftbossProcess

ChannelName: TypeAlias = Literal["telegram", "feishu", "web"]
CHANNEL_NAMES: Sequence[ChannelName] = ("telegram", "feishu", "web")
File: TypeAlias = tuple[str, bytes]
ROOMS = 4
_PATIENCE = 600.0
# The platform's own schedule begins with fifteen seconds.
_AGAIN = (0.2,) * 400


class ChannelClient(Protocol):
    """`said` counts the messages written. Rooms are private chats with one owner each, as many
    as `rooms`."""

    rooms: int
    said: int

    @property
    def name(self) -> ChannelName: ...

    @property
    def settings(self) -> Mapping[str, str]: ...

    async def send_message(self, text: str, *, room: int = 0, file: File | None = None) -> None: ...

    async def press(self, word: str, *, about: str = "", room: int = 0) -> None:
        """Wait for a button whose label has this word, on a message that is about that, and
        press it until it has been taken."""
        ...

    def list_messages(self) -> Sequence[ShownMessage]:
        """The messages in all chats, oldest first."""
        ...

    def count_unacknowledged(self) -> int:
        """How much of what was said the program has not acknowledged."""
        ...

    def attach(self, program: ShiftbossProcess) -> None:
        """The program under way, for channels that are part of it."""
        ...

    def misbehave(self, dice: Callable[[int], int]) -> None:
        """The platform is tired, breaks connections, or says things twice."""
        ...

    def redeliver(self) -> None:
        """Everything that was said, once more."""
        ...


class TelegramChannelClient:
    name: ChannelName = "telegram"
    rooms = ROOMS

    def __init__(self, telegram: TelegramEmulator) -> None:
        self.telegram = telegram
        self.said = 0
        self._people = [telegram.user(7 + n, f"Boss {n}") for n in range(ROOMS)]
        self._chats = [telegram.private_chat(each) for each in self._people]

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            **self.telegram.settings,
            "SHIFTBOSS_OWNERS": ",".join(f"telegram:{each.id}" for each in self._people),
        }

    async def send_message(self, text: str, *, room: int = 0, file: File | None = None) -> None:
        self.said += 1
        person, chat = self._people[room], self._chats[room]
        if file is None:
            await person.says(chat, text)
        else:
            await person.sends_document(chat, *file, text)

    async def press(self, word: str, *, about: str = "", room: int = 0) -> None:
        message = await self._chats[room].wait_for(
            lambda m: about in m.text and _has(m.buttons, word), timeout=_PATIENCE
        )
        self._people[room].press(message, _first(message.buttons, word))

    def list_messages(self) -> Sequence[ShownMessage]:
        return [_of_telegram(m) for chat in self._chats for m in chat.from_bot]

    def count_unacknowledged(self) -> int:
        return len(self.telegram.unconfirmed)

    def attach(self, program: ShiftbossProcess) -> None: ...

    def misbehave(self, dice: Callable[[int], int]) -> None:
        method = ("sendMessage", "editMessageText", "sendDocument")[dice(3)]
        how = (
            RateLimitFault(retry_after=1),
            ServerErrorFault(),
            DropBeforeFault(),
            DropAfterFault(),
        )[dice(4)]
        self.telegram.inject_fault(method, how)
        if dice(2):
            self.telegram.redeliver(1 + dice(20))

    def redeliver(self) -> None:
        self.telegram.redeliver()


class FeishuChannelClient:
    name: ChannelName = "feishu"
    rooms = ROOMS

    def __init__(self, feishu: FeishuEmulator) -> None:
        feishu.long.schedule = _AGAIN
        # As `deadly.make_haste`: a telling shall be dense with points.
        feishu.rates.enforced = False
        self.feishu = feishu
        self.said = 0
        self._people = [feishu.user(f"Boss {n}") for n in range(ROOMS)]
        self._chats = [feishu.private_chat(each) for each in self._people]

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            **self.feishu.settings,
            "SHIFTBOSS_OWNERS": ",".join(f"feishu:{each.open_id}" for each in self._people),
            "SHIFTBOSS_LANGUAGE": "en",
        }

    async def send_message(self, text: str, *, room: int = 0, file: File | None = None) -> None:
        person, chat = self._people[room], self._chats[room]
        if file is not None:
            self.said += 1
            await person.sends_file(chat, *file)
        self.said += 1
        await person.says(chat, text)

    async def press(self, word: str, *, about: str = "", room: int = 0) -> None:
        """A person presses again while the client shows an error and the button stands there."""
        message = await self._chats[room].wait_for(
            lambda m: about in m.text and _has(m.buttons, word), timeout=_PATIENCE
        )
        while _has(message.buttons, word):
            with suppress(CallbackFailed):
                await self._people[room].presses(message, _first(message.buttons, word))
                return
            await asyncio.sleep(0.1)

    def list_messages(self) -> Sequence[ShownMessage]:
        return [_of_feishu(m) for chat in self._chats for m in chat.from_bot]

    def count_unacknowledged(self) -> int:
        return sum(not push.acked.done() for push in self.feishu.pushes if push.retry)

    def attach(self, program: ShiftbossProcess) -> None: ...

    def misbehave(self, dice: Callable[[int], int]) -> None:
        how = (
            {"error": rate_limited(1)},
            {"status": 502, "raw": b"<html>no</html>"},
            {"cut": ConnectionCut.BEFORE},
            {"cut": ConnectionCut.AFTER},
        )[dice(4)]
        self.feishu.inject_fault(("POST", "PATCH")[dice(2)], "/im/v1/messages", **how)
        if dice(2):
            self.redeliver()

    def redeliver(self) -> None:
        for push in [each for each in self.feishu.pushes if each.retry and each.acked.done()][-20:]:
            self.feishu.push(push.body)


@asynccontextmanager
async def open_channel(name: ChannelName) -> AsyncGenerator[ChannelClient, None]:
    match name:
        case "telegram":
            async with TelegramEmulator() as telegram:
                yield TelegramChannelClient(telegram)
        case "feishu":
            async with FeishuEmulator() as feishu:
                yield FeishuChannelClient(feishu)
        case "web":
            async with WebChannelClient() as page:
                yield page


def _has(labels: Sequence[str], word: str) -> bool:
    return any(word in label for label in labels)


def _first(labels: Sequence[str], word: str) -> str:
    return next(label for label in labels if word in label)


def _of_telegram(message: TelegramMessage) -> ShownMessage:
    return ShownMessage(
        id=str(message.id),
        text=message.text,
        first=message.history[0].text,
        file=message.upload.name if message.upload else "",
    )


def _of_feishu(message: FeishuMessage) -> ShownMessage:
    name = ""
    if message.msg_type == "file":
        key = json.loads(message.content)["file_key"]
        name = message.chat.world.files[key].name
    text = f"{message.header}\n{message.text}"
    return ShownMessage(id=message.message_id, text=text, first=text, file=name)
