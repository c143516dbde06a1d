"""The folder of named workflows: reading, validation and atomic writes."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.workflow.definition import WorkflowNode, load_workflow
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.named_workflows import (
    WorkflowLibrary,
    make_template,
    prepare_run,
    workflow_to_yaml,
)
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.serialization.reader import read_workflow
from storage.records.people import Language
from storage.records.tasks import TaskStatus
from storage.records.workflows import (
    InvalidWorkflowFile,
    WorkflowCatalog,
    WorkflowRefusalReason,
    WorkflowRefused,
)
from tests.builders import make_task

GOOD = """\
name: Look it up
description: Find out all there is.
inputs:
  - {name: topic, title: What about}
  - {name: depth, type: number, default: 2}
nodes:
  - {id: look, type: task, name: "Look up {{inputs.topic}}"}
  - {id: tell, type: task, name: Tell}
"""


@pytest.fixture
def library(tmp_path: Path) -> WorkflowLibrary:
    (tmp_path / "workflows").mkdir()
    return WorkflowLibrary(tmp_path)


def write_workflow(home: Path, name: str, text: str = GOOD) -> Path:
    path = home / "workflows" / name
    path.write_text(text, encoding="utf-8")
    return path


def faults(shelf: WorkflowCatalog) -> dict[str, list[str]]:
    return {bad.file: [fault.code for fault in bad.errors] for bad in shelf.invalid}


async def test_a_file_that_is_put_there_is_found_by_its_name(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    write_workflow(tmp_path, "research.yaml")

    found = await library.find("research")

    assert (found.name, found.title, found.file) == ("research", "Look it up", "research.yaml")
    assert [each.name for each in found.inputs if each.must_be_given] == ["topic"]
    assert [each.title for each in found.steps] == ["Look up {{inputs.topic}}", "Tell"]


async def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    assert (await WorkflowLibrary(tmp_path).list_workflows()).workflows == ()


async def test_a_file_that_changes_is_read_anew_and_one_that_goes_is_gone(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    path = write_workflow(tmp_path, "research.yaml")
    await library.list_workflows()

    path.write_text(GOOD.replace("Look it up", "Find it out again"), encoding="utf-8")
    assert (await library.find("research")).title == "Find it out again"
    path.unlink()
    assert (await library.list_workflows()).workflows == ()


async def test_a_broken_file_is_told_with_all_its_faults_and_harms_no_other(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    write_workflow(tmp_path, "good.yaml")
    write_workflow(
        tmp_path, "bad.yaml", "name: Bad\nnodes:\n  - {id: a, type: banana}\n  - {id: a}\n"
    )
    write_workflow(tmp_path, "torn.json", '{"nodes": [')
    write_workflow(tmp_path, "README.md", "# How to")

    shelf = await library.list_workflows()

    assert [each.name for each in shelf.workflows] == ["good"]
    assert {"twice", "unknown_type"} <= set(faults(shelf)["bad.yaml"])
    assert set(faults(shelf)) == {"bad.yaml", "torn.json"}
    with pytest.raises(WorkflowRefused) as refused:
        await library.find("bad")
    assert refused.value.reason is WorkflowRefusalReason.BROKEN
    assert len(refused.value.errors) >= 2


async def test_links_pipes_large_files_and_strange_names_are_refused(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(GOOD, encoding="utf-8")
    (tmp_path / "workflows" / "link.yaml").symlink_to(secret)
    os.mkfifo(tmp_path / "workflows" / "pipe.yaml")
    write_workflow(tmp_path, "large.yaml", GOOD + "#" * 1_000_000)
    (tmp_path / "workflows" / "bytes.yaml").write_bytes(b"name: \xff\xfe")
    write_workflow(tmp_path, "a b.yaml")
    write_workflow(tmp_path, "same.yaml")
    write_workflow(tmp_path, "same.json", "{}")
    with (tmp_path / "workflows" / "ten_megabytes.yaml").open("wb") as huge:
        huge.truncate(10_000_000)
    (tmp_path / "workflows" / "binary.yaml").write_bytes(b"name: a\x00b\nnodes: []\n")
    write_workflow(tmp_path, "words.yaml", "just words")
    write_workflow(tmp_path, "bomb.yaml", "a: &a [x]\n" + "b: [*a, *a]\n" * 9)
    (tmp_path / "workflows" / "folder.yaml").mkdir()
    (tmp_path / "workflows" / "old").mkdir()
    write_workflow(tmp_path, "notes.txt")
    write_workflow(tmp_path, "same.test.yaml")
    write_workflow(tmp_path, "gone.test.yaml")

    shelf = await library.list_workflows()
    assert [each.name for each in shelf.workflows] == ["same"]
    assert {each.file: each.code for each in shelf.foreign} == {
        "folder.yaml": "folder",
        "old": "folder",
        "notes.txt": "other_file",
        "gone.test.yaml": "tests_of_none",
    }
    bomb = dict(faults(shelf))
    assert set(bomb.pop("bomb.yaml")) >= {"yaml_alias", "given_twice"}
    assert bomb == {
        "ten_megabytes.yaml": ["large_file"],
        "binary.yaml": ["yaml_control", "missing"],
        "words.yaml": ["no_workflow"],
        **_FOREIGN_FAULTS,
    }


_FOREIGN_FAULTS = {
    "link.yaml": ["link"],
    "pipe.yaml": ["not_a_file"],
    "large.yaml": ["large_file"],
    "bytes.yaml": ["not_utf8"],
    "a b.yaml": ["file_name"],
    "same.json": ["same_name"],
}


async def test_more_files_than_anybody_keeps_are_counted_not_read(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    for n in range(205):
        write_workflow(tmp_path, f"w{n:03}.yaml")

    shelf = await library.list_workflows()

    assert (len(shelf.workflows), shelf.left_out) == (200, 5)


@pytest.mark.parametrize(
    "name", ["", "..", "../evil", "a/b", "/etc/x", ".hidden", "a\0b", "x" * 65, "readme", "a.b"]
)
async def test_no_name_leads_out_of_the_folder(
    library: WorkflowLibrary, tmp_path: Path, name: str
) -> None:
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(WorkflowRefused, match="bad_name"):
        await library.save(name, GOOD)
    with pytest.raises(WorkflowRefused, match="bad_name"):
        await library.delete(name)
    with pytest.raises(WorkflowRefused, match="unknown"):
        await library.find(name)

    assert sorted(tmp_path.rglob("*")) == before


async def test_what_is_kept_is_there_whole_and_nothing_is_left_beside_it(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    (tmp_path / "workflows" / ".周报.x1.new").write_text("cut off by a crash", encoding="utf-8")

    saved = await library.save("周报", GOOD)

    assert (saved.name, saved.file) == ("周报", "周报.yaml")
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["周报.yaml"]


async def test_nothing_is_overwritten_without_being_asked(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    write_workflow(
        tmp_path, "research.json", '{"name": "Old", "nodes": [{"id": "a", "type": "task"}]}'
    )

    with pytest.raises(WorkflowRefused, match="exists"):
        await library.save("research", GOOD)
    assert (await library.find("research")).title == "Old"
    await library.save("research", GOOD, replace=True)

    assert (await library.find("research")).title == "Look it up"
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]


async def test_the_same_order_carried_out_again_changes_nothing(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    first = await library.save("research", GOOD)

    assert await library.save("research", GOOD) == first
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]


async def test_of_many_who_save_one_name_at_once_one_is_first(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    texts = [GOOD.replace("Look it up", f"Number {n}") for n in range(8)]
    saved = await asyncio.gather(
        *(library.save("research", text) for text in texts), return_exceptions=True
    )

    refused = [each for each in saved if isinstance(each, WorkflowRefused)]
    assert len(refused) == 7
    assert (tmp_path / "workflows" / "research.yaml").read_text(encoding="utf-8") in texts
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]


async def test_a_change_replaces_only_the_text_that_it_is_based_on(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    path = write_workflow(tmp_path, "research.yaml")
    seen = (await library.read_source("research")).hash
    first, second = (GOOD.replace("Look it up", each) for each in ("First", "Second"))

    await library.save("research", first, based_on=seen)
    await library.save("research", first, based_on=seen)  # the same change again
    with pytest.raises(WorkflowRefused, match="changed"):
        await library.save("research", second, based_on=seen)
    with pytest.raises(WorkflowRefused, match="changed"):
        await library.delete("research", based_on=seen)
    assert path.read_text(encoding="utf-8") == first

    path.write_text("broken: [", encoding="utf-8")
    broken = await library.read_source("research")
    assert broken.text == "broken: ["
    await library.save("research", second, based_on=broken.hash)
    path.unlink()
    with pytest.raises(WorkflowRefused, match="changed"):
        await library.save("research", first, based_on=seen)
    assert list((tmp_path / "workflows").iterdir()) == []


async def test_a_file_that_an_editor_saves_while_a_change_is_written_is_kept(
    library: WorkflowLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_workflow(tmp_path, "research.yaml")
    seen = (await library.read_source("research")).hash
    flush = os.fsync

    def save_meanwhile(handle: int) -> None:
        flush(handle)
        path.write_text("theirs", encoding="utf-8")

    monkeypatch.setattr("bot.engine.workflow.workflow_files.os.fsync", save_meanwhile)
    with pytest.raises(WorkflowRefused, match="changed"):
        await library.save("research", GOOD, based_on=seen)

    assert [each.read_text("utf-8") for each in path.parent.iterdir()] == ["theirs"]


async def test_of_many_who_change_one_text_at_once_one_is_first(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    write_workflow(tmp_path, "research.YAML")
    seen = (await library.read_source("research")).hash
    texts = [GOOD.replace("Look it up", f"Number {n}") for n in range(8)]

    saved = await asyncio.gather(
        *(library.save("research", text, based_on=seen) for text in texts), return_exceptions=True
    )

    assert [isinstance(each, WorkflowRefused) for each in saved].count(True) == 7
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]
    assert (await library.read_source("research")).text in texts


async def test_a_link_is_not_read_for_its_text(library: WorkflowLibrary, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(GOOD, encoding="utf-8")
    (tmp_path / "workflows" / "link.yaml").symlink_to(secret)

    with pytest.raises(WorkflowRefused, match="unreadable"):
        await library.read_source("link")


async def test_what_cannot_be_run_is_not_kept(library: WorkflowLibrary, tmp_path: Path) -> None:
    with pytest.raises(WorkflowRefused, match="broken"):
        await library.save("bad", "name: Bad\nnodes: [{id: a, type: banana}]")

    assert list((tmp_path / "workflows").iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "workflows").write_text("in the way", encoding="utf-8")

    with pytest.raises(WorkflowRefused, match="unwritable"):
        await WorkflowLibrary(tmp_path).save("research", GOOD)


async def test_a_broken_file_can_be_deleted(library: WorkflowLibrary, tmp_path: Path) -> None:
    write_workflow(tmp_path, "bad.yaml", "nonsense: [")

    await library.delete("bad")

    assert (await library.list_workflows()).invalid == ()
    with pytest.raises(WorkflowRefused, match="unknown"):
        await library.delete("bad")


async def test_a_run_has_what_was_given_and_defaults_for_the_rest(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    write_workflow(tmp_path, "research.yaml")

    ready = await library.prepare_run("research", {"topic": "cats"})

    assert ready.title == "Look it up: cats"
    assert "Find out all there is." in ready.instruction
    assert "topic: cats" in ready.instruction
    assert load_workflow(ready.body).values == {"topic": "cats", "depth": 2}


async def test_a_workflow_is_drawn_as_text_and_as_a_picture(
    library: WorkflowLibrary, tmp_path: Path
) -> None:
    write_workflow(tmp_path, "research.yaml")

    drawn = await library.render_diagram("research", Language.ENGLISH)

    assert drawn.mermaid.startswith("flowchart")
    assert (tmp_path / drawn.svg).read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / drawn.svg).stat().st_size == drawn.size


@pytest.mark.parametrize("text", ["", "just words", "x" * 600_000, "[1, 2]", "\0", "&a [*a]"])
async def test_any_text_is_judged_not_run(library: WorkflowLibrary, text: str) -> None:
    assert isinstance(await library.validate(text), InvalidWorkflowFile)


PLAN = linear_workflow(
    "First look, then tell.",
    (
        WorkflowNode(id="s1", title="Look", detail="Search: all of it"),
        WorkflowNode(id="s2", title="Tell", given=True, repeatable=False),
    ),
)
TASK = replace(
    make_task("d0neab", TaskStatus.COMPLETED), title="Cats", instruction="Write about cats: all."
)


def test_a_kept_plan_reads_back_as_the_same_steps_without_what_became_of_them() -> None:
    ran = replace(PLAN, answer="It is done.", served=3, values={"x": 1})

    kept = read_workflow(workflow_to_yaml(make_template(TASK, ran)))

    steps = [node for node in kept.nodes if node.type not in {"start", "end"}]
    assert [(n.id, n.title, n.detail, n.repeatable, n.given) for n in steps] == [
        ("s1", "Look", "Search: all of it", True, False),
        ("s2", "Tell", "", False, False),
    ]
    assert (kept.name, kept.plan) == ("Cats", "First look, then tell.")
    assert (kept.answer, kept.served, kept.values) == ("", 0, {})


def test_run_again_it_is_about_the_same_thing_unless_somebody_says_another() -> None:
    kept = read_workflow(workflow_to_yaml(make_template(TASK, PLAN)))

    assert prepare_run("cats", kept, {}).instruction == "Write about cats: all."
    assert (
        prepare_run("cats", kept, {"task": "Write about dogs."}).instruction == "Write about dogs."
    )
    assert prepare_run("cats", kept, {}).title == "Cats"


def test_a_workflow_that_asks_for_something_asks_for_the_same_when_kept_again() -> None:
    asks = replace(
        PLAN, inputs=(InputDefinition(name="topic"),), values={"topic": "cats"}, name="Topics"
    )

    kept = make_template(TASK, asks)

    assert [each.name for each in kept.inputs] == ["topic"]
    assert kept.name == "Topics"
    assert load_workflow(prepare_run("topics", kept, {"topic": "dogs"}).body).values == {
        "topic": "dogs"
    }
