"""How a front comes to lead."""

from __future__ import annotations

import pytest

from bot.app import program
from storage.errors import StoreUnavailable


class WaitingFront:
    """The container, its clock and its membership in one: the lease is free at the second look,
    and the store away the first time after that."""

    def __init__(self) -> None:
        self.clock = self
        self.looks = self.pauses = self.prepared = 0

    async def hold(self, service: str) -> bool:
        self.looks += 1
        return self.looks > 1

    async def sleep(self, seconds: float) -> None:
        self.pauses += 1

    async def prepare(self, core: object) -> None:
        self.prepared += 1
        if self.prepared == 1:
            raise StoreUnavailable("the connection was cut")


async def test_an_outage_while_a_front_takes_over_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front = WaitingFront()
    monkeypatch.setattr(program, "_prepare_to_lead", front.prepare)

    await program._wait_to_lead(front, front)  # type: ignore[arg-type]  # what it uses of them

    assert (front.looks, front.pauses, front.prepared) == (3, 2, 2)
