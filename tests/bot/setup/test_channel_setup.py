"""The code that makes the first person on a chat platform an owner: what it is bound to."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.app.container import Container, open_container
from bot.config.settings import load_settings
from bot.setup.channel_setup import MAX_WRONG_OWNER_CODES, OWNER_CODE_LIFETIME
from handlers.errors import UserError
from storage.errors import NotFound
from storage.records.messages import ChatAddress, IncomingMessage, MessageSender
from storage.records.people import Channel, ChatKind, Person, PersonRole
from tests.migrated_database import lay_out_store

TOKEN = "1001:an-emulated-token-not-a-secret"
LATER = OWNER_CODE_LIFETIME + timedelta(seconds=1)


@pytest.fixture
async def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Container, None]:
    for name in list(os.environ):
        if name.startswith(("SHIFTBOSS_", "TELEGRAM_", "FEISHU_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    lay_out_store(tmp_path / "home")
    (tmp_path / "home" / ".env").write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
    async with open_container(load_settings()) as core:
        yield core


async def local_owner(core: Container) -> Person:
    chat = await core.get_local_chat()
    assert chat.person_id
    return await core.repositories.people.get(chat.person_id)


async def new_code(core: Container, by: Person | None = None) -> str:
    by = by or await local_owner(core)
    return (await core.services.channel_setup.create_owner_code(Channel.TELEGRAM, by=by)).code


async def claim(
    core: Container,
    code: str,
    sender: str = "7",
    *,
    after: timedelta = timedelta(),
    kind: ChatKind = ChatKind.PRIVATE,
) -> bool:
    now = core.clock.now()
    place = ChatAddress(channel=Channel.TELEGRAM, chat=sender, kind=kind)
    said = IncomingMessage(
        place=place,
        sender=MessageSender(external_id=sender, name=f"Person {sender}"),
        message_id="1",
        addressed=True,
        text=f"/start {code}",
        sent_at=now,
    )
    async with core.repositories.db.write() as tx:
        await core.repositories.chats.get_or_create(tx, place, said.sender, now)
    return await core.services.channel_setup.claim_owner_code(code, said, now=now + after)


async def role_of(core: Container, account: str = "7") -> PersonRole | None:
    person = await core.repositories.people.find_by_account(Channel.TELEGRAM, account)
    return None if person is None else person.role


async def test_the_first_sender_becomes_an_owner_and_stays_one(core: Container) -> None:
    code = await new_code(core)

    assert await claim(core, f" {code.lower()} ")

    assert await role_of(core) is PersonRole.OWNER
    assert core.reloader.in_force.owners == "telegram:7"
    assert load_settings().owners == "telegram:7"
    assert not await claim(core, code, "8"), "it works once"
    assert await role_of(core, "8") is None
    await core.repositories.people.demote_unlisted_owners()
    assert await role_of(core) is PersonRole.OWNER
    (state, _) = await core.services.channel_setup.get_channels()
    assert state.code is not None
    assert (state.code.owner, state.code.code) == ("Person 7", "")


async def test_a_used_code_gives_nothing_back_to_a_demoted_owner(core: Container) -> None:
    code = await new_code(core)
    assert await claim(core, code)
    await core.reloader.store({"SHIFTBOSS_OWNERS": "telegram:9"})
    assert await role_of(core) is PersonRole.MEMBER

    assert not await claim(core, code)

    assert await role_of(core) is PersonRole.MEMBER


async def test_a_code_is_void_late_after_wrong_ones_and_in_groups(core: Container) -> None:
    code = await new_code(core)
    assert not await claim(core, code, after=LATER)
    assert not await claim(core, code, kind=ChatKind.GROUP)
    for _ in range(MAX_WRONG_OWNER_CODES):
        assert not await claim(core, "WRONG", "666")
    assert not await claim(core, code), "it may have been guessed at"
    assert await role_of(core) is None
    assert await claim(core, await new_code(core)), "a new one works"


async def test_a_code_is_void_with_another_bot_and_without_its_maker(core: Container) -> None:
    owner = await local_owner(core)
    code = await new_code(core, owner)
    await core.reloader.store({"TELEGRAM_BOT_TOKEN": "2002:another-emulated-token-not-a-secret"})
    assert not await claim(core, code)
    await claim(core, await new_code(core), "9")
    maker = await core.repositories.people.find_by_account(Channel.TELEGRAM, "9")
    assert maker is not None
    code = await new_code(core, maker)
    await core.repositories.people.remove(maker.id)

    assert not await claim(core, code)

    assert await role_of(core) is None


async def test_a_crash_between_access_and_ownership_is_made_up_for(core: Container) -> None:
    code = await new_code(core)
    env = core.settings.home / ".env"
    env.chmod(0o600)
    env.write_bytes(b"\xff")
    with pytest.raises(UserError):
        await claim(core, code)
    assert await role_of(core) is PersonRole.MEMBER
    assert not await claim(core, code, "8"), "it is taken"
    env.write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")

    assert await claim(core, code)

    assert await role_of(core) is PersonRole.OWNER


async def test_no_code_where_it_could_not_work(
    core: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await local_owner(core)
    with pytest.raises(NotFound):
        await core.services.channel_setup.create_owner_code(Channel.FEISHU, by=owner)
    monkeypatch.setenv("SHIFTBOSS_OWNERS", "")
    with pytest.raises(UserError, match="setup_channel_fixed"):
        await new_code(core)
