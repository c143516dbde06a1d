"""The status while nothing runs says the same about the store, and nothing about a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.app.status import read_status
from bot.cli.local_execution import _handle
from cards.model import Card, CardTone, notice_card
from cards.render import text as plain
from storage.people import LOCAL_WEB_OWNER
from storage.records.messages import DeliveryUrgency
from storage.records.people import Language
from tests.bot.dashboard.test_api import create
from tests.bot.dashboard.world import dashboard_world

OF_THE_PROCESS = ("pid", "started_at", "memory_bytes", "channels")


@pytest.mark.parametrize("language", list(Language))
async def test_both_ways_give_the_same_answer(tmp_path: Path, language: Language) -> None:
    async with dashboard_world(tmp_path, TELEGRAM_BOT_TOKEN="1:" + "a" * 35) as world:
        core = world.core
        for n in range(4):
            await create(world.program(), f"task {n}")
        chat = await core.get_local_chat()
        card = notice_card("", "hello", tone=CardTone.INFO)
        await core.courier.send(chat.id, card, key="waits", urgency=DeliveryUrgency.NOTICE)
        owner = await core.services.people.find_by_account(*LOCAL_WEB_OWNER)
        assert owner is not None
        await core.services.people.set_language(owner, language)
        whole = await _handle(core, "/status")
        assert whole.card is not None
        assert isinstance(whole.data, dict)

        shown, data = await read_status(core.settings)

    assert [data[each] for each in OF_THE_PROCESS] == [0, None, 0, []]
    ours, theirs = (
        {key: value for key, value in each.items() if key not in OF_THE_PROCESS}
        for each in (data, whole.data)
    )
    assert ours == theirs
    assert ours["queued_messages"] == 1
    mine, running = words_of(shown), words_of(whole.card)
    assert any("shiftboss start" in line for line in mine)
    missing = [line for line in running if line not in mine]
    assert len(missing) == 5, "process, uptime, memory and two channels"
    assert [line for line in mine if line not in running] == [mine[2]]


def words_of(card: Card) -> list[str]:
    """Without the numbers of each process."""
    lines = plain.render(card, include_controls=False).text.splitlines()
    return ["".join(each for each in line if not each.isdigit()) for line in lines]
