"""Setup of Feishu or Lark: a code to scan, an app by hand, and what the app needs. Secrets are
taken and never shown."""

from __future__ import annotations

import json
from collections.abc import Sequence

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.problems import failure_texts, tell_code
from bot.dashboard.request import MAX_SETUP_BYTES, DashboardRequest, form_text
from cards.views.channels import step_text, unsaved_text
from cards.views.self_checks import finding_text, next_step_text
from handlers.errors import UserError
from storage.records.channels import (
    FeishuApp,
    FeishuCodeState,
    FeishuSetup,
    FeishuStep,
    FeishuStepState,
)

PATH = "/dashboard/setup/feishu"
_SVG_BORDER = 4


async def change_feishu(request: DashboardRequest) -> Response:
    form = await request.form(MAX_SETUP_BYTES)
    setup, session = request.services.feishu_setup, request.session
    goal = PATH
    match form_text(form, "order"):
        case "show_code":
            await setup.show_code(session)
        case "cancel":
            await setup.cancel(session)
        case "save_again":
            await setup.save_again(session)
        case "connect":
            new = FeishuApp(
                app_id=form_text(form, "app_id"),
                app_secret=form_text(form, "app_secret"),
                is_lark=form_text(form, "site") == "lark",
            )
            try:
                finding = await setup.connect(new)
            except UserError as error:
                return await show_feishu(request, new, failure_texts(error, request.words))
            if finding is not None:
                words = request.words
                failure = (finding_text(finding, words), next_step_text(finding, words))
                return await show_feishu(request, new, failure)
            goal = f"{PATH}?check=1"
        case _:
            fields = request.words("setup.feishu.title")
            raise UserError("form_incomplete", fields=fields)
    return RedirectResponse(goal, status_code=303)


async def show_feishu(
    request: DashboardRequest,
    given: FeishuApp | None = None,
    failure: tuple[str, ...] = (),
) -> Response:
    """The form keeps what was `given` except the secret."""
    words = request.words
    setup = await request.services.feishu_setup.get_setup(request.session)
    is_checked = "check" in request.http.query_params and bool(setup.app_id)
    steps = await request.services.feishu_setup.check() if is_checked else ()
    return render_page(
        request,
        "setup_feishu",
        setup=setup,
        state=setup.code.state if setup.code else "",
        outcome=tell_code(request, setup),
        picture=_draw_code(setup, words("setup.feishu.picture")),
        unsaved=unsaved_text(setup.unsaved, words) if setup.unsaved else "",
        steps=[step_text(each, words) for each in steps],
        is_checked=is_checked,
        scopes=_write_scopes(steps),
        given=given or _prefilled(setup),
        failure=failure,
        is_open=bool(given or setup.unsaved),
    )


def _write_scopes(steps: Sequence[FeishuStepState]) -> str:
    """As the developer console imports them; empty if nothing is to be done."""
    if all(each.is_done for each in steps):
        return ""
    scopes = next(each.needs for each in steps if each.step is FeishuStep.SCOPES)
    return json.dumps({"scopes": {"tenant": scopes, "user": []}}, indent=2)


def _prefilled(setup: FeishuSetup) -> FeishuApp:
    """An app whose secret is not known is connected by hand."""
    unsaved = setup.unsaved
    is_lark = unsaved.is_lark if unsaved and unsaved.app_id else setup.is_lark
    return FeishuApp(app_id=unsaved.app_id if unsaved else "", app_secret="", is_lark=is_lark)


def _draw_code(setup: FeishuSetup, title: str) -> Markup:
    """Dark on light in both colour schemes: not every camera reads the inverse."""
    if setup.code is None or setup.code.state is not FeishuCodeState.WAITING:
        return Markup()
    import segno

    code = segno.make_qr(setup.code.url, error="l")
    svg = code.svg_inline(
        border=_SVG_BORDER, dark="#000", light="#fff", svgclass="qr", title=title, omitsize=True
    )
    return Markup(svg)  # noqa: S704 - drawn here
