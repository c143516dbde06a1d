"""The workflows that come with the program: the same in both languages, without a warning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.workers.personas import BUILT_IN_PERSONAS
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.diagnostics import KnownWorkers, find_warnings
from bot.engine.workflow.named_workflows import parse_workflow_text
from bot.engine.workflow.workflow_bundle import list_gallery
from storage.records.people import Language
from storage.records.workflows import WorkflowRefused
from tests.bot.engine.workflow.library.history_world import HistoryWorld, make_world
from tests.engine_harness import run_engine

NAMES = [
    "data-check",
    "hiring",
    "incident",
    "invoice",
    "nightly-report",
    "pr-review",
    "release",
    "research",
    "translation",
    "weekly-digest",
]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HistoryWorld]:
    async with run_engine(tmp_path) as engine:
        yield make_world(engine, tmp_path)


def test_all_are_there_in_both_languages_without_a_warning() -> None:
    workers = KnownWorkers(personas=frozenset(BUILT_IN_PERSONAS))
    both = map(list_gallery, (Language.ENGLISH, Language.CHINESE))
    for english, chinese in zip(*both, strict=True):
        one, other = (parse_workflow_text(each.text) for each in (english, chinese))

        assert structure(one) == structure(other)
        assert not any(set(one.name) & set(other.name) - set(" "))
        for workflow, item in ((one, english), (other, chinese)):
            assert list(find_warnings(workflow, item.text, workers)) == []
            assert len(item.text) < 8_000
            assert any(node.output for node in workflow.nodes)
    assert [each.workflow.name for each in list_gallery(Language.ENGLISH)] == NAMES


def structure(workflow: Workflow) -> list[Any]:
    """A workflow without its words."""
    nodes = [wordless(node) for node in workflow.nodes]
    names = [(each.name, each.kind, each.options, each.required) for each in workflow.inputs]
    return [nodes, workflow.edges, names, workflow.outputs, workflow.timeout, workflow.parallel]


def wordless(node: WorkflowNode) -> WorkflowNode:
    output = tuple(replace(each, description="") for each in node.output)
    return replace(node, title="", detail="", output=output)


async def test_one_is_installed_once_and_never_over_another(world: HistoryWorld) -> None:
    item = await world.exchange.find_in_gallery("Release", Language.CHINESE)
    for _ in range(2):
        await world.exchange.apply_import(item.document, by=world.owner, via="gallery")

    assert (await world.library.read_source("release")).text == item.text
    (version,) = (await world.history.list_versions("release")).versions
    assert (version.author, version.signal) == ("p1", {"via": "gallery"})
    assert (await world.exchange.export("release")).text == item.document
    english = await world.exchange.find_in_gallery("release", Language.ENGLISH)
    with pytest.raises(WorkflowRefused, match="exists"):
        await world.exchange.apply_import(english.document, by=world.owner, via="gallery")
    with pytest.raises(WorkflowRefused, match="unknown"):
        await world.exchange.find_in_gallery("../release", Language.ENGLISH)
