"""The folder of named workflows: whatever lies in it, and how it is written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.engine.workflow.graph import load_workflow
from bot.engine.workflow.library.library import Library
from storage.records.people import Language
from storage.records.workers.workflows import (
    BadWorkflow,
    WhyNoWorkflow,
    WorkflowRefused,
    WorkflowShelf,
)

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
def library(tmp_path: Path) -> Library:
    (tmp_path / "workflows").mkdir()
    return Library(tmp_path)


def put(home: Path, name: str, text: str = GOOD) -> Path:
    path = home / "workflows" / name
    path.write_text(text, encoding="utf-8")
    return path


def faults(shelf: WorkflowShelf) -> dict[str, list[str]]:
    return {bad.file: [fault.key for fault in bad.faults] for bad in shelf.bad}


async def test_a_file_that_is_put_there_is_found_by_its_name(
    library: Library, tmp_path: Path
) -> None:
    put(tmp_path, "research.yaml")

    found = await library.find("research")

    assert (found.name, found.title, found.file) == ("research", "Look it up", "research.yaml")
    assert [each.name for each in found.inputs if each.is_open] == ["topic"]
    assert [each.title for each in found.steps] == ["Look up {{inputs.topic}}", "Tell"]


async def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    assert (await Library(tmp_path).shelf()).workflows == ()


async def test_a_file_that_changes_is_read_anew_and_one_that_goes_is_gone(
    library: Library, tmp_path: Path
) -> None:
    path = put(tmp_path, "research.yaml")
    await library.shelf()

    path.write_text(GOOD.replace("Look it up", "Find it out again"), encoding="utf-8")
    assert (await library.find("research")).title == "Find it out again"
    path.unlink()
    assert (await library.shelf()).workflows == ()


async def test_a_broken_file_is_told_with_all_its_faults_and_harms_no_other(
    library: Library, tmp_path: Path
) -> None:
    put(tmp_path, "good.yaml")
    put(tmp_path, "bad.yaml", "name: Bad\nnodes:\n  - {id: a, type: banana}\n  - {id: a}\n")
    put(tmp_path, "torn.json", '{"nodes": [')
    put(tmp_path, "README.md", "# How to")

    shelf = await library.shelf()

    assert [each.name for each in shelf.workflows] == ["good"]
    assert {"twice", "unknown_type"} <= set(faults(shelf)["bad.yaml"])
    assert set(faults(shelf)) == {"bad.yaml", "torn.json"}
    with pytest.raises(WorkflowRefused) as refused:
        await library.find("bad")
    assert refused.value.reason is WhyNoWorkflow.BROKEN
    assert len(refused.value.faults) >= 2


async def test_links_pipes_large_files_and_strange_names_are_refused(
    library: Library, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(GOOD, encoding="utf-8")
    (tmp_path / "workflows" / "link.yaml").symlink_to(secret)
    os.mkfifo(tmp_path / "workflows" / "pipe.yaml")
    put(tmp_path, "large.yaml", GOOD + "#" * 1_000_000)
    (tmp_path / "workflows" / "bytes.yaml").write_bytes(b"name: \xff\xfe")
    put(tmp_path, "a b.yaml")
    put(tmp_path, "same.yaml")
    put(tmp_path, "same.json", "{}")

    assert faults(await library.shelf()) == {
        "link.yaml": ["link"],
        "pipe.yaml": ["not_a_file"],
        "large.yaml": ["large_file"],
        "bytes.yaml": ["not_utf8"],
        "a b.yaml": ["file_name"],
        "same.json": ["same_name"],
    }


async def test_more_files_than_anybody_keeps_are_counted_not_read(
    library: Library, tmp_path: Path
) -> None:
    for n in range(205):
        put(tmp_path, f"w{n:03}.yaml")

    shelf = await library.shelf()

    assert (len(shelf.workflows), shelf.left_out) == (200, 5)


@pytest.mark.parametrize(
    "name", ["", "..", "../evil", "a/b", "/etc/x", ".hidden", "a\0b", "x" * 65, "readme", "a.b"]
)
async def test_no_name_leads_out_of_the_folder(library: Library, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(WorkflowRefused, match="bad_name"):
        await library.save(name, GOOD)
    with pytest.raises(WorkflowRefused, match="bad_name"):
        await library.delete(name)
    with pytest.raises(WorkflowRefused, match="unknown"):
        await library.find(name)

    assert sorted(tmp_path.rglob("*")) == before


async def test_what_is_kept_is_there_whole_and_nothing_is_left_beside_it(
    library: Library, tmp_path: Path
) -> None:
    saved = await library.save("周报", GOOD)

    assert (saved.name, saved.file) == ("周报", "周报.yaml")
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["周报.yaml"]


async def test_nothing_is_overwritten_without_being_asked(library: Library, tmp_path: Path) -> None:
    put(tmp_path, "research.json", '{"name": "Old", "nodes": [{"id": "a", "type": "task"}]}')

    with pytest.raises(WorkflowRefused, match="exists"):
        await library.save("research", GOOD)
    assert (await library.find("research")).title == "Old"
    await library.save("research", GOOD, replace=True)

    assert (await library.find("research")).title == "Look it up"
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]


async def test_the_same_order_carried_out_again_changes_nothing(
    library: Library, tmp_path: Path
) -> None:
    first = await library.save("research", GOOD)

    assert await library.save("research", GOOD) == first
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]


async def test_of_many_who_save_one_name_at_once_one_is_first(
    library: Library, tmp_path: Path
) -> None:
    texts = [GOOD.replace("Look it up", f"Number {n}") for n in range(8)]
    saved = await asyncio.gather(
        *(library.save("research", text) for text in texts), return_exceptions=True
    )

    refused = [each for each in saved if isinstance(each, WorkflowRefused)]
    assert len(refused) == 7
    assert (tmp_path / "workflows" / "research.yaml").read_text(encoding="utf-8") in texts
    assert [each.name for each in (tmp_path / "workflows").iterdir()] == ["research.yaml"]


async def test_what_cannot_be_run_is_not_kept(library: Library, tmp_path: Path) -> None:
    with pytest.raises(WorkflowRefused, match="broken"):
        await library.save("bad", "name: Bad\nnodes: [{id: a, type: banana}]")

    assert list((tmp_path / "workflows").iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "workflows").write_text("in the way", encoding="utf-8")

    with pytest.raises(WorkflowRefused, match="unwritable"):
        await Library(tmp_path).save("research", GOOD)


async def test_a_broken_file_can_be_deleted(library: Library, tmp_path: Path) -> None:
    put(tmp_path, "bad.yaml", "nonsense: [")

    await library.delete("bad")

    assert (await library.shelf()).bad == ()
    with pytest.raises(WorkflowRefused, match="unknown"):
        await library.delete("bad")


async def test_a_run_has_what_was_given_and_defaults_for_the_rest(
    library: Library, tmp_path: Path
) -> None:
    put(tmp_path, "research.yaml")

    ready = await library.ready("research", {"topic": "cats"})

    assert ready.title == "Look it up: cats"
    assert "Find out all there is." in ready.instruction
    assert "topic: cats" in ready.instruction
    assert load_workflow(ready.body).values == {"topic": "cats", "depth": 2}


async def test_a_workflow_is_drawn_as_text_and_as_a_picture(
    library: Library, tmp_path: Path
) -> None:
    put(tmp_path, "research.yaml")

    drawn = await library.drawn("research", Language.ENGLISH)

    assert drawn.mermaid.startswith("flowchart")
    assert (tmp_path / drawn.svg).read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / drawn.svg).stat().st_size == drawn.size


@pytest.mark.parametrize("text", ["", "just words", "x" * 600_000, "[1, 2]", "\0", "&a [*a]"])
async def test_any_text_is_judged_not_run(library: Library, text: str) -> None:
    assert isinstance(await library.judged(text), BadWorkflow)
