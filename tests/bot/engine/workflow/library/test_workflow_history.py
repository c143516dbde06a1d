"""Versions of named workflows: who wrote what, conflicts, crashes and ways back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.engine.workflow import workflow_history
from bot.engine.workflow.definition import load_workflow
from cards.catalog import catalog_for
from cards.views.task_card import task_card
from storage.errors import NotAllowed
from storage.records.people import Language
from storage.records.prompt_versions import (
    NewPromptVersion,
    PromptKind,
    VersionState,
    text_hash,
)
from storage.records.workflows import WorkflowRefusalReason, WorkflowRefused
from tests.bot.engine.workflow.library.history_world import (
    NAME,
    REF,
    HistoryWorld,
    make_world,
    text,
)
from tests.builders import make_person
from tests.engine_harness import run_engine
from tests.handlers.router_harness import text_of


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HistoryWorld]:
    async with run_engine(tmp_path) as engine:
        yield make_world(engine, tmp_path)


async def test_a_version_has_its_author_and_a_rollback_is_a_new_one(world: HistoryWorld) -> None:
    await world.save("one", reason="a first go")
    await world.save("one", replace=True)
    await world.save("two", replace=True)
    world.file.write_text(text("three"), encoding="utf-8")

    found = await world.history.list_versions(NAME)
    assert [(each.number, each.author) for each in found.versions] == [
        (3, "file"),
        (2, "p1"),
        (1, "p1"),
    ]
    assert (found.in_use, found.versions[-1].reason) == (3, "a first go")

    await world.history.roll_back(NAME, 1, by=world.owner, via="telegram")
    assert world.file.read_text(encoding="utf-8") == text("one")
    newest = (await world.history.list_versions(NAME)).versions[0]
    assert (newest.number, newest.signal) == (4, {"via": "telegram", "restored": 1})
    assert await world.history.roll_back(NAME, 4, by=world.owner, via="page") is None
    with pytest.raises(WorkflowRefused, match="no_version"):
        await world.history.roll_back(NAME, 99, by=world.owner, via="page")
    with pytest.raises(NotAllowed):
        await world.history.roll_back(NAME, 1, by=make_person("p2"), via="page")


async def test_a_run_keeps_the_version_that_it_began_with(world: HistoryWorld) -> None:
    await world.save("one")
    first = load_workflow((await world.library.prepare_run(NAME, {})).body)
    world.file.write_text(text("two"), encoding="utf-8")
    second = load_workflow((await world.library.prepare_run(NAME, {})).body)

    assert first.source is not None
    assert second.source is not None
    assert (first.source.number, second.source.number) == (1, 2)
    assert "one" in first.nodes_by_id["write"].detail


async def test_a_run_keeps_the_versions_of_the_workflows_inside_it(world: HistoryWorld) -> None:
    outer = """\
name: Outer
nodes:
  - {id: now, type: subworkflow, workflow: note}
  - {id: old, type: subworkflow, workflow: note, version: 1}
  - {id: loud, type: subworkflow, workflow: NOTE}
  - {id: both, type: subworkflow, workflow: Note, version: 1}
