"""What a named workflow's card says of its steps."""

from __future__ import annotations

import pytest

from bot.engine.workflow.model.nodes import NodeType
from cards.render.text import render
from cards.views.workflows.shelf import workflow_card
from cards.words import words_for
from storage.records.people import Language
from storage.records.workers.workflows import Drawn, NamedWorkflow, WorkflowStep


@pytest.mark.parametrize("language", list(Language))
def test_the_kind_of_a_step_is_told_in_the_readers_language(language: Language) -> None:
    words = words_for(language)
    steps = tuple(WorkflowStep(id=kind, title="T", type=kind) for kind in NodeType)
    workflow = NamedWorkflow(name="all", steps=steps)

    shown = render(workflow_card(workflow, Drawn(mermaid=""), words, owner=False)).text

    for kind in set(NodeType) - {NodeType.TASK}:
        assert f"T · {words(f'graph.type.{kind}')}" in shown
