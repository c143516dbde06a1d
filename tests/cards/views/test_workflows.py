"""The steps on a named workflow's card."""

from __future__ import annotations

import pytest

from bot.engine.workflow.nodes.registry import NodeType
from cards.catalog import catalog_for
from cards.render.text import render
from cards.views.workflows import workflow_card
from storage.records.people import Language
from storage.records.workflows import NamedWorkflow, WorkflowDrawing, WorkflowStep


@pytest.mark.parametrize("language", list(Language))
def test_the_kind_of_a_step_is_told_in_the_readers_language(language: Language) -> None:
    words = catalog_for(language)
    steps = tuple(WorkflowStep(id=kind, title="T", type=kind) for kind in NodeType)
    workflow = NamedWorkflow(name="all", steps=steps)

    shown = render(workflow_card(workflow, WorkflowDrawing(mermaid=""), words, owner=False)).text

    for kind in set(NodeType) - {NodeType.TASK}:
        assert f"T · {words(f'graph.type.{kind}')}" in shown
