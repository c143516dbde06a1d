"""Approvals: what waits for you, and your decisions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from bot.dashboard.api.routing import (
    ApiCall,
    ApiModel,
    ApiRoutes,
    PageQuery,
    Words,
    read_time_cursor,
    time_cursor,
)
from bot.dashboard.request import DashboardRequest
from cards.views.approvals import form_of
from handlers.approvals import check_may_decide, parse_form, settle_approval
from storage.errors import NotFound
from storage.records.approvals import Approval, ApprovalKind, ApprovalState

routes = ApiRoutes("approvals")


class ApprovalModel(ApiModel):
    id: str
    kind: ApprovalKind
    state: ApprovalState
    task_id: str | None
    title: str
    detail: str
    reason: str
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None


class ApprovalList(ApiModel):
    """`next` is the cursor of the next page, null on the last one."""

    approvals: list[ApprovalModel]
    next: str | None


class DecisionBody(ApiModel):
    """`reason` is the answer to a question, `values` fill in a form, by name. `scope` is how far
    the approval of a tool call reaches: only this one, its task or chat, or always (owners)."""

    approve: bool
    reason: Words = ""
    scope: Literal["", "task", "chat", "always"] = ""
    values: dict[str, Words] = Field(default_factory=dict)


@routes("GET", "/approvals")
async def list_approvals(call: ApiCall, query: PageQuery) -> ApprovalList:
    """Requests that wait for your decision, oldest first"""
    waiting = await call.request.services.approvals.list_waiting(by=call.request.person, chat=None)
    after = read_time_cursor(query.cursor)
    rest = [each for each in waiting if after is None or (each.created_at, each.id) > after]
    shown = rest[: query.limit]
    more = len(rest) > len(shown)
    return ApprovalList(
        approvals=[ApprovalModel.model_validate(each) for each in shown],
        next=time_cursor(shown[-1].created_at, shown[-1].id) if more else None,
    )


@routes("GET", "/approvals/{approval_id}")
async def show_approval(call: ApiCall, approval_id: str) -> ApprovalModel:
    """A request that you may decide"""
    return ApprovalModel.model_validate(await find_approval(call.request, approval_id))


@routes("POST", "/approvals/{approval_id}/decision")
async def decide_approval(call: ApiCall, approval_id: str, body: DecisionBody) -> ApprovalModel:
    """Approve or reject; the first decision counts"""
    approval = await find_approval(call.request, approval_id)
    await check_may_decide(call.command, approval.id, body.scope)
    is_filled = body.approve and bool(form_of(approval))
    values = parse_form(call.command, approval, body.values) if is_filled else None
    decided = await settle_approval(
        call.command,
        approval,
        approve=body.approve,
        reason=body.reason,
        scope=body.scope,
        values=values,
    )
    return ApprovalModel.model_validate(decided)


async def find_approval(request: DashboardRequest, approval_id: str) -> Approval:
    """Raises NotFound also for requests that others decide."""
    approval = await request.services.approvals.find(approval_id)
    if not (request.by_owner or approval.can_be_decided_by(request.person)):
        raise NotFound("approval", approval_id)
    return approval
