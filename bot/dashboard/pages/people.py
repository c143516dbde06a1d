"""People: who has access, who asks for it, and their browsers and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages import approvals
from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.actions import ApplyPersonChange, EndWebSession
from cards.views.account_links import account_name, account_text
from cards.views.browsers import browser_name
from handlers import people as commands
from handlers.account_links import ask_to_link, link_account, unlink_named
from handlers.approvals import settle_approval
from handlers.errors import UserError
from storage.errors import NotFound
from storage.people import LOCAL_WEB_OWNER
from storage.records.approvals import ApprovalKind
from storage.records.people import Member, PersonRole

_PATH = "/dashboard/people"
_MAX_NAME = 60
_MAX_LISTED = 50


async def show_people(
    request: DashboardRequest, *, code: Mapping[str, Any] | None = None
) -> Response:
    """List people. `code` is a new code that links an account."""
    services = request.services
    members = await services.people.list_members()
    waiting = await services.approvals.list_waiting(by=request.person, chat=None)
    sessions = await services.web_sessions.list()
    tokens = await services.web_sessions.list_tokens()
    names = {each.person.id: formats.single_line(each.person.name, _MAX_NAME) for each in members}
    return render_page(
        request,
        "people",
        new_source=new_source(),
        code=code,
        members=[_row(each, request) for each in members],
        pairings=[
            {
                "id": each.id,
                "name": formats.single_line(each.title, _MAX_NAME),
                "code": each.subject,
                "until": each.expires_at,
            }
            for each in waiting
            if each.kind is ApprovalKind.PAIRING
        ][:_MAX_LISTED],
        sessions=[
            _times(each, names)
            | {
                "agent": browser_name(each.user_agent, request.words),
                "is_current": each.id == request.visitor.session_id,
            }
            for each in sessions[:_MAX_LISTED]
        ],
        more_sessions=len(sessions) - len(sessions[:_MAX_LISTED]),
        tokens=[
            _times(each, names) | {"name": formats.single_line(each.name, _MAX_NAME)}
            for each in tokens[:_MAX_LISTED]
        ],
        more_tokens=len(tokens) - len(tokens[:_MAX_LISTED]),
    )


async def change_people(request: DashboardRequest) -> Response:
    form = await request.form()
    if form_text(form, "order") == "link_code":
        # Shown here only: an address would stay in the history.
        command = replace(request.command(form_source(form)), args="")
        return await show_people(request, code=(await link_account(command)).data)
    return RedirectResponse(await _change(request, form) or _PATH, status_code=303)


async def _change(request: DashboardRequest, form: FormData) -> str:
    """Apply a change; returns the page to continue at, empty for this page."""
    command = request.command(form_source(form))
    which = form_text(form, "which")
    match form_text(form, "order"):
        case "approve" | "decline" as word:
            approval = await request.services.approvals.find(which)
            if approval.kind is not ApprovalKind.PAIRING:
                raise NotFound("approval", which[:_MAX_NAME])
            await settle_approval(command, approval, approve=word == "approve")
        case "demote" | "remove" as word:
            action = ApplyPersonChange(person_id=which, remove=word == "remove")
            await commands.apply_person_change(command, action, "")
        case "unlink" | "revoke_account" as word:
            await unlink_named(command, which, revoke=word == "revoke_account")
        case "use_link_code" if typed := form_text(form, "code").strip():
            await ask_to_link(command, typed)
            return approvals.PATH
        case "end":
            await commands.end_web_sessions(command, EndWebSession(session_id=which))
        case "end_others":
            await commands.end_web_sessions(command, EndWebSession())
        case "revoke":
            await request.services.web_sessions.revoke_token(which)
        case "new_token" if name := formats.clean_line(form_text(form, "name")).strip():
            url, _ = await request.services.web_sessions.create_link(
                request.person.id, token_name=formats.truncate(name, _MAX_NAME)
            )
            return urlsplit(url).path
        case _:
            raise UserError("form_incomplete", fields=request.words("dashboard.people.token_name"))
    return ""


def _row(member: Member, request: DashboardRequest) -> Mapping[str, Any]:
    person, words = member.person, request.words
    changeable = not member.is_local_web_owner and person.id != request.person.id
    orders: Sequence[str] = ()
    if changeable:
        orders = ("demote", "remove") if person.role is PersonRole.OWNER else ("remove",)
    return {
        "id": person.id,
        "name": formats.single_line(person.name, _MAX_NAME),
        "role": words(f"people.role_{person.role}"),
        "accounts": [
            {
                "text": account_text(each, words, escaped=False),
                "name": account_name(each),
                "is_linked": each in member.joined,
                "is_revocable": len(member.accounts) > 1 and each != LOCAL_WEB_OWNER,
            }
            for each in member.accounts
        ],
        "is_configured": member.is_configured_owner,
        "since": person.created_at,
        "orders": orders,
    }


def _times(each: Any, names: Mapping[Any, str]) -> dict[str, Any]:
    return {
        "id": each.id,
        "person": names.get(each.person_id) or "?",
        "since": each.created_at,
        "seen": each.seen_at,
    }
