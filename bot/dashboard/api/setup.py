"""Which model and which chat platforms are connected, and how to connect them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Line
from bot.dashboard.problems import tell_code
from cards.views.channels import channel_text, step_text, unsaved_text
from cards.views.self_checks import finding_text, next_step_text
from storage.errors import NotFound
from storage.records.channels import (
    ChannelState,
    FeishuApp,
    FeishuCodeState,
    OwnerCode,
    TelegramConnection,
)
from storage.records.people import Channel, PersonRole
from storage.records.system import ModelConnection, ModelKind

routes = ApiRoutes("setup")


class OwnerCodeAnswer(ApiModel):
    """Whoever sends `/start` and the code to the bot first becomes an owner. `link` does so in one
    tap; `owner` is who did. An empty `code` is being used."""

    code: str
    expires_at: datetime
    link: str
    owner: str


class ChannelSetup(ApiModel):
    """`state` says in a sentence how it is, and what to do. `people` have written there and have
    access. `fixed_by`: the environment variable that has the last word."""

    channel: Channel
    revision: str
    is_configured: bool
    is_connected: bool
    has_problem: bool
    state: str
    account: str
    link: str
    fixed_by: str
    people: list[str]
    owner_code: OwnerCodeAnswer | None


class SetupModel(ApiModel):
    """`with_key`: the kinds whose key is set. `clis`: the coding CLIs that were found."""

    revision: str
    model: str
    model_problem: str
    with_key: list[ModelKind]
    base_urls: dict[ModelKind, str]
    clis: list[str]
    channels: list[ChannelSetup]


class NewConnection(ApiModel):
    """Without `key`, the one of the same address is kept; without `model`, the service's own is
    used. `model` of a coding CLI is its name. `seen`: the revision that the change is made from."""

    kind: ModelKind
    key: Annotated[str, Field(max_length=2_000)] = ""
    base_url: Annotated[str, Field(max_length=500)] = ""
    model: Line = ""
    seen: Line = ""


class ConnectionResult(ApiModel):
    """`next_step` says what to do if nothing was changed."""

    is_connected: bool
    found: str
    next_step: str


class NewTelegramBot(ApiModel):
    """`token` may stand in a longer text, such as the message of @BotFather. `delete_webhook`
    allows to take the bot's messages from whoever has set a webhook. `seen`: the revision that the
    change is made from."""

    token: Annotated[str, Field(max_length=4_000)]
    delete_webhook: bool = False
    seen: Line = ""


@routes("GET", "/setup", role=PersonRole.OWNER)
async def show_setup(call: ApiCall) -> SetupModel:
    """How models and chat platforms are connected (owners)"""
    words, setup = call.request.words, await call.request.services.model_setup.get_setup()
    problem = setup.choice.problem
    return SetupModel(
        revision=setup.revision,
        model=setup.choice.name,
        model_problem=words.get_or_literal(problem) if problem else "",
        with_key=sorted(setup.with_key),
        base_urls=dict(setup.base_urls),
        clis=list(setup.clis),
        channels=[
            _channel_answer(each, call)
            for each in await call.request.services.channel_setup.get_channels()
        ],
    )


@routes("POST", "/setup/model", role=PersonRole.OWNER)
async def connect_model(call: ApiCall, body: NewConnection) -> ConnectionResult:
    """Call a model, and use it from now on if it answers (owners)"""
    words = call.request.words
    finding = await call.request.services.model_setup.connect(
        ModelConnection(**body.model_dump()), by=call.request.person
    )
    return ConnectionResult(
        is_connected=not finding.points,
        found=finding_text(finding, words),
        next_step=next_step_text(finding, words) if finding.points else "",
    )


@routes("POST", "/setup/telegram", role=PersonRole.OWNER)
async def connect_telegram(call: ApiCall, body: NewTelegramBot) -> ConnectionResult:
    """Ask Telegram about a bot, and use it from now on if nothing is in the way (owners)"""
    words = call.request.words
    new = TelegramConnection(**body.model_dump())
    result = await call.request.services.channel_setup.connect_telegram(new, by=call.request.person)
    if result.problem is not None:
        return ConnectionResult(
            is_connected=False,
            found=finding_text(result.problem, words),
            next_step=words("setup.telegram.webhook_about")
            if result.pending
            else next_step_text(result.problem, words),
        )
    return ConnectionResult(
        is_connected=True,
        found=" ".join(finding_text(each, words) for each in result.findings),
        next_step=words("setup.telegram.other_bot") if result.is_other_bot else "",
    )


@routes("POST", "/setup/channels/{name}/owner-code", role=PersonRole.OWNER)
async def create_owner_code(call: ApiCall, name: str) -> OwnerCodeAnswer:
    """A new code that makes the first person who sends it to the bot an owner (owners)"""
    code = await call.request.services.channel_setup.create_owner_code(
        _read_channel(name), by=call.request.person
    )
    return OwnerCodeAnswer.model_validate(code)


@routes("DELETE", "/setup/channels/{name}", role=PersonRole.OWNER)
async def disconnect_channel(call: ApiCall, name: str) -> None:
    """Leave a chat platform, and forget how it was connected (owners)"""
    await call.request.services.channel_setup.disconnect(_read_channel(name))


def _read_channel(name: str) -> Channel:
    try:
        return Channel(name)
    except ValueError as error:
        raise NotFound("channel", name[:20]) from error


def _channel_answer(state: ChannelState, call: ApiCall) -> ChannelSetup:
    code: OwnerCode | None = state.code
    return ChannelSetup(
        channel=state.channel,
        revision=state.revision,
        is_configured=state.is_configured,
        is_connected=state.health.connected_at is not None,
        has_problem=bool(state.health.alert),
        state=channel_text(state, call.request.words, call.request.deps.zone),
        account=state.health.account,
        link=state.link,
        fixed_by=state.fixed_by,
        people=[each.name for each in state.people],
        owner_code=OwnerCodeAnswer.model_validate(code) if code else None,
    )


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
