"""From journal to cards: every event told, none twice, crashes included."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.dispatch.reporter import Reporter
from bot.engine.llm.answers import StepAnswer
from cards.model import Checklist, CheckState, File, Image
from storage.records.people import Language
from storage.records.tasks import Graph, Task, TaskStatus
from tests.engine_world import Engine, FakeBackend, FakeCourier, engine


def reporter(world: Engine, courier: FakeCourier, home: Path) -> Reporter:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    return Reporter(
        journal=world.store.journal,
        views=world.views,
        courier=courier,
        language_of=english,
        home=home,
        zone=ZoneInfo("UTC"),
        now=world.clock,
    )


async def test_a_task_has_one_live_card_and_one_message_when_it_ends(tmp_path: Path) -> None:
    courier = FakeCourier()
    async with engine(tmp_path) as world:
        task = await world.add()
        await world.until(task)
        while await reporter(world, courier, tmp_path).tell():
            pass

    live = courier.cards[f"task:{task.id}"]
    endings = [key for key in courier.cards if key.startswith(f"task:{task.id}:end:")]
    checks = next(block for block in live.blocks if isinstance(block, Checklist))
    assert {item.state for item in checks.items} == {CheckState.DONE}
    assert len(endings) == 1


async def test_telling_again_after_a_crash_shows_nothing_new(tmp_path: Path) -> None:
    courier = FakeCourier()
    async with engine(tmp_path) as world:
        task = await world.add()
        await world.until(task)
        events = await world.store.journal.untold(100)
        teller = reporter(world, courier, tmp_path)
        await teller.tell()
        before = list(courier.sent)
        await world.store.journal.told([event.id for event in events], now=None)  # type: ignore[arg-type] # as if never noted

        await teller.tell()

    assert courier.sent == before


async def test_a_task_that_cannot_be_shown_does_not_silence_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    courier = FakeCourier()
    async with engine(tmp_path, running=False) as world:
        broken, fine = await world.add(), await world.add()
        teller = reporter(world, courier, tmp_path)
        async with world.db.write() as tx:
            body = {"nodes": "not a list"}
            graph = Graph(task_id=broken.id, version=1, body=body, reason="plan", author="x")
            await world.store.graphs.add(tx, graph, now=world.clock())

        assert await teller.tell()

        assert list(courier.cards) == [f"task:{fine.id}"]
        assert broken.id in caplog.text
        assert not await teller.tell()


async def test_files_come_with_the_ending(tmp_path: Path) -> None:
    def write(_title: str) -> StepAnswer:
        workspace = tmp_path / "work" / task.id
        (workspace / "haiku.md").write_text("queue")
        return StepAnswer(status="done", summary="wrote it", files=["haiku.md"])

    courier = FakeCourier()
    backend = FakeBackend(steps=("one",), on_step=write)
    async with engine(tmp_path, backend, running=False) as world:
        task = await world.add()
    async with engine(tmp_path, backend) as world:
        view = await world.until(task)
        assert view.task.status is TaskStatus.COMPLETED
        await reporter(world, courier, tmp_path).tell()

    ending = next(card for key, card in courier.cards.items() if ":end:" in key)
    files = [block for block in ending.blocks if isinstance(block, File | Image)]
    assert [file.path for file in files] == [f"files/tasks/{task.id}/haiku.md"]
    assert (tmp_path / files[0].path).read_text() == "queue"
