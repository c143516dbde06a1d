"""The workflows that come with the program: the same in both languages, without a warning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.engine.workers.personas import BUILT_IN_PERSONAS
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.diagnostics import KnownWorkers, find_warnings
from bot.engine.workflow.dry_run import DryRunConditions, GivenResults, dry_run
from bot.engine.workflow.named_workflows import parse_workflow_text, prepare_run
from bot.engine.workflow.serialization.data_parser import parse_yaml
from bot.engine.workflow.workflow_bundle import list_gallery, read_bundle
from cards.catalog import catalog_for
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


@pytest.mark.parametrize("language", Language)
def test_every_test_case_takes_the_way_that_it_expects(language: Language) -> None:
    zone = ZoneInfo("Asia/Shanghai")
    conditions = DryRunConditions(
        words=catalog_for(language),
        now=datetime(2026, 3, 4, tzinfo=UTC),
        zone=zone,
        max_context_tokens=120_000,
        approval_lifetime=timedelta(days=7),
    )
    for item in list_gallery(language):
        name, workflow = item.workflow.name, parse_workflow_text(item.text)
        cases = parse_yaml(read_bundle(item.document).tests[name])["cases"]
        defaults = {each.name: each.default for each in workflow.inputs}
        for case in cases:
            values = {**defaults, **case.get("inputs", {})}
            given, prepared = (
                GivenResults(outputs=case["outputs"], stop=case.get("stop", "")),
                prepare_run(name, workflow, values),
            )

            run = dry_run(name, replace(workflow, values=values), prepared, given, conditions)

            expected, place = case["expect"], (name, case["name"])
            assert (place, run.end, run.not_given) == (place, expected["status"], ()), run.reason
            if "path" in expected:
                assert (place, list(run.path)) == (place, expected["path"])
            for output, value in expected.get("outputs", {}).items():
                assert (place, output, run.outputs[output]) == (place, output, value)


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
