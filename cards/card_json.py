"""Cards as JSON, for the store: one codec for the whole union."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cards.actions import Action
from cards.model import Card


class BadCard(ValueError):
    """Stored JSON that this version does not understand."""


def dump_card(card: Card) -> dict[str, Any]:
    dumped: dict[str, Any] = _cards().dump_python(card, mode="json")
    return dumped


def load_card(data: Mapping[str, Any]) -> Card:
    try:
        return _cards().validate_python(data)
    except ValidationError as error:
        raise BadCard(str(error)) from error


def dump_action(action: Action) -> dict[str, Any]:
    dumped: dict[str, Any] = _actions().dump_python(action, mode="json")
    return dumped


def load_action(data: Mapping[str, Any]) -> Action:
    try:
        return _actions().validate_python(data)
    except ValidationError as error:
        raise BadCard(str(error)) from error


@cache
def _cards() -> TypeAdapter[Card]:
    return TypeAdapter(Card)


@cache
def _actions() -> TypeAdapter[Action]:
    return TypeAdapter(Action)
