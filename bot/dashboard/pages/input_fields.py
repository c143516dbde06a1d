"""Typed fields of forms: the inputs of a workflow, and what a person is asked to fill in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import FormData

from bot.dashboard.request import form_text
from cards import formats
from cards.catalog import TextCatalog
from cards.views.workflows import input_value_label
from handlers.workflow_inputs import WorkflowInputValues
from handlers.workflows import invalid_input_text
from storage.records.workflows import WorkflowInput

_PREFIX = "in."
"""Begins the names of such fields, so that none has the name of another field of its form."""
_MAX_LABEL = 120
_MAX_DEFAULT = 2_000
_LONG_LINE = 200


def field_texts(form: FormData, inputs: Sequence[WorkflowInput]) -> Mapping[str, str]:
    """The texts that were filled in, by the names of the inputs; fields left empty are missing."""
    texts = {each.name: form_text(form, _PREFIX + each.name) for each in inputs}
    return {name: text for name, text in texts.items() if text}


def field_rows(
    inputs: Sequence[WorkflowInput],
    words: TextCatalog,
    filled: Mapping[str, str] | None = None,
    refused: WorkflowInputValues | None = None,
) -> Sequence[dict[str, Any]]:
    """The fields for `fields.html`; `filled` are texts that were `refused`, each for the reason
    that stands at its field."""
    problems: dict[str, str] = {}
    if refused is not None:
        problems = {
            each.name: words("dashboard.workflow.missing", name=_label(each))
            for each in refused.missing
        }
        problems |= {each.input.name: invalid_input_text(each, words) for each in refused.invalid}
    return [
        _row(each, words)
        | {
            "value": (filled or {}).get(each.name, ""),
            "problem": problems.get(each.name, ""),
        }
        for each in inputs
    ]


def _row(each: WorkflowInput, words: TextCatalog) -> dict[str, Any]:
    default = "" if each.default is None else str(input_value_label(each.default, words))
    return {
        "name": _PREFIX + each.name,
        "label": _label(each),
        "kind": each.kind,
        "is_long": each.kind == "text" and len(default) > _LONG_LINE,
        "options": each.options,
        "required": each.must_be_given,
        "placeholder": formats.truncate(default, _MAX_DEFAULT),
    }


def _label(each: WorkflowInput) -> str:
    return formats.single_line(each.label, _MAX_LABEL)
