"""The whole program on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.model_world import model_world, wait_for_message
from tests.postgresql_server import create_database, execute


async def test_a_chat_and_a_task_run_on_postgresql(tmp_path: Path) -> None:
    url = create_database(migrated=False)
    async with model_world(tmp_path / "home", "openai", DATABASE_URL=url) as world:
        boss, chat = world.new_owner()

        await boss.says(chat, "/task write the owl page")

        await wait_for_message(chat, "Task finished")

    assert execute(url, "SELECT status FROM tasks") == [("completed",)]
