"""Accounts behind which many people stand are nobody whom Shiftboss knows."""

from __future__ import annotations

import pytest
import telegram

from bot.transports.telegram.incoming import parse_sender


@pytest.mark.parametrize("number", [777000, 136817688, 1087968824])
def test_a_pseudo_account_of_telegram_is_no_person(number: int) -> None:
    assert parse_sender(telegram.User(id=number, first_name="Group", is_bot=False)).is_bot


def test_a_person_is_one() -> None:
    assert not parse_sender(telegram.User(id=42, first_name="Ada", is_bot=False)).is_bot