"""
    await world.save("one")
    await world.history.save("outer", outer, by=world.owner, via="page")
    world.file.write_text(text("two"), encoding="utf-8")

    ready = await world.library.prepare_run("outer", {})
    task = await world.engine.run_workflow(load_workflow(ready.body), source="test:outer")
    view = await world.engine.views.view(task.id)

    assert (await world.library.diff_with_run(task)).changes == ()
    assert view.workflow == ("outer", 1)
    assert view.subworkflows == (
        ("note", 2),
        ("note", 1),
        ("NOTE", 2),
        ("Note", 1),
    )
    assert "runs note, version 2 · runs note, version 1" in text_of(
        task_card(view, catalog_for(Language.ENGLISH), now=world.engine.clock())
    )


async def test_of_two_editors_the_second_is_told_and_both_texts_are_kept(
    world: HistoryWorld,
) -> None:
    await world.save("one")
    seen = text_hash(text("one"))
    await world.save("mine", based_on=seen)

    for _ in range(2):
        with pytest.raises(WorkflowRefused) as refused:
            await world.save("yours", based_on=seen)
        assert (refused.value.reason, refused.value.detail) == (WorkflowRefusalReason.CHANGED, "3")

    found = await world.history.list_versions(NAME)
    assert found.in_use == 2
    kept = found.find(3)
    assert kept is not None
    assert (kept.content, kept.end_reason) == (text("yours"), "conflict")
    await world.history.roll_back(NAME, 3, by=world.owner, via="page")
    assert world.file.read_text(encoding="utf-8") == text("yours")


@pytest.mark.parametrize(
    ("in_file", "rows"),
    [
        # Died before the file was written, after it, and after it and an edit.
        ("one", [(1, "p1", "written", "")]),
        ("two", [(1, "p1", "retired", "replaced"), (2, "p1", "written", "")]),
        (
            "three",
            [
                (1, "p1", "retired", "replaced"),
                (2, "p1", "retired", "unfinished"),
                (3, "file", "written", ""),
            ],
        ),
    ],
)
async def test_a_save_that_died_keeps_its_author_and_its_text(
    world: HistoryWorld, in_file: str, rows: list[tuple[int, str, str, str]]
) -> None:
    await world.save("one")
    new = NewPromptVersion(
        kind=PromptKind.WORKFLOW,
        name=NAME,
        content=text("two"),
        base_hash=text_hash(text("two")),
        parent=1,
        parent_content="",
        author="p1",
        reason="",
        signal={},
        share=0,
    )
    async with world.engine.db.write() as tx:
        await world.engine.store.versions.add_saving(tx, new, now=world.engine.clock())
    world.file.write_text(text(in_file), encoding="utf-8")

    await world.restart().notice_edits()

    assert await world.rows() == rows


async def test_edits_and_deletions_are_noticed_without_use(world: HistoryWorld) -> None:
    await world.save("one")
    await world.history.notice_edits()
    world.file.write_text(text("two and more"), encoding="utf-8")
    (world.file.parent / "link.yaml").symlink_to("/etc/passwd")
    (world.file.parent / "not a name.yaml").write_text(text("x"), encoding="utf-8")
    await world.history.notice_edits()
    assert [each[1] for each in await world.rows()] == ["p1", "file"]

    world.file.unlink()
    await world.history.notice_edits()
    assert [each[2:] for each in await world.rows()] == [
        ("retired", "replaced"),
        ("retired", "deleted"),
    ]
    found = await world.history.list_versions(NAME)
    assert found.in_use is None
    await world.history.roll_back(NAME, 2, by=world.owner, via="page")
    assert world.file.read_text(encoding="utf-8") == text("two and more")
    assert await world.engine.store.versions.list_written_names(REF.kind) == [NAME]


async def test_a_refused_save_leaves_nothing(world: HistoryWorld) -> None:
    await world.save("one")
    for name, content in ((NAME, text("two")), (NAME, "name: [broken"), ("../x", text("two"))):
        with pytest.raises(WorkflowRefused):
            await world.history.save(name, content, by=world.owner, via="page")

    assert await world.rows() == [(1, "p1", "written", "")]


async def test_old_versions_go_and_runs_keep_their_number(
    world: HistoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_history, "MAX_VERSIONS", 3)
    await world.save("one")
    workflow = load_workflow((await world.library.prepare_run(NAME, {})).body)
    task = await world.engine.create_task()
    assert workflow.source is not None
    async with world.engine.db.write() as tx:
        await world.engine.store.versions.record_use(tx, task.id, [workflow.source])
    for word in ("two", "three", "four", "five"):
        await world.save(word, replace=True)

    assert [each[0] for each in await world.rows()] == [3, 4, 5]
    ((_, _, used),) = await world.engine.store.versions.list_used(task.id)
    assert (used.number, used.version_id) == (1, None)
    monkeypatch.setattr(workflow_history, "MAX_CHARACTERS", 10)
    await world.save("six", replace=True)
    assert await world.rows() == [(6, "p1", VersionState.WRITTEN.value, "")]
