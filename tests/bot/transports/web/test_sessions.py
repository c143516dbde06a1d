"""Sessions of the web chat as they are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.transports.web.sessions import SEEN_INTERVAL, SESSION_LIFETIME, WebSessionService
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.web_sessions import MAX_SESSIONS, WebSessionRepo
from tests.migrated_database import open_database


class World:
    def __init__(self, db: Database) -> None:
        self.time = datetime(2026, 3, 1, tzinfo=UTC)
        self.repo = WebSessionRepo(db)
        self.ended: list[str] = []
        self.sessions = WebSessionService(repo=self.repo, ids=IdGenerator(), now=lambda: self.time)
        self.sessions.on_end = self.ended.extend

    def advance_time(self, span: timedelta) -> None:
        self.time += span


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_database(tmp_path) as db:
        ids = IdGenerator()
        made = World(db)
        await PeopleRepo(db, ids, ChatRepo(db, ids)).ensure_owners((), now=made.time)
        await made.sessions.use_token("token")
        yield made


async def test_last_use_is_written_once_in_five_minutes(world: World) -> None:
    cookie = await world.sessions.open("Firefox")
    opened = world.time
    seen = []

    for _ in range(8):
        world.advance_time(SEEN_INTERVAL / 4)
        await world.sessions.find_by_cookie(cookie)
        (session,) = await world.sessions.list()
        seen.append(session.seen_at - opened)

    assert set(seen) == {timedelta(), SEEN_INTERVAL, 2 * SEEN_INTERVAL}


async def test_a_disk_that_takes_nothing_locks_nobody_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_session: str, *, now: datetime) -> None:
        raise StoreUnavailable("No space left on device")

    cookie = await world.sessions.open("Firefox")
    monkeypatch.setattr(world.repo, "touch", full)
    world.advance_time(2 * SEEN_INTERVAL)

    assert await world.sessions.find_by_cookie(cookie)


async def test_a_session_ends_after_its_lifetime_however_much_it_is_used(world: World) -> None:
    cookie = await world.sessions.open("Firefox")
    session = await world.sessions.find_by_cookie(cookie)

    world.advance_time(SESSION_LIFETIME - timedelta(seconds=1))
    used = await world.sessions.find_by_cookie(cookie)
    world.advance_time(timedelta(seconds=1))

    assert session is not None
    assert used == session
    assert await world.sessions.find_by_cookie(cookie) is None
    assert not await world.sessions.is_live(session.session_id)
    assert not await world.sessions.list()


async def test_the_number_of_sessions_is_bounded(world: World) -> None:
    cookies = []
    for _ in range(MAX_SESSIONS + 5):
        cookies.append(await world.sessions.open("Firefox"))
        world.advance_time(timedelta(minutes=1))

    live = [bool(await world.sessions.find_by_cookie(each)) for each in cookies]

    assert live == [False] * 5 + [True] * MAX_SESSIONS
    assert len(world.ended) == 5


async def test_signing_in_again_ends_the_session_before(world: World) -> None:
    before = await world.sessions.open("Firefox")
    session = await world.sessions.find_by_cookie(before)

    await world.sessions.open("Firefox", replaced=before)

    assert session is not None
    assert world.ended == [session.session_id]
    assert await world.sessions.find_by_cookie(before) is None
    assert len(await world.sessions.list()) == 1


@pytest.mark.parametrize(
    "said", ["", "x" * 10_000, "a\x1b[31m\nb\x00\u202ec", "\udcff\udc80", "漢" * 300]
)
async def test_what_a_browser_says_of_itself_is_kept_short_and_clean(
    world: World, said: str
) -> None:
    await world.sessions.open(said)

    (session,) = await world.sessions.list()
    assert len(session.user_agent) <= 200
    assert session.user_agent.isprintable()
