"""Events as the platform sends them, checked at the border."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Lenient(BaseModel):
    """Unknown fields are the platform's business; null is as good as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Ids(_Lenient):
    open_id: str = ""


class Header(_Lenient):
    event_id: str = ""
    event_type: str = ""


class Envelope(_Lenient):
    header: Header
    event: dict[str, Any] = Field(default_factory=dict)


class Mention(_Lenient):
    key: str
    id: Ids = Ids()
    name: str = ""


class SenderInfo(_Lenient):
    sender_id: Ids | None = None
    sender_type: str = ""


class MessageInfo(_Lenient):
    message_id: str
    chat_id: str
    chat_type: str = "p2p"
    message_type: str
    content: str = "{}"
    create_time: str = "0"
    root_id: str | None = None
    parent_id: str | None = None
    thread_id: str | None = None
    mentions: list[Mention] | None = None


class MessageEvent(_Lenient):
    sender: SenderInfo
    message: MessageInfo


class Action(_Lenient):
    value: Any = None
    name: str = ""
    tag: str = ""
    option: str | None = None
    options: list[str] | None = None
    input_value: str | None = None
    checked: bool | None = None
    form_value: dict[str, Any] | None = None


class Context(_Lenient):
    open_message_id: str = ""
    open_chat_id: str = ""


class ActionEvent(_Lenient):
    operator: Ids
    token: str
    action: Action
    context: Context = Context()


class EnteredEvent(_Lenient):
    chat_id: str
    operator_id: Ids = Ids()


class AddedEvent(_Lenient):
    chat_id: str
    operator_id: Ids = Ids()
    name: str = ""


class _MenuOperator(_Lenient):
    operator_id: Ids = Ids()
    operator_name: str = ""


class MenuEvent(_Lenient):
    operator: _MenuOperator
    event_key: str


MESSAGE: Literal["im.message.receive_v1"] = "im.message.receive_v1"
ACTION: Literal["card.action.trigger"] = "card.action.trigger"
ENTERED: Literal["im.chat.access_event.bot_p2p_chat_entered_v1"] = (
    "im.chat.access_event.bot_p2p_chat_entered_v1"
)
ADDED: Literal["im.chat.member.bot.added_v1"] = "im.chat.member.bot.added_v1"
MENU: Literal["application.bot.menu_v6"] = "application.bot.menu_v6"
