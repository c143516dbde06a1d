"""Skills that are dropped in are shown to owners, once for each state of their files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.engine.skills.newcomers import MOST_CARDS, Newcomers
from cards.model import Buttons, Card, File, Text
from storage.db import Database
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.marks import Marks
from storage.people import People
from storage.records.people import Chat, Language
from tests.bot.engine.skills.shop import Shop, a_shop, write_skill
from tests.engine_world import FakeCourier, no_wait
from tests.fresh_store import open_store
from tests.samples import a_chat


@dataclass
class House:
    """A shop, and owners who are told of what comes into it."""

    shop: Shop
    db: Database
    courier: FakeCourier = field(default_factory=FakeCourier)
    chats: list[Chat] = field(default_factory=lambda: [a_chat("home"), a_chat("office")])

    def life(self) -> Newcomers:
        async def owners() -> Sequence[Chat]:
            return self.chats

        return Newcomers(
            library=self.shop.library,
            marks=Marks(self.db),
            owners=owners,
            people=People(self.db, Ids(), Chats(self.db, Ids())),
            courier=self.courier,
            language=Language.ENGLISH,
            sleep=no_wait,
        )

    @property
    def cards(self) -> list[Card]:
        """What was sent home."""
        return [card for key, card in self.courier.sent if key.endswith(":home")]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_store(tmp_path) as db:
        yield House(shop=await a_shop(tmp_path, db), db=db)


def labels(card: Card) -> list[str]:
    rows = (block for block in card.blocks if isinstance(block, Buttons))
    return [each.label for row in rows for each in row.items]


def texts(card: Card) -> str:
    return "\n".join(block.markdown for block in card.blocks if isinstance(block, Text))


async def test_each_owner_is_told_once_of_a_skill_that_is_dropped_in(house: House) -> None:
    life = house.life()
    await life.look()
    write_skill(house.shop.own / "fresh")
    for _ in range(4):
        await life.look()

    (card,) = house.cards
    assert "new skill" in texts(card)
    assert "fresh" in card.title
    assert any("Enable" in label for label in labels(card))
    assert len(house.courier.sent) == 2, "at home and at the office"


async def test_a_restart_tells_nothing_again_and_a_change_is_told(house: House) -> None:
    folder = write_skill(house.shop.own / "fresh")
    for _ in range(2):
        life = house.life()
        await life.look()
        await life.look()
    assert len(house.cards) == 1
    await house.shop.let_in("fresh")
    write_skill(folder, "Do something else.")

    life = house.life()
    await life.look()
    await life.look()

    _, changed = house.cards
    assert "has changed" in texts(changed)


async def test_half_a_copy_is_not_shown(house: House) -> None:
    life = house.life()
    folder = write_skill(house.shop.own / "fresh")
    await life.look()
    write_skill(folder, files={"scripts/more.sh": "echo 1"})
    await life.look()
    assert house.cards == []
    await life.look()

    (card,) = house.cards
    (whole,) = (block for block in card.blocks if isinstance(block, File))
    told = (house.shop.home / whole.path).read_text(encoding="utf-8")
    assert "Do it well." in told
    assert "===== scripts/more.sh" in told
    assert told.endswith("echo 1")


async def test_what_an_owner_has_decided_about_or_what_is_built_in_is_no_news(
    house: House,
) -> None:
    write_skill(house.shop.own / "known")
    await house.shop.let_in("known")
    write_skill(house.shop.own / "unwanted")
    shelf = await house.shop.library.shelf()
    (unwanted,) = shelf.named("unwanted")
    await house.shop.library.put_off("unwanted", unwanted.skill.key, by=house.shop.olga)
    life = house.life()
    await life.look()
    await life.look()

    assert house.courier.sent == []


async def test_of_many_at_once_one_card_tells(house: House) -> None:
    for number in range(MOST_CARDS + 1):
        write_skill(house.shop.own / f"fresh-{number}")
    life = house.life()
    await life.look()
    await life.look()
    await life.look()

    (card,) = house.cards
    assert len(labels(card)) == MOST_CARDS + 1


async def test_nobody_to_tell_is_no_reason_to_forget_it(house: House) -> None:
    chats, house.chats = house.chats, []
    write_skill(house.shop.own / "fresh")
    life = house.life()
    await life.look()
    await life.look()
    house.chats = chats
    await life.look()

    assert len(house.cards) == 1


async def test_what_cannot_be_shown_stops_nothing_and_is_not_tried_for_ever(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: object, **_facts: object) -> None:
        raise ValueError("a card that cannot be")

    write_skill(house.shop.own / "odd")
    life = house.life()
    monkeypatch.setattr(house.courier, "send", broken)
    await life.look()
    await life.look()
    monkeypatch.undo()
    write_skill(house.shop.own / "fresh")
    await life.look()
    await life.look()

    (card,) = house.cards
    assert "fresh" in card.title
