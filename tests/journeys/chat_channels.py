"""One person in a chat of Telegram or Feishu, for journeys that are the same on both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.emulators.feishu.tenant import FeishuMessage
from tests.journeys.model_world import ModelWorld


async def _cannot_press(*_parts: str) -> None:
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Channel:
    """`wait` is for a new message with all of these words in it, and `asks` for one with a button
    to approve. `press` presses the button with that word under such a message."""

    say: Callable[[str], Awaitable[object]]
    wait: Callable[..., Awaitable[str]]
    asks: Callable[[str], Awaitable[object]]
    press: Callable[..., Awaitable[object]] = _cannot_press


def telegram(world: ModelWorld) -> Channel:
    boss, chat = world.new_owner()

    async def say(text: str) -> None:
        await boss.says(chat, text)

    async def wait(*parts: str) -> str:
        found = await chat.wait_for(lambda m: m.from_bot and all(each in m.text for each in parts))
        return found.text

    async def asks(part: str) -> None:
        await chat.wait_for(
            lambda m: (
                part in m.text and any(word in b for b in m.buttons for word in ("Approve", "Once"))
            )
        )

    async def press(word: str, *parts: str) -> None:
        found = await chat.wait_for(
            lambda m: all(e in m.text for e in parts) and any(word in b for b in m.buttons)
        )
        await boss.presses(found, next(label for label in found.buttons if word in label))

    return Channel(say=say, wait=wait, asks=asks, press=press)


def feishu(world: ModelWorld) -> Channel:
    boss, chat = world.feishu_owner, world.feishu_chat
    # Several workflows share the chat.
    known = {each.message_id for each in chat.from_bot}

    def shows(message: FeishuMessage, *parts: str) -> bool:
        text = f"{message.header}\n{message.text}"
        return message.message_id not in known and all(each in text for each in parts)

    async def say(text: str) -> None:
        await boss.says(chat, text)

    async def wait(*parts: str) -> str:
        found = await chat.wait_for(lambda m: shows(m, *parts))
        return f"{found.header}\n{found.text}"

    async def asks(part: str) -> None:
        await chat.wait_for(
            lambda m: (
                shows(m, part) and any(word in b for b in m.buttons for word in ("Approve", "Once"))
            )
        )

    async def press(word: str, *parts: str) -> None:
        found = await chat.wait_for(
            lambda m: shows(m, *parts) and any(word in label for label in m.buttons)
        )
        await boss.presses(found, next(label for label in found.buttons if word in label))

    return Channel(say=say, wait=wait, asks=asks, press=press)
