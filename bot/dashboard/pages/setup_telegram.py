"""Setup of Telegram: a bot's token, what Telegram says about the bot, and its first owner. Tokens
are taken and never shown."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.problems import failure_texts
from bot.dashboard.request import MAX_SETUP_BYTES, DashboardRequest, form_text
from cards.catalog import TextCatalog
from cards.views.channels import channel_symbol, channel_text, last_problem_text
from cards.views.self_checks import finding_text, next_step_text
from handlers.errors import UserError
from storage.records.approvals import Approval, ApprovalKind
from storage.records.autonomy import HealthFinding
from storage.records.channels import ChannelState, TelegramConnection, TelegramResult
from storage.records.people import Channel

PATH = "/dashboard/setup/telegram"
_NOTES = ("connected", "removed", "other_bot")


async def change_telegram(request: DashboardRequest) -> Response:
    form = await request.form(MAX_SETUP_BYTES)
    setup, seen = request.services.channel_setup, form_text(form, "seen")
    try:
        match form_text(form, "order"):
            case "connect":
                new = TelegramConnection(
                    token=form_text(form, "token"),
                    pending=form_text(form, "pending"),
                    delete_webhook=form_text(form, "delete_webhook") == "1",
                    seen=seen,
                )
                result = await setup.connect_telegram(new, by=request.person)
                if result.problem is not None:
                    return await show_telegram(request, result=result)
                await _offer_owner_code(request)
                note = "other_bot" if result.is_other_bot else "connected"
                return RedirectResponse(f"{PATH}?note={note}", status_code=303)
            case "remove":
                await setup.disconnect(Channel.TELEGRAM, seen=seen)
                return RedirectResponse(f"{PATH}?note=removed", status_code=303)
            case "code":
                await setup.create_owner_code(Channel.TELEGRAM, by=request.person)
                return RedirectResponse(PATH, status_code=303)
            case "check":
                await setup.check(Channel.TELEGRAM)
                return await show_telegram(request)
    except UserError as error:
        return await show_telegram(request, failure=failure_texts(error, request.words))
    raise UserError("form_incomplete", fields=request.words("setup.telegram.title"))


async def _offer_owner_code(request: DashboardRequest) -> None:
    """For the first person there, unless owners are only named by the environment."""
    state = await get_state(request)
    if state.people or state.code is not None:
        return
    try:
        await request.services.channel_setup.create_owner_code(Channel.TELEGRAM, by=request.person)
    except UserError:
        return


async def get_state(request: DashboardRequest) -> ChannelState:
    states = await request.services.channel_setup.get_channels()
    return next(each for each in states if each.channel is Channel.TELEGRAM)


async def show_telegram(
    request: DashboardRequest,
    *,
    result: TelegramResult | None = None,
    failure: tuple[str, ...] = (),
) -> Response:
    words, zone = request.words, request.deps.zone
    state = await get_state(request)
    if result is not None and result.problem is not None:
        failure = (finding_text(result.problem, words), next_step_text(result.problem, words))
    note = request.http.query_params.get("note", "")
    asking = [] if not state.is_configured else await _list_asking(request)
    return render_page(
        request,
        "setup_telegram",
        state=state,
        symbol=channel_symbol(state),
        status=channel_text(state, words, zone),
        last=last_problem_text(state, words, zone),
        pending=result.pending if result else "",
        failure=failure,
        note=note if note in _NOTES and not failure else "",
        asking=asking,
        checks=[_describe(each, words) for each in state.findings],
        is_waiting=state.is_configured
        and (
            state.health.connected_at is None
            or not state.people
            or bool(state.code and not state.code.owner)
        ),
    )


def _describe(finding: HealthFinding, words: TextCatalog) -> tuple[str, str]:
    """A finding, and its meaning or the next step. Markdown."""
    found, meaning = finding_text(finding, words), f"setup.telegram.meaning.{finding.text}"
    if finding.points:
        return f"⚠️ {found}", next_step_text(finding, words)
    return found, words(meaning) if words.has(meaning) else ""


async def _list_asking(request: DashboardRequest) -> Sequence[Approval]:
    """Not those who have got access in another way since."""
    services = request.services
    waiting = await services.approvals.list_waiting(by=request.person, chat=None)
    found = [
        (each, await services.people.get_chat(each.chat_id))
        for each in waiting
        if each.kind is ApprovalKind.PAIRING
    ]
    return [
        each for each, chat in found if chat.channel is Channel.TELEGRAM and chat.person_id is None
    ]
