"""From journal to cards: every event told, none twice, crashes included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import BackendError, BackendUnavailable
from bot.engine.tasks.notifier import QueuePositionTracker, TaskNotifier
from bot.engine.workflow.task_store import LEASE_DURATION
from cards.model import ChecklistBlock, ChecklistState, FileBlock, ImageBlock
from cards.render.text import render
from storage.db import Transaction
from storage.key_value import KeyValueStore
from storage.records.people import Language
from storage.records.tasks import EventKind, ResultForm, Task, TaskGraph, TaskPriority, TaskStatus
from tests.builders import STARVATION_LIMIT
from tests.engine_harness import (
    BOSS,
    EngineHarness,
    FakeBackend,
    RecordingCourier,
    ignore_events,
    run_engine,
)
from tests.waiting import WAIT_SECONDS


def make_notifier(
    world: EngineHarness,
    courier: RecordingCourier,
    home: Path,
    result_form: ResultForm = ResultForm.CARD,
) -> TaskNotifier:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    return TaskNotifier(
        db=world.db,
        journal=world.store.events,
        views=world.views,
        courier=courier,
        language_of=english,
        home=home,
        zone=ZoneInfo("UTC"),
        now=world.clock,
        positions=QueuePositionTracker(queue=world.store.queue, key_values=KeyValueStore(world.db)),
        on_events=ignore_events,
        result_form=result_form,
        account_of=own_account,
        mask=lambda text: text.replace("hunter2", "***"),
    )


async def own_account(_task: Task) -> str:
    return "ou_boss"


async def test_a_task_has_one_live_card_and_one_message_when_it_ends(tmp_path: Path) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path) as world:
        task = await world.create_task()
        await make_notifier(world, courier, tmp_path).notify_batch()
        await world.until(task)
        while await make_notifier(world, courier, tmp_path).notify_batch():
            pass

    live = courier.cards[f"task:{task.id}"]
    endings = [key for key in courier.cards if key.startswith(f"task:{task.id}:end:")]
    checks = next(block for block in live.blocks if isinstance(block, ChecklistBlock))
    assert {item.state for item in checks.items} == {ChecklistState.DONE}
    assert len(endings) == 1
    assert courier.replies[endings[0]] == f"message of task:{task.id}", "it leads to the card"


async def test_telling_again_after_a_crash_shows_nothing_new(tmp_path: Path) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path) as world:
        task = await world.create_task()
        await world.until(task)
        events = await world.store.events.list_unnotified(100)
        teller = make_notifier(world, courier, tmp_path)
        await teller.notify_batch()
        before = list(courier.sent)
        async with world.db.write() as tx:
            await world.store.events.mark_notified(tx, events, now=None)  # type: ignore[arg-type] # as if never noted

        await teller.notify_batch()

    assert courier.sent == before


class Killed(BaseException):
    """The process dies here."""


def kill_at_commit(world: EngineHarness, number: int) -> None:
    """Die at the next commits but `number`: an even number just before it, an odd one just
    after."""
    write, commits = world.db.write, count()

    @asynccontextmanager
    async def dying_write() -> AsyncGenerator[Transaction, None]:
        dies = next(commits) == number // 2
        async with write() as tx:
            yield tx
            if dies and number % 2 == 0:
                raise Killed
        if dies:
            raise Killed

    world.db.write = dying_write  # type: ignore[method-assign] # until the store is opened again


async def test_a_kill_at_any_commit_around_a_notice_repeats_and_loses_none(tmp_path: Path) -> None:
    for number in count():
        home = tmp_path / str(number)
        home.mkdir()
        courier, killed = RecordingCourier(), False
        async with run_engine(home, start_dispatcher=True) as world:
            await world.until(await world.create_task())
        async with run_engine(home, start_dispatcher=False) as world:
            kill_at_commit(world, number)
            try:
                await notify_all(make_notifier(world, courier, home))
            except Killed:
                killed = True
        stored = () if killed and number % 2 == 0 else tuple(courier.sent)
        async with run_engine(home, start_dispatcher=False) as world:
            assert killed or not await world.store.events.list_unnotified(1)
            again = RecordingCourier()
            await notify_all(make_notifier(world, again, home))

        ends = [key for key, _ in (*stored, *again.sent) if ":end:" in key]
        assert len(ends) == 1, f"killed at {number}"
        if not killed:
            break
    assert number >= 2, "neither side of the commit was tried"


async def test_of_several_endings_only_the_last_and_true_one_is_told(tmp_path: Path) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path) as world:
        task = await world.create_task()
        await world.until(task)
        async with world.db.write() as tx:
            (*_, ended) = await world.store.events.list_unnotified(100)
            for kind in (EventKind.BLOCKED, EventKind.RESUMED, EventKind.BLOCKED):
                await world.store.events.append_event(tx, task.id, kind, now=ended.at)

        await notify_all(make_notifier(world, courier, tmp_path))

    assert ended.kind is EventKind.COMPLETED
    assert [key for key in courier.cards if ":end:" in key] == [f"task:{task.id}:end:{ended.id}"]


async def test_a_task_that_cannot_be_shown_does_not_silence_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        broken, fine = await world.create_task(), await world.create_task()
        teller = make_notifier(world, courier, tmp_path)
        async with world.db.write() as tx:
            body = {"nodes": "not a list"}
            graph = TaskGraph(task_id=broken.id, version=1, body=body, reason="plan", author="x")
            await world.store.graphs.add(tx, graph, now=world.clock())

        assert await teller.notify_batch()

        assert list(courier.cards) == [f"task:{fine.id}"]
        assert broken.id in caplog.text
        assert not await teller.notify_batch()


def position_on_card(courier: RecordingCourier, task: Task) -> str:
    return render(courier.cards[f"task:{task.id}"]).text


async def notify_all(teller: TaskNotifier) -> None:
    while await teller.notify_batch():
        pass
    await teller.refresh_positions()


async def test_a_waiting_tasks_card_follows_the_queue(tmp_path: Path) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        teller = make_notifier(world, courier, tmp_path)
        first, second, third = [await world.create_task(f"task {n}") for n in range(3)]
        await notify_all(teller)
        assert "2 tasks are ahead" in position_on_card(courier, third)

        await world.tasks.stop(first, by=BOSS, source="m1")
        await notify_all(teller)
        assert "Next in the queue" in position_on_card(courier, second)
        assert "One task is ahead" in position_on_card(courier, third)

        await world.tasks.set_priority(third, TaskPriority.URGENT, by=BOSS, source="m2")
        await notify_all(teller)
        assert "Next in the queue" in position_on_card(courier, third)
        assert "One task is ahead" in position_on_card(courier, second)

        await world.create_task("more urgent", priority=TaskPriority.URGENT)
        await notify_all(teller)
        assert "2 tasks are ahead" in position_on_card(courier, second)


async def test_far_back_a_card_tells_no_number_that_others_could_make_wrong(
    tmp_path: Path,
) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        teller = make_notifier(world, courier, tmp_path)
        tasks = [await world.create_task(f"task {n}") for n in range(30)]
        await notify_all(teller)
        assert "10 tasks are ahead" in position_on_card(courier, tasks[10])
        assert all("More than 10" in position_on_card(courier, task) for task in tasks[11:])

        courier.sent.clear()
        await world.create_task("cuts in", priority=TaskPriority.URGENT)
        await notify_all(teller)

        assert "More than 10" in position_on_card(courier, tasks[10])
        assert len(courier.sent) == 12, "the new one's card and those that count"


async def test_a_task_claimed_while_its_card_is_drawn_is_not_called_far_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task("alone")

        async def claimed_meanwhile(_limit: int) -> Sequence[Task]:
            return ()

        monkeypatch.setattr(world.store.queue, "list_first", claimed_meanwhile)
        assert (await world.views.view(task.id)).tasks_ahead == 0


async def test_the_same_queue_is_not_drawn_twice(tmp_path: Path) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        teller = make_notifier(world, courier, tmp_path)
        await world.create_task()
        await world.create_task()
        await notify_all(teller)
        world.clock.advance(hours=1)
        courier.sent.clear()

        await teller.refresh_positions()

    assert courier.sent == []


async def test_work_done_elsewhere_is_in_no_line_and_not_drawn_for_it(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        own = await world.create_task("mine", outside=True)
        line = QueuePositionTracker(queue=world.store.queue, key_values=KeyValueStore(world.db))
        await line.load()
        view = await world.views.view(own.id)
        line.mark_shown(replace(view, task=replace(view.task, status=TaskStatus.PENDING)))

        assert not await line.list_outdated()


async def test_a_place_that_a_crash_left_untold_is_told_at_the_next_start(tmp_path: Path) -> None:
    """The card counted and its task is far back now, where nobody would look for it."""
    courier = RecordingCourier()
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        tasks = [await world.create_task(f"task {n}") for n in range(11)]
        teller = make_notifier(world, courier, tmp_path)
        while await teller.notify_batch():
            pass
        await world.create_task("cuts in", priority=TaskPriority.URGENT)
        while await teller.notify_batch():
            pass
        assert "10 tasks are ahead" in position_on_card(courier, tasks[10])
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await make_notifier(world, courier, tmp_path).refresh_positions()

    assert "More than 10" in position_on_card(courier, tasks[10])


async def test_a_waiting_tasks_card_names_whoever_holds_its_folder_now(tmp_path: Path) -> None:
    courier = RecordingCourier()
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        teller = make_notifier(world, courier, tmp_path)
        await _hold(world, "first")
        waiting = await world.create_task("second", project_dir="/folder")
        await notify_all(teller)
        assert "first" in position_on_card(courier, waiting)

        await _hold(world, "third", ends="first")
        await notify_all(teller)

        assert "third" in position_on_card(courier, waiting)


async def _hold(world: EngineHarness, title: str, *, ends: str = "") -> None:
    """An urgent task takes the folder from the one that `ends`."""
    if ends:
        (held,) = [each for each in await world.store.tasks.list_recent(9) if each.title == ends]
        await world.tasks.stop(held, by=BOSS, source=f"ends {ends}")
    await world.create_task(title, project_dir="/folder", priority=TaskPriority.URGENT)
    async with world.db.write() as tx:
        claimed = await world.store.queue.claim(
            tx, owner="x", now=world.clock(), lease=LEASE_DURATION, aging_after=STARVATION_LIMIT
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

    courier = RecordingCourier()
    async with run_engine(tmp_path, backend, sleep=sleep) as world:
        teller = make_notifier(world, courier, tmp_path)
        task = await world.create_task()
        async with asyncio.timeout(WAIT_SECONDS):
            await asleep.wait()
        await notify_all(teller)
        assert "Can't reach the model. Next attempt at 09:05:00." in position_on_card(courier, task)

        awake.set()
        await world.until(task, TaskStatus.COMPLETED)
        await notify_all(teller)

    assert not any("Can't reach" in render(card).text for card in courier.cards.values())


async def test_files_come_with_the_ending(tmp_path: Path) -> None:
    def write(_title: str) -> StepAnswer:
        workspace = tmp_path / "work" / task.id
        (workspace / "haiku.md").write_text("queue")
        return StepAnswer(status="done", summary="wrote it", files=["haiku.md"])

    courier = RecordingCourier()
    backend = FakeBackend(steps=("one",), on_step=write)
    async with run_engine(tmp_path, backend, start_dispatcher=False) as world:
        task = await world.create_task()
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(task)
        assert view.task.status is TaskStatus.COMPLETED
        await make_notifier(world, courier, tmp_path).notify_batch()

    ending = next(card for key, card in courier.cards.items() if ":end:" in key)
    files = [block for block in ending.blocks if isinstance(block, FileBlock | ImageBlock)]
    assert [file.path for file in files] == [f"files/tasks/{task.id}/haiku.md"]
    assert (tmp_path / files[0].path).read_text() == "queue"


@pytest.mark.parametrize("form", ResultForm)
async def test_a_long_result_comes_whole_in_the_form_of_the_setting(
    tmp_path: Path, form: ResultForm
) -> None:
    report = "hunter2 is the key. " * 200

    def write(_title: str) -> StepAnswer:
        (tmp_path / "work" / task.id / "notes.md").write_text("# Notes")
        return StepAnswer(status="done", summary=report, files=["notes.md"])

    courier = RecordingCourier()
    async with run_engine(tmp_path, FakeBackend(steps=("one",), on_step=write)) as world:
        task = await world.create_task()
        await world.until(task)
        while await make_notifier(world, courier, tmp_path, form).notify_batch():
            pass

    ending = next(card for key, card in courier.cards.items() if ":end:" in key)
    files = {block.name: block for block in ending.blocks if isinstance(block, FileBlock)}
    whole = files.pop(f"result-{task.id}.md", None)
    notes = files["notes.md"]
    assert (whole is None) == (form is ResultForm.CARD)
    if whole is not None:
        assert (tmp_path / whole.path).read_text().count("*** is the key.") == 200
    documents = [each.document_title for each in (whole, notes) if each is not None]
    made = [f"{task.title} ({task.id})", f"notes ({task.id}-1)"]
    assert documents == (made if form is ResultForm.DOCUMENT else [""] * len(documents))
    assert notes.document_owner == ("ou_boss" if form is ResultForm.DOCUMENT else "")
