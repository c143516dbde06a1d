"""From journal to cards: every event told, none twice, crashes included."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.dispatch.telling.line import Line
from bot.engine.dispatch.telling.reporter import Reporter
from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import BackendError, BackendUnavailable
from bot.engine.workflow.store import LEASE, PATIENCE
from cards.model import Checklist, CheckState, File, Image
from cards.render.text import render
from storage.marks import Marks
from storage.records.people import Language
from storage.records.tasks import Graph, Priority, Task, TaskStatus
from tests.engine_world import BOSS, Engine, FakeBackend, FakeCourier, engine


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
        line=Line(queue=world.store.queue, marks=Marks(world.db)),
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


def place_on(courier: FakeCourier, task: Task) -> str:
    return render(courier.cards[f"task:{task.id}"]).text


async def tell_all(teller: Reporter) -> None:
    while await teller.tell():
        pass
    await teller.tell_places()


async def test_a_waiting_tasks_card_follows_the_queue(tmp_path: Path) -> None:
    courier = FakeCourier()
    async with engine(tmp_path, running=False) as world:
        teller = reporter(world, courier, tmp_path)
        first, second, third = [await world.add(f"task {n}") for n in range(3)]
        await tell_all(teller)
        assert "2 tasks go before it" in place_on(courier, third)

        await world.foreman.stop(first, by=BOSS, source="m1")
        await tell_all(teller)
        assert "Next in line" in place_on(courier, second)
        assert "One task goes before it" in place_on(courier, third)

        await world.foreman.set_priority(third, Priority.URGENT, by=BOSS, source="m2")
        await tell_all(teller)
        assert "Next in line" in place_on(courier, third)
        assert "One task goes before it" in place_on(courier, second)

        await world.add("more urgent", priority=Priority.URGENT)
        await tell_all(teller)
        assert "2 tasks go before it" in place_on(courier, second)


async def test_far_back_a_card_tells_no_number_that_others_could_make_wrong(
    tmp_path: Path,
) -> None:
    courier = FakeCourier()
    async with engine(tmp_path, running=False) as world:
        teller = reporter(world, courier, tmp_path)
        tasks = [await world.add(f"task {n}") for n in range(30)]
        await tell_all(teller)
        assert "10 tasks go before it" in place_on(courier, tasks[10])
        assert all("More than 10" in place_on(courier, task) for task in tasks[11:])

        courier.sent.clear()
        await world.add("cuts in", priority=Priority.URGENT)
        await tell_all(teller)

        assert "More than 10" in place_on(courier, tasks[10])
        assert len(courier.sent) == 12, "the new one's card and those that count"


async def test_a_task_claimed_while_its_card_is_drawn_is_not_called_far_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine(tmp_path, running=False) as world:
        task = await world.add("alone")

        async def claimed_meanwhile(_limit: int) -> Sequence[Task]:
            return ()

        monkeypatch.setattr(world.store.queue, "first", claimed_meanwhile)
        assert (await world.views.view(task.id)).ahead == 0


async def test_the_same_queue_is_not_drawn_twice(tmp_path: Path) -> None:
    courier = FakeCourier()
    async with engine(tmp_path, running=False) as world:
        teller = reporter(world, courier, tmp_path)
        await world.add()
        await world.add()
        await tell_all(teller)
        world.clock.pass_by(hours=1)
        courier.sent.clear()

        await teller.tell_places()

    assert courier.sent == []


async def test_work_done_elsewhere_is_in_no_line_and_not_drawn_for_it(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        own = await world.add("mine", outside=True)
        line = Line(queue=world.store.queue, marks=Marks(world.db))
        await line.load()
        view = await world.views.view(own.id)
        line.told(replace(view, task=replace(view.task, status=TaskStatus.PENDING)))

        assert not await line.outdated()


async def test_a_place_that_a_crash_left_untold_is_told_at_the_next_start(tmp_path: Path) -> None:
    """The card counted and its task is far back now, where nobody would look for it."""
    courier = FakeCourier()
    async with engine(tmp_path, running=False) as world:
        tasks = [await world.add(f"task {n}") for n in range(11)]
        teller = reporter(world, courier, tmp_path)
        while await teller.tell():
            pass
        await world.add("cuts in", priority=Priority.URGENT)
        while await teller.tell():
            pass
        assert "10 tasks go before it" in place_on(courier, tasks[10])
    async with engine(tmp_path, running=False) as world:
        await reporter(world, courier, tmp_path).tell_places()

    assert "More than 10" in place_on(courier, tasks[10])


async def test_a_waiting_tasks_card_names_whoever_holds_its_folder_now(tmp_path: Path) -> None:
    courier = FakeCourier()
    async with engine(tmp_path, running=False) as world:
        teller = reporter(world, courier, tmp_path)
        await _hold(world, "first")
        waiting = await world.add("second", project_dir="/folder")
        await tell_all(teller)
        assert "first" in place_on(courier, waiting)

        await _hold(world, "third", ends="first")
        await tell_all(teller)

        assert "third" in place_on(courier, waiting)


async def _hold(world: Engine, title: str, *, ends: str = "") -> None:
    """An urgent task takes the folder from the one that `ends`."""
    if ends:
        (held,) = [each for each in await world.store.tasks.recent(9) if each.title == ends]
        await world.foreman.stop(held, by=BOSS, source=f"ends {ends}")
    await world.add(title, project_dir="/folder", priority=Priority.URGENT)
    async with world.db.write() as tx:
        claimed = await world.store.queue.claim(
            tx, owner="x", now=world.clock(), lease=LEASE, patience=PATIENCE
        )
    assert claimed is not None
    assert claimed.title == title


async def test_a_card_says_that_the_model_cannot_be_reached_for_as_long_as_that_is_so(
    tmp_path: Path,
) -> None:
    outages: list[BackendError] = [BackendUnavailable("gone", retry_after=300.0)]
    backend = FakeBackend(steps=("one",), on_step=lambda _: outages.pop() if outages else None)
    asleep, awake = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert seconds == 300.0
        asleep.set()
        await awake.wait()

    courier = FakeCourier()
    async with engine(tmp_path, backend, sleep=sleep) as world:
        teller = reporter(world, courier, tmp_path)
        task = await world.add()
        async with asyncio.timeout(60):
            await asleep.wait()
        await tell_all(teller)
        assert "The model cannot be reached; next try at 09:05:00." in place_on(courier, task)

        awake.set()
        await world.until(task, TaskStatus.COMPLETED)
        await tell_all(teller)

    assert not any("cannot be reached" in render(card).text for card in courier.cards.values())


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
