"""The whole program on PostgreSQL: a store moves there, works there, and is saved and restored."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.model_world import ModelWorld, model_world, wait_for_message
from tests.journeys.program import ShiftbossProcess
from tests.postgresql_server import create_database, execute


async def test_a_home_moves_to_postgresql_and_works_there(tmp_path: Path) -> None:
    url = create_database(migrated=False)
    async with model_world(tmp_path / "home", "openai") as world:
        boss, chat = world.new_owner()
        await boss.says(chat, "/task write the owl page")
        await wait_for_message(chat, "Task finished")
        await world.program.stop()

        await move(world.program, url)
        world.program.settings = {**world.program.settings, "DATABASE_URL": url}
        await world.program.start()
        await boss.says(chat, "/task write the heron page")
        await wait_for_message(chat, "heron page", "Task finished")
        archive = await back_up(world)
        await world.program.stop()

    titles = "SELECT title, status FROM tasks ORDER BY created_at"
    assert execute(url, titles) == [
        ("write the owl page", "completed"),
        ("write the heron page", "completed"),
    ]
    other = create_database(migrated=False)
    restored = ShiftbossProcess(
        home=tmp_path / "other", settings={**world.program.settings, "DATABASE_URL": other}
    )
    restored.home.mkdir()
    status, said = await restored.run_to_end("restore", archive)
    assert status == 0, said
    assert execute(other, titles) == execute(url, titles)
    await restored.start()
    await restored.kill()


async def move(program: ShiftbossProcess, url: str) -> None:
    status, said = await program.run_to_end("migrate", "--to", url)
    assert status == 0, said
    assert "compared" in said
    status, said = await program.run_to_end("run")
    assert status != 0
    assert "were moved to postgresql" in said


async def back_up(world: ModelWorld) -> str:
    """Beside the running program, which is checked too."""
    for command in ("backup", "check"):
        status, said = await world.program.run_to_end(command)
        assert status == 0, said
    (archive,) = (world.program.home / "backups").glob("*.tar.gz")
    return str(archive)
