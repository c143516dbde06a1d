"""cardkit/v1: card entities with one strictly increasing sequence each."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from tests.emulators.feishu.card_validator import KnownReferences, check_card
from tests.emulators.feishu.http_server import HttpRequest
from tests.emulators.feishu.refusals import CardRefused, FeishuApiError, RateLimits
from tests.emulators.feishu.tenant import CardEntity, EmulatorClock, FeishuTenant

STREAMING_SECONDS = 600.0
DAYS_14 = 14 * 86400.0
MAX_CONTENT = 100_000
_STREAMABLE = ("markdown", "plain_text")


class CardKit:
    def __init__(self, world: FeishuTenant, clock: EmulatorClock, rates: RateLimits) -> None:
        self._world = world
        self._clock = clock
        self._rates = rates

    def create(self, request: HttpRequest) -> dict[str, Any]:
        body = _object(request)
        if body.get("type") != "card_json":
            raise FeishuApiError(10002, "type is invalid")
        data = _loaded(body.get("data"))
        self._check(data)
        entity = CardEntity(
            card_id=self._world.new_id("7", 18), data=data, created=self._clock.now()
        )
        self._set_streaming(entity, bool(data.get("config", {}).get("streaming_mode")))
        self._world.entities[entity.card_id] = entity
        return {"card_id": entity.card_id}

    def convert(self, request: HttpRequest) -> dict[str, Any]:
        message = self._world.messages.get(str(_object(request).get("message_id")))
        if message is None or not message.by_bot or message.msg_type != "interactive":
            raise FeishuApiError(10002, "message_id is invalid")
        if message.entity is None:
            if message.card.get("schema") != "2.0":
                raise FeishuApiError(300315, "card is not json 2.0")
            message.entity = CardEntity(
                card_id=self._world.new_id("7", 18),
                data=message.card,
                created=self._clock.now(),
                message_id=message.message_id,
            )
            self._world.entities[message.entity.card_id] = message.entity
        return {"card_id": message.entity.card_id}

    def update(self, request: HttpRequest, card_id: str) -> dict[str, Any]:
        body = _object(request)
        entity = self._open(card_id, body)
        card = body.get("card")
        if not isinstance(card, dict) or card.get("type") != "card_json":
            raise FeishuApiError(10002, "card is invalid")
        data = _loaded(card.get("data"))
        self._commit(entity, body, data)
        self._set_streaming(entity, bool(data.get("config", {}).get("streaming_mode")))
        return {}

    def settings(self, request: HttpRequest, card_id: str) -> dict[str, Any]:
        body = _object(request)
        entity = self._open(card_id, body)
        settings = _loaded(body.get("settings"))
        data = copy.deepcopy(entity.data)
        _merge_settings(data, settings)
        self._commit(entity, body, data)
        if "streaming_mode" in settings.get("config", {}):
            self._set_streaming(entity, bool(settings["config"]["streaming_mode"]))
        return {}

    def batch(self, request: HttpRequest, card_id: str) -> dict[str, Any]:
        body = _object(request)
        entity = self._open(card_id, body)
        data = copy.deepcopy(entity.data)
        for action in _loaded(body.get("actions"), list):
            _apply(data, action)
        self._commit(entity, body, data)
        self._set_streaming(entity, bool(data.get("config", {}).get("streaming_mode")))
        return {}

    def insert(self, request: HttpRequest, card_id: str) -> dict[str, Any]:
        body = _object(request)
        entity = self._open(card_id, body)
        data = copy.deepcopy(entity.data)
        _insert(data, {**body, "elements": _loaded(body.get("elements"), list)})
        self._commit(entity, body, data)
        return {}

    def element(self, request: HttpRequest, card_id: str, element_id: str) -> dict[str, Any]:
        """PUT replaces, PATCH merges, DELETE removes."""
        body = _object(request)
        entity = self._open(card_id, body)
        data = copy.deepcopy(entity.data)
        siblings, index = _find(data, element_id)
        if request.method == "DELETE":
            siblings.pop(index)
        elif request.method == "PUT":
            siblings[index] = _loaded(body.get("element"))
        else:
            siblings[index] = {**siblings[index], **_loaded(body.get("partial_element"))}
        self._commit(entity, body, data)
        return {}

    def content(self, request: HttpRequest, card_id: str, element_id: str) -> dict[str, Any]:
        body = _object(request)
        entity = self._open(card_id, body)
        text = body.get("content")
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_CONTENT:
            raise FeishuApiError(10002, "content must be 1 to 100000 characters")
        self._expire_streaming(entity)
        if entity.timed_out:
            raise FeishuApiError(200850, "ErrMsg: card streaming timeout")
        if not entity.streaming:
            raise FeishuApiError(300309, "ErrMsg: streaming mode is closed")
        data = copy.deepcopy(entity.data)
        siblings, index = _find(data, element_id)
        if siblings[index].get("tag") not in _STREAMABLE:
            raise FeishuApiError(300310, "ErrMsg: only markdown and plain_text may stream")
        siblings[index]["content"] = text
        self._commit(entity, body, data)
        return {}

    def close_streaming(self, card_id: str) -> None:
        """The platform ends streaming by itself."""
        entity = self._world.entities[card_id]
        entity.streaming = False
        entity.timed_out = True

    def _open(self, card_id: str, body: dict[str, Any]) -> CardEntity:
        entity = self._world.entities.get(card_id)
        if entity is None:
            raise FeishuApiError(300313, "ErrMsg: card not found")
        if self._clock.now() - entity.created > DAYS_14:
            raise FeishuApiError(200750, "ErrMsg: card is expired")
        self._rates.entity(card_id)
        message = self._world.messages.get(entity.message_id or "")
        if message is not None and message.callbacks:
            raise FeishuApiError(200810, "ErrMsg: a user is interacting with the card")
        sequence = body.get("sequence")
        if isinstance(sequence, bool) or not isinstance(sequence, int) or sequence < 1:
            raise FeishuApiError(10002, "sequence must be a positive integer")
        if sequence <= entity.sequence:
            raise FeishuApiError(300317, "ErrMsg: sequence number compare failed")
        if len(str(body.get("uuid") or "")) > 64:
            raise FeishuApiError(10002, "uuid is longer than 64")
        return entity

    def _commit(self, entity: CardEntity, body: dict[str, Any], data: dict[str, Any]) -> None:
        self._check(data)
        entity.history.append(entity.data)
        entity.data = data
        entity.sequence = body["sequence"]
        self._world.notify_changed()

    def _check(self, data: Any) -> None:
        try:
            check_card(data, KnownReferences(self._world.images, self._world.people))
        except CardRefused as refusal:
            raise FeishuApiError(refusal.err_code, str(refusal)) from None

    def _set_streaming(self, entity: CardEntity, on: bool) -> None:
        entity.streaming = on
        entity.timed_out = False
        entity.streaming_since = self._clock.now()

    def _expire_streaming(self, entity: CardEntity) -> None:
        if entity.streaming and self._clock.now() - entity.streaming_since > STREAMING_SECONDS:
            self.close_streaming(entity.card_id)


def _merge_settings(data: dict[str, Any], settings: dict[str, Any]) -> None:
    for key in settings:
        if key not in ("config", "card_link"):
            raise FeishuApiError(10002, f"settings has unknown property {key}")
    for key, value in settings.items():
        data[key] = {**data.get(key, {}), **value}


def _apply(data: dict[str, Any], action: Any) -> None:
    params = action.get("params", {}) if isinstance(action, dict) else {}
    match action.get("action") if isinstance(action, dict) else None:
        case "partial_update_setting":
            _merge_settings(data, params.get("settings", {}))
        case "add_elements":
            _insert(data, params)
        case "delete_elements":
            for element_id in params.get("element_ids", []):
                siblings, index = _find(data, element_id)
                siblings.pop(index)
        case "partial_update_element":
            siblings, index = _find(data, params.get("element_id"))
            siblings[index] = {**siblings[index], **params.get("partial_element", {})}
        case "update_element":
            siblings, index = _find(data, params.get("element_id"))
            siblings[index] = params.get("element")
        case other:
            raise FeishuApiError(10002, f"unknown action {other}")


def _insert(data: dict[str, Any], params: dict[str, Any]) -> None:
    new = params.get("elements", [])
    target = params.get("target_element_id")
    kind = params.get("type")
    if kind == "append":
        siblings = data["body"]["elements"]
        if target:
            siblings = _element(data, target).setdefault("elements", [])
        siblings.extend(new)
    elif kind in ("insert_before", "insert_after"):
        siblings, index = _find(data, target)
        at = index + (kind == "insert_after")
        siblings[at:at] = new
    else:
        raise FeishuApiError(10002, "type is invalid")


def _element(data: dict[str, Any], element_id: Any) -> dict[str, Any]:
    siblings, index = _find(data, element_id)
    found: dict[str, Any] = siblings[index]
    return found


def _find(data: dict[str, Any], element_id: Any) -> tuple[list[Any], int]:
    for siblings in _lists(data):
        for index, node in enumerate(siblings):
            if isinstance(node, dict) and node.get("element_id") == element_id:
                return siblings, index
    raise FeishuApiError(300313, f"ErrMsg: element {element_id} does not exist")


def _lists(node: Any) -> Iterator[list[Any]]:
    if isinstance(node, list):
        yield node
        for value in node:
            yield from _lists(value)
    elif isinstance(node, dict):
        for value in node.values():
            yield from _lists(value)


def _loaded(raw: Any, kind: type = dict) -> Any:
    try:
        loaded = json.loads(raw) if isinstance(raw, str) else None
    except ValueError:
        loaded = None
    if not isinstance(loaded, kind):
        raise FeishuApiError(10002, f"expected a json string holding a {kind.__name__}")
    return loaded


def _object(request: HttpRequest) -> dict[str, Any]:
    body = request.json()
    if not isinstance(body, dict):
        raise FeishuApiError(10002, "invalid json body")
    return body
