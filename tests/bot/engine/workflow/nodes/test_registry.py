"""Every registered node type is complete: read, written, stored, named, drawn and documented."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from bot.engine.workflow.definition import Workflow, dump_workflow, load_workflow
from bot.engine.workflow.nodes.contract import LoopTypeSpec, NodeRole, NodeShape
from bot.engine.workflow.nodes.registry import CONFIG_TYPES, NodeType, spec_of
from bot.engine.workflow.presentation.drawing import render_mermaid, render_svg
from bot.engine.workflow.serialization.data_parser import parse_yaml
from bot.engine.workflow.serialization.reader import workflow_from_data, workflow_to_data
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator

ROOT = Path(__file__).parents[5]
DOCS = Path(__file__).parents[5] / "docs" / "reference" / "workflows.md"
STORED_PLAN = Path(__file__).with_name("stored_plan.json")
TYPES = pytest.mark.parametrize("kind", list(NodeType))


def example_workflow(kind: NodeType) -> Workflow:
    return workflow_from_data(parse_yaml(kind.spec.example), require_name=False)


@TYPES
def test_the_example_of_a_type_uses_it_and_ends(kind: NodeType) -> None:
    workflow = example_workflow(kind)

    node = next(node for node in workflow.nodes if node.type == kind)
    assert node.spec is kind.spec
    assert (node.config is None) == (kind.spec.config is None)
    values = {"papers": ["a"], "value": ["a"], "ok": True, "approved": True}
    end = SchedulerSimulator(workflow, work=lambda *_: values).run()
    assert end == "done" or end.startswith(
        ("failed: sign: workflow.nobody_decided", "failed: publish: workflow.not_inserted")
    )


@TYPES
def test_the_example_of_a_type_is_written_and_stored_as_it_is(kind: NodeType) -> None:
    workflow = example_workflow(kind)

    assert workflow_from_data(workflow_to_data(workflow), require_name=False) == workflow
    assert load_workflow(json.loads(json.dumps(dump_workflow(workflow)))) == workflow


@TYPES
def test_a_type_is_drawn_in_its_shape(kind: NodeType) -> None:
    workflow = example_workflow(kind)

    assert kind.spec.shape in set(NodeShape)
    assert render_mermaid(workflow, catalog_for(Language.ENGLISH)).startswith("flowchart")
    assert render_svg(workflow, catalog_for(Language.ENGLISH)).endswith("</svg>")


@TYPES
@pytest.mark.parametrize("language", list(Language))
def test_a_type_has_a_label(kind: NodeType, language: Language) -> None:
    key = f"graph.type.{kind}"

    assert catalog_for(language)(key) not in {"", key}


@TYPES
def test_a_type_is_documented(kind: NodeType) -> None:
    assert len(inspect.cleandoc(type(kind.spec).__doc__ or "")) > 20
    table = DOCS.read_text(encoding="utf-8").split("| type | settings", 1)[1].split("\n\n", 1)[0]
    row = next(line for line in table.splitlines() if f"`{kind}`" in line.split("|")[1])
    shown = [name for name in kind.spec.fields if f"`{name}`" not in row]
    # The mode of a loop is called its type there.
    assert shown in ([], ["mode"])


@TYPES
def test_a_type_with_settings_has_a_module_and_a_test_of_its_own(kind: NodeType) -> None:
    module = type(kind.spec).__module__
    name = kind if kind.spec.config is not None else "plain"

    assert module == f"bot.engine.workflow.nodes.{name}"
    assert Path(__file__).with_name(f"test_{name}.py").exists()


@TYPES
def test_a_type_is_consistent(kind: NodeType) -> None:
    spec = kind.spec

    assert spec_of(kind.value) is spec
    assert spec.role in set(NodeRole)
    assert isinstance(spec, LoopTypeSpec) == (spec.role is NodeRole.LOOP)
    assert not {*spec.node_fields, *spec.body_fields} - {*spec.fields}
    if spec.config is not None:
        assert spec.default is None or isinstance(spec.default, spec.config)
        config = next(n.config for n in example_workflow(kind).nodes if n.type == kind)
        assert config is not None
        assert config.kind == spec.name
        assert [*spec.check(config, {"print", "mail"})] == []


def test_names_of_types_belong_to_one_type() -> None:
    for names in ("aliases", "markdown_names"):
        given = [name for kind in NodeType for name in getattr(kind.spec, names)]
        assert len(set(given)) == len(given)
        assert not {*given} & {*NodeType}


def test_configs_are_tried_in_the_order_that_stored_plans_rely_on() -> None:
    assert [each.__name__.removesuffix("Config").lower() for each in CONFIG_TYPES[:9]] == [
        "join", "human", "delay", "schedule", "loop", "foreach", "switch", "assign", "script",
    ]  # fmt: skip


def test_a_plan_with_every_type_that_an_earlier_release_stored_is_loaded_as_it_was() -> None:
    stored = json.loads(STORED_PLAN.read_text(encoding="utf-8"))

    workflow = load_workflow(stored)

    assert {node.type for node in workflow.nodes} == {*[*NodeType][:14]}
    assert dump_workflow(workflow) == stored
