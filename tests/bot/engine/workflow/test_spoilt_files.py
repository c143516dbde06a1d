"""A step that leaves a file that was valid before and is not any more is no success."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.engine.llm.backend import BackendUnavailable
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.nodes.registry import NodeType
from storage.records.tasks import TaskStatus
from tests.engine_harness import FakeBackend, run_engine
from tests.waiting import WAIT_SECONDS, wait_until

SOUND = "[server]\nport = 8080\n"
SPOILT = "server\nport = 9090\n"
EDIT = "Change the port in settings.ini to 9090"
FAULT = "settings.ini (not valid INI: line 1 stands in no [section])"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    file = tmp_path / "shop" / "settings.ini"
    file.write_text(SOUND)
    return file


async def run_edit(home: Path, file: Path, backend: FakeBackend) -> tuple[TaskStatus, str]:
    async with run_engine(home, backend) as world:
        task = await world.create_task(EDIT, project_dir=str(file.parent))
        view = await world.until(task)
    return view.task.status, view.task.status_reason


def write_in_turn(file: Path, *contents: str) -> Callable[[str], None]:
    """Each step writes the next of these; the last one stays."""
    left = iter(contents)

    def write(_title: str) -> None:
        if (content := next(left, None)) is not None:
            file.write_text(content)

    return write


async def test_a_spoilt_file_is_told_once_and_then_a_person_is_asked(
    tmp_path: Path, settings: Path
) -> None:
    backend = FakeBackend(steps=("Set the port",), on_step=write_in_turn(settings, SPOILT))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task(EDIT, project_dir=str(settings.parent))
        view = await world.until(task, TaskStatus.BLOCKED)

    assert FAULT in view.task.status_reason
    assert backend.started_steps == ["Set the port"] * 2
    assert f"not any more: {FAULT}" in backend.requests[-1].prompt


async def test_a_worker_that_is_told_and_repairs_the_file_is_done(
    tmp_path: Path, settings: Path
) -> None:
    mended = SOUND.replace("8080", "9090")
    backend = FakeBackend(steps=("Set it",), on_step=write_in_turn(settings, SPOILT, mended))

    status, _ = await run_edit(tmp_path, settings, backend)

    assert (status, len(backend.started_steps)) == (TaskStatus.COMPLETED, 2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("8081", "new value is not in the file: settings.ini (9090)"), ("9090\nx = 1", "more than")],
)
async def test_a_worker_that_sets_another_value_or_more_is_told(
    tmp_path: Path, settings: Path, wrong: str, told: str
) -> None:
    mended = SOUND.replace("8080", "9090")
    work = write_in_turn(settings, SOUND.replace("8080", wrong), mended)
    backend = FakeBackend(steps=("Set it",), on_step=work)
    async with run_engine(tmp_path, backend) as world:
        asked = "In settings.ini change the port from 8080 to 9090"
        view = await world.until(await world.create_task(asked, project_dir=str(settings.parent)))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Set it"] * 2
    assert told in backend.requests[-1].prompt


@pytest.mark.parametrize("before", ["port = 8080\n", "", "[server\n"])
async def test_a_file_that_was_not_valid_before_is_not_judged(
    tmp_path: Path, settings: Path, before: str
) -> None:
    settings.write_text(before)
    backend = FakeBackend(steps=("Set it",), on_step=write_in_turn(settings, "port = 9090\n"))

    status, _ = await run_edit(tmp_path, settings, backend)

    assert status is TaskStatus.COMPLETED


async def test_a_file_that_a_step_made_is_judged_from_the_next_step_on(tmp_path: Path) -> None:
    def work(title: str) -> None:
        workspace = backend.requests[-1].workspace
        assert workspace is not None
        (workspace / "data.json").write_text("{}" if title == "make" else "{")

    backend = FakeBackend(steps=("make", "spoil"), on_step=work)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Do it"), TaskStatus.BLOCKED)

    assert "data.json (not valid JSON" in view.task.status_reason
    assert backend.started_steps == ["make", "spoil", "spoil"]


async def test_a_deleted_file_is_not_a_spoilt_one(tmp_path: Path, settings: Path) -> None:
    backend = FakeBackend(steps=("Tidy up",), on_step=lambda _: settings.unlink())
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task("Tidy up", project_dir=str(settings.parent))
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED


async def test_what_was_valid_is_known_after_a_failed_attempt_and_a_death(
    tmp_path: Path, settings: Path
) -> None:
    ends = iter((BackendUnavailable("gone"), asyncio.Event()))

    def spoil(_title: str) -> object:
        settings.write_text(SPOILT)
        return next(ends)

    backend = FakeBackend(steps=("Set it",), on_step=spoil)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task("Do it", project_dir=str(settings.parent))
        await wait_until(lambda: len(backend.started_steps) == 2)

    async with run_engine(tmp_path, FakeBackend()) as world:
        view = await world.until(task, TaskStatus.BLOCKED)

    assert FAULT in view.task.status_reason


async def test_after_a_death_in_a_step_a_named_file_that_is_not_valid_counts_as_spoilt(
    tmp_path: Path, settings: Path
) -> None:
    async def die_after(content: str) -> str:
        backend = FakeBackend(steps=("Set it",))
        backend.on_step = lambda _: settings.write_text(content) and asyncio.Event()
        async with run_engine(tmp_path, backend) as world:
            task = await world.create_task(EDIT, project_dir=str(settings.parent))
            await backend.wait_until_started("Set it")
        async with run_engine(tmp_path, FakeBackend()) as world:
            view = await world.until(task, TaskStatus.BLOCKED, TaskStatus.COMPLETED)
        return view.task.status_reason

    assert FAULT in await die_after(SPOILT)


async def test_beside_other_steps_only_files_that_a_step_names_are_judged(tmp_path: Path) -> None:
    """The other one may be in the middle of its change."""
    workflow = Workflow(
        plan="As asked.",
        parallel=2,
        nodes=(
            WorkflowNode(id="a", title="Change a.json", type=NodeType.TASK),
            WorkflowNode(id="b", title="Look around", type=NodeType.TASK),
        ),
    )
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "a.json").write_text("{}")

    def work(title: str) -> None:
        if title == "Look around":
            (folder / "a.json").write_text("{")

    backend = FakeBackend(on_step=work)
    (held,) = backend.hold("Change a.json")
    async with run_engine(tmp_path, backend) as world:
        task = await world.run_workflow(workflow, project_dir=str(folder))
        await backend.wait_until_started("Look around", "Change a.json")
        async with asyncio.timeout(WAIT_SECONDS):
            while not any(each.ended_at for each in (await world.views.view(task.id)).steps):
                await asyncio.sleep(0.005)
        held.set()
        view = await world.until(task, TaskStatus.BLOCKED)

    assert "a.json (not valid JSON" in view.task.status_reason
    assert backend.started_steps.count("Look around") == 1


async def test_a_copy_is_no_translation(tmp_path: Path) -> None:
    written = iter(("明天下午三点开会", "Meeting tomorrow at 3 pm"))

    def work(_title: str) -> None:
        workspace = backend.requests[-1].workspace
        assert workspace is not None
        (workspace / "note-en.txt").write_text(next(written))

    backend = FakeBackend(steps=("Write it",), on_step=work)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task("Translate note.txt into English and save it to note-en.txt")
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert len(backend.started_steps) == 2
    assert "not in the language that was asked for: note-en.txt" in backend.requests[-1].prompt
