"""Buttons of a card and the tokens they go out under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cards.actions import Action
from cards.card_json import dump_action
from cards.model import Block, Buttons, Card, Form, Select
from storage.mail.actions import Wanted


def wanted_of(card: Card) -> list[Wanted]:
    """What has to be pressable on the card, in order."""
    return [
        Wanted(action=dump_action(action), single_use=action.single_use)
        for action in _actions(card)
    ]


def sealed(card: Card, tokens: Sequence[str]) -> Card:
    """The card with its tokens, in the order of `wanted_of`."""
    rest = iter(tokens)
    return replace(card, blocks=tuple(_sealed(block, rest) for block in card.blocks))


def _actions(card: Card) -> Iterator[Action]:
    for block in card.blocks:
        if isinstance(block, Buttons):
            yield from (button.action for button in block.items)
        elif isinstance(block, Select | Form):
            yield block.action


def _sealed(block: Block, tokens: Iterator[str]) -> Block:
    if isinstance(block, Buttons):
        items = tuple(replace(button, token=next(tokens)) for button in block.items)
        return replace(block, items=items)
    if isinstance(block, Select | Form):
        return replace(block, token=next(tokens))
    return block
