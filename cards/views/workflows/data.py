"""Named workflows as plain values, for programs."""

from __future__ import annotations

from typing import Any

from cards.views.workflows.faults import fault_line
from cards.words import Words
from storage.records.workers.workflows import (
    BadWorkflow,
    NamedWorkflow,
    WorkflowFault,
    WorkflowShelf,
)


def shelf_data(shelf: WorkflowShelf, words: Words) -> dict[str, Any]:
    return {
        "workflows": [workflow_data(each) for each in shelf.workflows],
        "broken": [bad_data(each, words) for each in shelf.bad],
        "left_out": shelf.left_out,
    }


def workflow_data(workflow: NamedWorkflow) -> dict[str, Any]:
    return {
        "name": workflow.name,
        "file": workflow.file,
        "title": workflow.title,
        "description": workflow.description,
        "inputs": [
            {
                "name": each.name,
                "title": each.title,
                "type": each.kind,
                "options": list(each.options),
                "default": each.default,
                "required": each.is_open,
            }
            for each in workflow.inputs
        ],
        "nodes": [
            {"id": each.id, "title": each.title, "type": each.type} for each in workflow.steps
        ],
        "outputs": list(workflow.outputs),
    }


def bad_data(bad: BadWorkflow, words: Words) -> dict[str, Any]:
    return {
        "name": bad.name,
        "file": bad.file,
        "good": False,
        "faults": [fault_data(each, words) for each in bad.faults],
    }


def fault_data(fault: WorkflowFault, words: Words) -> dict[str, Any]:
    return {
        "key": fault.key,
        "where": fault.where,
        "field": fault.field,
        "text": fault_line(fault, words),
    }
