"""Chats, and which language their readers' apps are in."""

from __future__ import annotations

from storage.records.people import Language
from tests.storage.message_store import MessageStore, group, place, sender


async def test_the_language_of_the_readers_app_is_kept_until_it_changes(
    room: MessageStore,
) -> None:
    await room.person()
    await room.chat(by=sender(language="zh-hans"))
    kept = await room.chat(by=sender(language=""))

    await room.chats.set_client_language(place(), Language.ENGLISH)
    changed = await room.chat()

    assert kept.settings.client_language is Language.CHINESE
    assert changed.settings.client_language is Language.ENGLISH
    assert (await room.chats.get(changed.id)).settings == changed.settings


async def test_neither_a_group_nor_a_stranger_has_a_language_of_its_own(
    room: MessageStore,
) -> None:
    stranger = await room.chat(by=sender(language="zh"))
    await room.person()
    team = await room.chat(group(), sender(language="zh"))

    assert stranger.settings.client_language is team.settings.client_language is None
