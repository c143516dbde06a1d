"""CardKit entities: one queue and one rising sequence for each card."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.transports.feishu.api import FeishuApi, segment
from bot.transports.feishu.errors import FeishuError, Kind
from cards.render.feishu.size import dumps

# What another process may have used since the sequence was last written down.
_HEADROOM = 10_000
_JUMP = 500
_JUMPS = 5
# A press being answered locks the card for as long as that takes, three seconds at most.
_LOCKED_PAUSE = 0.3
_LOCKED_TRIES = 12
_REMEMBERED = 1000


@dataclass(slots=True)
class _Entity:
    sequence: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class CardKit:
    def __init__(self, api: FeishuApi, pause: Callable[[float], Awaitable[None]]) -> None:
        self._api = api
        self._pause = pause
        self._entities: OrderedDict[str, _Entity] = OrderedDict()

    async def create(self, card: Mapping[str, Any]) -> str:
        """A new entity, to be sent once; its id."""
        body = {"type": "card_json", "data": dumps(card)}
        answer = await self._api.call("POST", "/cardkit/v1/cards", body=body, unseen=True)
        return self._known(answer, sequence=0)

    async def convert(self, message_id: str) -> str:
        """The entity behind a card message, made one if it was none."""
        body = {"message_id": message_id}
        answer = await self._api.call("POST", "/cardkit/v1/cards/id_convert", body=body)
        return self._known(answer, sequence=_HEADROOM)

    def adopt(self, card_id: str, sequence: int) -> None:
        """Take up a card that an earlier process left at about this sequence."""
        if card_id not in self._entities:
            self._put(card_id, sequence + _HEADROOM)

    def sequence(self, card_id: str) -> int:
        """The last sequence used, to be written down."""
        entity = self._entities.get(card_id)
        return entity.sequence if entity else 0

    async def update(self, card_id: str, card: Mapping[str, Any]) -> None:
        """Replace the whole card; its config says whether streaming is on."""
        body = {"card": {"type": "card_json", "data": dumps(card)}}
        await self._operate(card_id, "PUT", "", body)

    async def settle(self, card_id: str, summary: str) -> None:
        """End streaming; the summary replaces the one that said it was being written."""
        config = {"streaming_mode": False, "summary": {"content": summary}}
        body = {"settings": dumps({"config": config})}
        await self._operate(card_id, "PATCH", "/settings", body)

    async def reopen(self, card_id: str) -> None:
        """Streaming ends by itself after some minutes; long answers turn it on again."""
        body = {"settings": dumps({"config": {"streaming_mode": True}})}
        await self._operate(card_id, "PATCH", "/settings", body)

    async def content(self, card_id: str, element_id: str, text: str) -> None:
        """The full text so far of one element."""
        path = f"/elements/{segment(element_id)}/content"
        await self._operate(card_id, "PUT", path, {"content": text})

    async def _operate(self, card_id: str, method: str, path: str, body: Mapping[str, Any]) -> None:
        """One operation in the card's queue. Waits out presses, climbs over lost sequences."""
        entity = self._entities.get(card_id) or self._put(card_id, _HEADROOM)
        target = f"/cardkit/v1/cards/{segment(card_id)}{path}"
        jumps, locked = 0, 0
        async with entity.lock:
            while True:
                entity.sequence += 1
                try:
                    numbered = {**body, "sequence": entity.sequence}
                    await self._api.call(method, target, body=numbered)
                except FeishuError as error:
                    if error.kind is Kind.SEQUENCE and jumps < _JUMPS:
                        entity.sequence += _JUMP << jumps
                        jumps += 1
                    elif error.kind is Kind.INTERACTING and locked < _LOCKED_TRIES:
                        locked += 1
                        await self._pause(_LOCKED_PAUSE)
                    else:
                        raise
                else:
                    return

    def _known(self, answer: Mapping[str, Any], *, sequence: int) -> str:
        card_id = str((answer.get("data") or {}).get("card_id", ""))
        if not card_id:
            raise FeishuError(-1, "the answer names no card", status=502)
        if card_id not in self._entities:
            self._put(card_id, sequence)
        return card_id

    def _put(self, card_id: str, sequence: int) -> _Entity:
        entity = self._entities[card_id] = _Entity(sequence)
        if len(self._entities) > _REMEMBERED:
            self._entities.popitem(last=False)
        return entity
