"""Whose memories a name in a shell stands for."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.app.repositories import RepositorySet, build_repositories
from bot.cli.memory_bulk import resolve_scopes
from bot.config.settings import Settings
from bot.engine.memory.access import UnknownScopeName
from bot.transports.ports import SystemClock
from bot.transports.web.ports import LOCAL_PLACE
from storage.records.memory import GLOBAL_SCOPE
from tests.engine_harness import START
from tests.migrated_database import open_database


async def fresh(home: Path, stack: AsyncExitStack) -> RepositorySet:
    db = await stack.enter_async_context(open_database(home))
    return build_repositories(db, SystemClock())


def of(home: Path) -> Settings:
    return Settings.model_validate({"SHIFTBOSS_HOME": home})


async def test_the_owner_is_known_even_where_nobody_has_begun(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        store = await fresh(tmp_path, stack)

        (mine,) = await resolve_scopes(of(tmp_path), store, "me", START)
        (chat,) = await resolve_scopes(of(tmp_path), store, " chat ", START)
        all_of_it = await resolve_scopes(of(tmp_path), store, "", START)

        own = await store.chats.find(LOCAL_PLACE)
        assert own is not None
        assert (str(mine), str(chat)) == (f"person:{own.person_id}", f"chat:{own.id}")
        assert list(all_of_it) == [mine, chat, GLOBAL_SCOPE]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("conv-1", "custom:conv-1"),
        ("custom:conv-1", "custom:conv-1"),
        ("对话:1", "custom:对话:1"),
        ("skill: review ", "skill:review"),
        ("global", "global"),
    ],
)
async def test_other_names_are_scopes_of_their_own(tmp_path: Path, name: str, scope: str) -> None:
    async with AsyncExitStack() as stack:
        store = await fresh(tmp_path, stack)

        assert [str(each) for each in await resolve_scopes(of(tmp_path), store, name, START)] == [
            scope
        ]


@pytest.mark.parametrize("name", ["person:", "custom: ", "global:all", "project"])
async def test_a_kind_that_names_nobody_is_refused(tmp_path: Path, name: str) -> None:
    async with AsyncExitStack() as stack:
        store = await fresh(tmp_path, stack)

        with pytest.raises(UnknownScopeName):
            await resolve_scopes(of(tmp_path), store, name, START)
