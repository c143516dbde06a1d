"""Encodes cards and actions as JSON for the store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cards.actions import Action
from cards.model import Card


class CardDecodeError(ValueError):
    """Stored JSON that this version does not understand."""


def dump_card(card: Card) -> dict[str, Any]:
    dumped: dict[str, Any] = _card_adapter().dump_python(card, mode="json")
    return dumped


def load_card(data: Mapping[str, Any]) -> Card:
    try:
        return _card_adapter().validate_python(data)
    except ValidationError as error:
        raise CardDecodeError(str(error)) from error


def dump_action(action: Action) -> dict[str, Any]:
    dumped: dict[str, Any] = _action_adapter().dump_python(action, mode="json")
    return dumped


def load_action(data: Mapping[str, Any]) -> Action:
    try:
        return _action_adapter().validate_python(data)
    except ValidationError as error:
        raise CardDecodeError(str(error)) from error


def load_adapters() -> None:
    """Build the encoders and decoders of cards before the first card needs them."""
    _card_adapter()
    _action_adapter()


@cache
def _card_adapter() -> TypeAdapter[Card]:
    return TypeAdapter(Card)


@cache
def _action_adapter() -> TypeAdapter[Action]:
    return TypeAdapter(Action)
