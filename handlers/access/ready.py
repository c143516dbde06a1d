"""Whether who is chosen can work here at all: said when they are chosen, not when work is begun."""

from __future__ import annotations

from cards.views.backends import how
from handlers.errors import UserError
from handlers.request import Request
from storage.records.status import BackendHealth


async def check_ready(request: Request, name: str) -> None:
    """For a choice that stays. Raises UserError for a coding CLI that cannot work, with what to do
    about it: who stands in is for what breaks later."""
    found = await request.services.models.ready(name)
    if found is not None and found.is_cli and found.problem:
        raise not_ready(request, found)


def not_ready(request: Request, found: BackendHealth) -> UserError:
    told = how(found, request.words)
    return UserError("backend_not_ready", name=found.name, how=told)


async def check_able(request: Request, backend: str) -> None:
    """For a choice of one message, which may be answered by who stands in. Raises UserError where
    nobody does."""
    found = await request.services.models.ready(backend) if backend else None
    if found is not None and found.is_cli and found.problem and not found.instead:
        told = how(found, request.words)
        raise UserError("backend_not_able", name=found.name, how=told)
