"""Settings: what is in force, where it comes from, a form for what can be changed here, and the
restart that some wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.problems import failure_texts
from bot.dashboard.request import DashboardRequest, form_text
from cards import formats
from cards.views.system import FAULT_SEPARATOR, setting_fault_text
from handlers.errors import UserError
from storage.records.system import SettingChange, SettingView

PATH = "/dashboard/settings"
_MAX_SHOWN = 300
_MAX_NAMES = 1_000


async def show_settings(request: DashboardRequest) -> Response:
    return await _render(request, {})


async def save_settings(request: DashboardRequest) -> Response:
    form, editor = await request.form(), request.services.setting_editor
    listed = await editor.list_settings()
    given = {
        each.name: form_text(form, each.name)
        for each in listed.settings
        if each.name in form and each.change.is_on_page
    }
    # What the form was made with: only what was typed is a change. A secret is never in it, so an
    # empty one is kept, unless the form says that it goes.
    removed = dict.fromkeys((name for name in given if f"remove:{name}" in form), "")
    changes = removed | {
        name: value for name, value in given.items() if value != form_text(form, f"was:{name}")
    }
    words = request.words
    try:
        if form_text(form, "order") == "restart":
            await editor.restart()
            return RedirectResponse(f"{PATH}?restarting={listed.revision}", status_code=303)
        if changes:
            await editor.change(changes, seen=form_text(form, "seen"))
    except UserError as error:
        facts = error.facts
        if faults := str(facts.get("faults", "")):
            told = (setting_fault_text(each, words) for each in faults.split(FAULT_SEPARATOR))
            facts = {**facts, "faults": FAULT_SEPARATOR.join(told)}
        failure = failure_texts(UserError(error.key, **facts), words)
        return await _render(request, given, failure=failure)
    names = quote(",".join(changes) or "-")
    group = quote(request.http.query_params.get("group", ""))
    return RedirectResponse(f"{PATH}?group={group}&saved={names}", status_code=303)


async def _render(
    request: DashboardRequest, given: Mapping[str, str], failure: tuple[str, ...] = ()
) -> Response:
    """The form keeps what was `given`."""
    query = request.http.query_params
    listed = await request.services.setting_editor.list_settings()
    groups = list(dict.fromkeys(each.group for each in listed.settings))
    chosen = query.get("group", "")
    group = chosen if chosen in groups else groups[0]
    known = {each.name for each in listed.settings}
    saved = query.get("saved", "")[:_MAX_NAMES]
    before = query.get("restarting", "")
    return render_page(
        request,
        "settings",
        groups=groups,
        group=group,
        rows=[_row(each, given, request) for each in listed.settings if each.group == group],
        can_save=any(each.change.is_on_page for each in listed.settings if each.group == group),
        waiting=", ".join(each.name for each in listed.settings if each.waits),
        # Each start has revisions of its own.
        restart=("goes_on" if before == listed.revision else "done") if before else "",
        revision=listed.revision,
        file=next((each.value for each in listed.settings if each.field == "home"), "") + "/.env",
        faults=[
            formats.clean_line(setting_fault_text(each, request.words))[:_MAX_SHOWN]
            for each in listed.faults
        ],
        saved=", ".join(each for each in saved.split(",") if each in known),
        was_same=saved == "-",
        failure=failure,
    )


def _row(view: SettingView, given: Mapping[str, str], request: DashboardRequest) -> dict[str, Any]:
    words = request.words
    empty = words("dashboard.settings.set" if view.is_set else "dashboard.settings.not_set")
    shown = empty if view.is_secret else view.value or words("dashboard.settings.empty")
    default = "default_is" if view.default else "default_none"
    is_here = view.change.is_on_page
    return {
        "name": view.name,
        "about": words(f"dashboard.settings.text.{view.field}").replace("`", ""),
        "shown": formats.clean_line(shown)[:_MAX_SHOWN],
        "value": view.stored,
        # What was typed into the field of a secret is not sent back.
        "given": "" if view.is_secret else given.get(view.name, view.stored),
        "is_secret": view.is_secret,
        "can_remove": view.is_secret and (view.is_set or view.waits),
        "options": view.options,
        "default": empty
        if view.is_secret
        else words(f"dashboard.settings.{default}", default=view.default),
        "is_here": is_here,
        "is_setup": view.change is SettingChange.SETUP,
        "how": ""
        if view.change is SettingChange.HERE
        else words(f"dashboard.settings.by_{view.change}"),
        "source": words(f"dashboard.settings.source_{view.source}", file=view.file),
        "waits": words("dashboard.settings.waits", value=formats.clean_line(shown)[:_MAX_SHOWN])
        if view.waits
        else "",
    }
