"""How Feishu or Lark is connected, and connecting it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Line
from bot.dashboard.api.setup import ConnectionResult
from bot.dashboard.problems import tell_code
from cards.views.feishu_setup import step_text, unsaved_text
from cards.views.self_checks import finding_text, next_step_text
from storage.records.feishu_setup import FeishuApp, FeishuCodeState
from storage.records.people import PersonRole

routes = ApiRoutes("setup")


class FeishuCodeOrder(StrEnum):
    SHOW = "show"
    CANCEL = "cancel"
    SAVE_AGAIN = "save_again"


class FeishuCodeRequest(ApiModel):
    order: FeishuCodeOrder


class FeishuCodeModel(ApiModel):
    """`url` is to be scanned or opened, while it is waiting. `message` says what became of it."""

    state: FeishuCodeState
    url: str
    expires_at: datetime | None
    message: str


class FeishuSetupModel(ApiModel):
    """`code` is the one that this caller has asked for. `unsaved` tells of one that was shown when
    Shiftboss ended."""

    app_id: str
    is_lark: bool
    code: FeishuCodeModel | None
    unsaved: str


class NewFeishuApp(ApiModel):
    """`app_id` and `app_secret` are on the developer console's page of credentials."""

    app_id: Line
    app_secret: Annotated[str, Field(max_length=500)]
    is_lark: bool = False


class FeishuStepModel(ApiModel):
    """`click` says what to do where, on the page `link` of the developer console."""

    symbol: str
    name: str
    state: str
    found: list[str]
    click: str
    link: str


class FeishuStepList(ApiModel):
    steps: list[FeishuStepModel]


@routes("GET", "/setup/feishu", role=PersonRole.OWNER)
async def show_feishu(call: ApiCall) -> FeishuSetupModel:
    """The app in use, and what became of a code (owners)"""
    request = call.request
    setup = await request.services.feishu_setup.get_setup(request.session)
    code = setup.code
    return FeishuSetupModel(
        app_id=setup.app_id,
        is_lark=setup.is_lark,
        code=None
        if code is None
        else FeishuCodeModel(
            state=code.state,
            url=code.url,
            expires_at=code.expires_at,
            message=" ".join(tell_code(request, setup)),
        ),
        unsaved=unsaved_text(setup.unsaved, request.words) if setup.unsaved else "",
    )


@routes("POST", "/setup/feishu/code", role=PersonRole.OWNER)
async def order_feishu_code(call: ApiCall, body: FeishuCodeRequest) -> FeishuSetupModel:
    """Show a code that makes an app for whoever scans it, or end it (owners)"""
    setup, session = call.request.services.feishu_setup, call.request.session
    match body.order:
        case FeishuCodeOrder.SHOW:
            await setup.show_code(session)
        case FeishuCodeOrder.CANCEL:
            await setup.cancel(session)
        case FeishuCodeOrder.SAVE_AGAIN:
            await setup.save_again(session)
    return await show_feishu(call)


@routes("POST", "/setup/feishu", role=PersonRole.OWNER)
async def connect_feishu(call: ApiCall, body: NewFeishuApp) -> ConnectionResult:
    """Try an app, and use it from now on if Feishu accepts its secret (owners)"""
    words = call.request.words
    new = FeishuApp(app_id=body.app_id, app_secret=body.app_secret, is_lark=body.is_lark)
    finding = await call.request.services.feishu_setup.connect(new)
    return ConnectionResult(
        is_connected=finding is None,
        found=finding_text(finding, words) if finding else "",
        next_step=next_step_text(finding, words) if finding else "",
    )


@routes("POST", "/setup/feishu/check", role=PersonRole.OWNER)
async def check_feishu(call: ApiCall) -> FeishuStepList:
    """Ask Feishu what the app in use lacks (owners)"""
    steps = await call.request.services.feishu_setup.check()
    told = [step_text(each, call.request.words) for each in steps]
    return FeishuStepList(steps=[FeishuStepModel.model_validate(each) for each in told])
