"""Skills that are dropped in are shown to owners, once for each state of their files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.engine.skills.skill_library import MAX_CARDS, SkillReviewNotifier
from cards.model import ButtonsBlock, Card, FileBlock, TextBlock
from storage.db import Database
from storage.key_value import KeyValueStore
from storage.records.people import Chat
from tests.bot.engine.skills.builders import SkillSetup, set_up_skills, write_skill
from tests.builders import make_chat
from tests.engine_harness import RecordingCourier, no_sleep, owner_cards
from tests.migrated_database import open_database


@dataclass
class NotifierSetup:
    """A shop, and owners who are told of what comes into it."""

    shop: SkillSetup
    db: Database
    courier: RecordingCourier = field(default_factory=RecordingCourier)
    chats: list[Chat] = field(default_factory=lambda: [make_chat("home"), make_chat("office")])

    def notifier(self) -> SkillReviewNotifier:
        return SkillReviewNotifier(
            library=self.shop.library,
            key_values=KeyValueStore(self.db),
            owners=owner_cards(self.courier, self.chats),
            sleep=no_sleep,
        )

    @property
    def cards(self) -> list[Card]:
        """The notices that were sent."""
        return [card for key, card in self.courier.sent if key.endswith(":home")]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[NotifierSetup]:
    async with open_database(tmp_path) as db:
        yield NotifierSetup(shop=await set_up_skills(tmp_path, db), db=db)


def labels(card: Card) -> list[str]:
    rows = (block for block in card.blocks if isinstance(block, ButtonsBlock))
    return [each.label for row in rows for each in row.items]


def texts(card: Card) -> str:
    return "\n".join(block.markdown for block in card.blocks if isinstance(block, TextBlock))


async def test_each_owner_is_told_once_of_a_skill_that_is_dropped_in(house: NotifierSetup) -> None:
    life = house.notifier()
    await life.notify_new()
    write_skill(house.shop.user_folder / "fresh")
    for _ in range(4):
        await life.notify_new()

    (card,) = house.cards
    assert "New skill" in texts(card)
    assert "fresh" in card.title
    assert any("Enable" in label for label in labels(card))
    assert len(house.courier.sent) == 2, "at home and at the office"


async def test_a_restart_tells_nothing_again_and_a_change_is_told(house: NotifierSetup) -> None:
    folder = write_skill(house.shop.user_folder / "fresh")
    for _ in range(2):
        life = house.notifier()
        await life.notify_new()
        await life.notify_new()
    assert len(house.cards) == 1
    await house.shop.enable("fresh")
    write_skill(folder, "Do something else.")

    life = house.notifier()
    await life.notify_new()
    await life.notify_new()

    _, changed = house.cards
    assert "has changed" in texts(changed)


async def test_half_a_copy_is_not_shown(house: NotifierSetup) -> None:
    life = house.notifier()
    folder = write_skill(house.shop.user_folder / "fresh")
    await life.notify_new()
    write_skill(folder, files={"scripts/more.sh": "echo 1"})
    await life.notify_new()
    assert house.cards == []
    await life.notify_new()

    (card,) = house.cards
    (whole,) = (block for block in card.blocks if isinstance(block, FileBlock))
    told = (house.shop.home / whole.path).read_text(encoding="utf-8")
    assert "Do it well." in told
    assert "===== scripts/more.sh" in told
    assert told.endswith("echo 1")


async def test_what_an_owner_has_decided_about_or_what_is_built_in_is_no_news(
    house: NotifierSetup,
) -> None:
    write_skill(house.shop.user_folder / "known")
    await house.shop.enable("known")
    write_skill(house.shop.user_folder / "unwanted")
    shelf = await house.shop.library.list_skills()
    (unwanted,) = shelf.list_by_name("unwanted")
    await house.shop.library.postpone("unwanted", unwanted.skill.decision_hash, by=house.shop.olga)
    life = house.notifier()
    await life.notify_new()
    await life.notify_new()

    assert house.courier.sent == []


async def test_of_many_at_once_one_card_tells(house: NotifierSetup) -> None:
    for number in range(MAX_CARDS + 1):
        write_skill(house.shop.user_folder / f"fresh-{number}")
    life = house.notifier()
    await life.notify_new()
    await life.notify_new()
    await life.notify_new()

    (card,) = house.cards
    assert len(labels(card)) == MAX_CARDS + 1


async def test_nobody_to_tell_is_no_reason_to_forget_it(house: NotifierSetup) -> None:
    chats = list(house.chats)
    house.chats.clear()
    write_skill(house.shop.user_folder / "fresh")
    life = house.notifier()
    await life.notify_new()
    await life.notify_new()
    house.chats.extend(chats)
    await life.notify_new()

    assert len(house.cards) == 1


async def test_what_cannot_be_shown_stops_nothing_and_is_not_tried_for_ever(
    house: NotifierSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: object, **_facts: object) -> None:
        raise ValueError("a card that cannot be")

    write_skill(house.shop.user_folder / "odd")
    life = house.notifier()
    monkeypatch.setattr(house.courier, "send", broken)
    await life.notify_new()
    await life.notify_new()
    monkeypatch.undo()
    write_skill(house.shop.user_folder / "fresh")
    await life.notify_new()
    await life.notify_new()

    (card,) = house.cards
    assert "fresh" in card.title
