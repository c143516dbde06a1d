"""Setup: connect a model, and see how the chat platforms are connected. Keys are taken and never
shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages import setup_bitable, setup_feishu, setup_telegram
from bot.dashboard.pages.layout import render_page
from bot.dashboard.problems import failure_texts
from bot.dashboard.request import MAX_SETUP_BYTES, DashboardRequest, form_text
from cards.views.channels import channel_symbol, channel_text
from cards.views.self_checks import finding_text, next_step_text
from handlers.errors import UserError
from storage.errors import NotFound
from storage.records.people import Channel
from storage.records.system import ModelConnection, ModelKind

CHANNEL_PAGES: Mapping[Channel, str] = {
    Channel.TELEGRAM: setup_telegram.PATH,
    Channel.FEISHU: setup_feishu.PATH,
}
"""The page on which each chat platform is connected."""


async def show_setup(request: DashboardRequest) -> Response:
    with suppress(ValueError):
        chosen = ModelKind(request.http.query_params.get("kind", ""))
        return await _render(request, ModelConnection(kind=chosen))
    return await _render(request)


async def connect_model(request: DashboardRequest) -> Response:
    form, words = await request.form(MAX_SETUP_BYTES), request.words
    if leave := form_text(form, "disconnect"):
        return await _disconnect(request, leave, form_text(form, "seen"))
    new = _read_connection(form, request)
    try:
        finding = await request.services.model_setup.connect(new, by=request.person)
    except UserError as error:
        return await _render(request, new, failure=failure_texts(error, words))
    if finding.points:
        # The reason of a refused call names what to correct, and this is the page for it.
        to_do = "" if finding.text.startswith("model_refuses") else next_step_text(finding, words)
        failure = (finding_text(finding, words), to_do)
        return await _render(request, new, failure=failure)
    return RedirectResponse(f"/dashboard/setup?kind={new.kind}&connected=1", status_code=303)


async def _disconnect(request: DashboardRequest, name: str, seen: str) -> Response:
    if name not in CHANNEL_PAGES:
        raise NotFound("channel", name[:20])
    try:
        await request.services.channel_setup.disconnect(Channel(name), seen=seen)
    except UserError as error:
        return await _render(request, failure=failure_texts(error, request.words))
    return RedirectResponse("/dashboard/setup?disconnected=1", status_code=303)


async def _render(
    request: DashboardRequest,
    given: ModelConnection | None = None,
    failure: tuple[str, ...] = (),
) -> Response:
    """The form keeps what was `given` except the key."""
    words, setup = request.words, await request.services.model_setup.get_setup()
    kinds = [each for each in ModelKind if each is not ModelKind.CLI or setup.clis]
    return render_page(
        request,
        "setup",
        kinds=kinds,
        chosen=given.kind if given else setup.kind or ModelKind.ANTHROPIC,
        given=given,
        setup=setup,
        problem=words.get_or_literal(setup.choice.problem) if setup.choice.problem else "",
        is_connected="connected" in request.http.query_params,
        failure=failure,
        is_disconnected="disconnected" in request.http.query_params,
        channels=await _list_channels(request),
        bitable=await request.services.bitable.status(),
        bitable_path=setup_bitable.PATH,
    )


async def _list_channels(request: DashboardRequest) -> Sequence[Mapping[str, object]]:
    words = request.words
    return [
        {
            "name": words(f"channel.{each.channel}"),
            "symbol": channel_symbol(each),
            "text": channel_text(each, words, request.deps.zone),
            "page": CHANNEL_PAGES[each.channel],
            "channel": each.channel,
            "revision": each.revision,
            "can_leave": each.is_configured and not each.fixed_by,
            "offer": f"setup.channel.{'change' if each.is_configured else 'set_up'}",
        }
        for each in await request.services.channel_setup.get_channels()
        if each.channel in CHANNEL_PAGES
    ]


def _read_connection(form: FormData, request: DashboardRequest) -> ModelConnection:
    try:
        kind = ModelKind(form_text(form, "kind"))
    except ValueError as error:
        fields = request.words("dashboard.setup.kind")
        raise UserError("form_incomplete", fields=fields) from error
    return ModelConnection(
        kind=kind,
        key=form_text(form, "key"),
        base_url=form_text(form, "base_url"),
        model=form_text(form, "cli" if kind is ModelKind.CLI else "model"),
        seen=form_text(form, "seen"),
    )
