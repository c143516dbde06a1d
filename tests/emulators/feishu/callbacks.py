"""Card callbacks: what a press carries, and whether the answer would have been shown."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tests.emulators.feishu.card_validator import SCHEMA_MIX, KnownReferences, check_card
from tests.emulators.feishu.events import FeishuEvents
from tests.emulators.feishu.http_server import HttpRequest
from tests.emulators.feishu.long_connection import LongConnection
from tests.emulators.feishu.refusals import CardRefused, FeishuApiError
from tests.emulators.feishu.tenant import EmulatorClock, FeishuMessage, FeishuTenant, components

CALLBACK_SECONDS = 30.0
"""The client's 3 s, with room for machines that are ten times slower than a server."""
TOKEN_SECONDS = 1800.0
TOKEN_USES = 2
_TOASTS = ("info", "success", "error", "warning")


class CallbackFailed(AssertionError):
    """The error that the person's client shows instead of an answer."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAnswer:
    """The app's answer to a press."""

    toast: str
    kind: str
    card: dict[str, Any] | None
    token: str


@dataclass(slots=True, kw_only=True)
class _CallbackTicket:
    message: FeishuMessage
    issued: float
    answered: bool = False
    uses: int = 0


class CardCallbacks:
    def __init__(
        self,
        world: FeishuTenant,
        clock: EmulatorClock,
        events: FeishuEvents,
        connection: LongConnection,
    ) -> None:
        self._world = world
        self._clock = clock
        self._events = events
        self._connection = connection
        self._tickets: dict[str, _CallbackTicket] = {}

    async def send(
        self, message: FeishuMessage, open_id: str, action: dict[str, Any]
    ) -> CallbackAnswer:
        """One callback; raises `CallbackFailed` where the client would show an error."""
        token = self._world.new_id("c-", 40)
        ticket = self._tickets[token] = _CallbackTicket(message=message, issued=self._clock.now())
        body = self._events.action(message, open_id, token, action)
        message.callbacks += 1
        try:
            push = self._connection.push(body, retry=False)
            async with asyncio.timeout(CALLBACK_SECONDS):
                reply = await asyncio.shield(push.acked)
        except TimeoutError:
            raise CallbackFailed(200341, "no answer within 3 s") from None
        finally:
            message.callbacks -= 1
        if reply["code"] == 0:
            raise CallbackFailed(200341, "no answer")
        if reply["code"] != 200:
            raise CallbackFailed(200671, f"the app answered {reply['code']}")
        ticket.answered = True
        return self._apply_answer(message, token, push.answer)

    def _apply_answer(self, message: FeishuMessage, token: str, answer: Any) -> CallbackAnswer:
        answer = {} if answer is None else answer
        if not isinstance(answer, dict) or not set(answer) <= {"toast", "card"}:
            raise CallbackFailed(200672, f"bad answer {answer!r}")
        toast = answer.get("toast") or {}
        if toast and (toast.get("type") not in _TOASTS or not isinstance(toast["content"], str)):
            raise CallbackFailed(200672, f"bad toast {toast!r}")
        card = self._check_card(message, answer["card"]) if "card" in answer else None
        if card is not None and not (message.entity and message.entity.streaming):
            self._replace(message, card)
        return CallbackAnswer(
            toast=toast.get("content", ""), kind=toast.get("type", ""), card=card, token=token
        )

    def _check_card(self, message: FeishuMessage, card: Any) -> dict[str, Any]:
        if not isinstance(card, dict) or card.get("type") != "raw":
            raise CallbackFailed(200672, f"bad card {card!r}")
        data = card.get("data")
        if isinstance(data, dict) and "schema" not in data and "schema" in message.card:
            raise CallbackFailed(SCHEMA_MIX, "a 2.0 card was answered with a 1.0 card")
        try:
            check_card(data, KnownReferences(self._world.images, self._world.people))
        except CardRefused as refusal:
            raise CallbackFailed(200673, str(refusal)) from None
        assert isinstance(data, dict)
        return data

    def _replace(self, message: FeishuMessage, card: dict[str, Any]) -> None:
        if message.entity is not None:
            message.entity.history.append(message.entity.data)
            message.entity.data = card
        else:
            message.history.append(message.content)
            message.content = json.dumps(card, ensure_ascii=False)
        self._world.notify_changed()

    def delayed_update(self, request: HttpRequest) -> dict[str, Any]:
        """interactive/v1/card/update: two uses per token, and only after the answer."""
        body = request.json()
        ticket = self._tickets.get(str(body.get("token"))) if isinstance(body, dict) else None
        if ticket is None:
            raise FeishuApiError(300030, "token is invalid")
        if not ticket.answered:
            raise FeishuApiError(300020, "the callback is not answered yet")
        if self._clock.now() - ticket.issued > TOKEN_SECONDS or ticket.uses >= TOKEN_USES:
            raise FeishuApiError(300040, "token is expired or used up")
        try:
            check_card(body.get("card"), KnownReferences(self._world.images, self._world.people))
        except CardRefused as refusal:
            raise FeishuApiError(230099, f"Failed to create card content, ext={refusal}") from None
        ticket.uses += 1
        self._replace(ticket.message, body["card"])
        return {}


def button_action(message: FeishuMessage, label: str, fill: dict[str, str]) -> dict[str, Any]:
    """The `action` part for the button with this label; a form's button sends the form."""
    for form in components(message.card, "form"):
        for button in components(form, "button"):
            if button["text"]["content"] == label:
                return _submit(form, button, fill)
    for button in components(message.card, "button"):
        if button["text"]["content"] == label:
            assert not button.get("disabled"), f"button {label!r} is disabled"
            return {"tag": "button", "value": callback_value(button)}
    raise AssertionError(f"no button {label!r} on this card, only {message.buttons}")


def select_action(message: FeishuMessage, option: str) -> dict[str, Any]:
    """The `action` part for picking this option of whichever select has it."""
    for select in components(message.card, "select_static"):
        for choice in select["options"]:
            if choice["text"]["content"] == option and "behaviors" in select:
                value = callback_value(select)
                return {"tag": "select_static", "value": value, "option": choice["value"]}
    raise AssertionError(f"no option {option!r} on this card")


def callback_value(component: dict[str, Any]) -> dict[str, Any]:
    for behavior in component.get("behaviors", []):
        if behavior["type"] == "callback":
            value: dict[str, Any] = behavior["value"]
            return value
    raise AssertionError("this component has no callback")


def _submit(form: dict[str, Any], button: dict[str, Any], fill: dict[str, str]) -> dict[str, Any]:
    assert button.get("form_action_type") == "submit", "this button does not submit the form"
    values: dict[str, Any] = {}
    for tag in ("input", "select_static"):
        for member in components(form, tag):
            values[member["name"]] = _value(tag, member, fill)
    unknown = set(fill) - set(values)
    assert not unknown, f"the form has no {unknown}, only {set(values)}"
    action = {"tag": "button", "name": button["name"], "form_value": values}
    if any(behavior["type"] == "callback" for behavior in button.get("behaviors", [])):
        action["value"] = callback_value(button)
    return action


def _value(tag: str, member: dict[str, Any], fill: dict[str, str]) -> str:
    value: str = fill.get(member["name"], member.get("default_value", ""))
    assert value or not member.get("required"), f"{member['name']} is required"
    if tag == "input":
        assert len(value) <= member.get("max_length", 1000), f"{member['name']} is too long"
    elif value:
        assert value in {choice["value"] for choice in member["options"]}, f"no option {value}"
    return value
