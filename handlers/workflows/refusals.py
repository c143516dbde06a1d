"""What went wrong with a workflow, as an answer to whoever asked."""

from __future__ import annotations

from collections.abc import Awaitable

from cards import formats
from cards.views.workflows.data import fault_data
from cards.views.workflows.faults import fault_line
from cards.views.workflows.shelf import broken_card
from handlers.errors import UserError
from handlers.request import Reply, Request
from storage.records.workers.workflows import WhyNoWorkflow, WorkflowRefused

_NAME = 64
_DETAIL = 200


async def answered(request: Request, answer: Awaitable[Reply]) -> Reply:
    """The answer, or all that is wrong with the workflow it was about."""
    try:
        return await answer
    except WorkflowRefused as error:
        return _refused(request, error)


def _refused(request: Request, error: WorkflowRefused) -> Reply:
    """Raises UserError for all but broken ones, which have a card of their own."""
    words, name = request.words, formats.line(error.name, _NAME)
    if error.reason is not WhyNoWorkflow.BROKEN:
        told = [fault_line(each, words) for each in error.faults] or [error.detail]
        detail = formats.line(" · ".join(told), _DETAIL)
        raise UserError(f"workflow_{error.reason}", name=name, detail=detail) from error
    faults = [fault_data(each, words) for each in error.faults]
    card = broken_card(name, error.faults, words)
    data = {"error": card.summary, "name": name, "good": False, "faults": faults}
    return Reply(card=card, good=False, data=data)
