"""Setup of the Feishu Bitable: make or use a base, look for what is missing, and leave it."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.problems import failure_texts
from bot.dashboard.request import MAX_SETUP_BYTES, DashboardRequest, form_text
from cards.views.bitable import bitable_news, bitable_state
from handlers.errors import UserError
from storage.records.bitable import BitableReport

PATH = "/dashboard/setup/bitable"


async def change_bitable(request: DashboardRequest) -> Response:
    form, bitable = await request.form(MAX_SETUP_BYTES), request.services.bitable
    try:
        match form_text(form, "order"):
            case "setup":
                report = await bitable.set_up(
                    form_text(form, "token"),
                    by=request.person,
                    chat=request.chat,
                    language=request.words.language,
                )
            case "check":
                report = await bitable.check()
            case "repair":
                report = await bitable.repair()
            case "off":
                await bitable.disconnect()
                return RedirectResponse(f"{PATH}?note=off", status_code=303)
            case _:
                return await show_bitable(request)
    except UserError as error:
        return await show_bitable(request, failure=failure_texts(error, request.words))
    return await show_bitable(request, report=report)


async def show_bitable(
    request: DashboardRequest,
    *,
    report: BitableReport | None = None,
    failure: tuple[str, ...] = (),
) -> Response:
    words, status = request.words, await request.services.bitable.status()
    return render_page(
        request,
        "setup_bitable",
        status=status,
        state=bitable_state(status.base, words) if status.base else "",
        news=bitable_news(report, words) if report else (),
        is_off=request.http.query_params.get("note") == "off" and not failure,
        failure=failure,
    )
