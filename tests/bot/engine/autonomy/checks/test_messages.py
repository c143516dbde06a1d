"""The check of messages: what waits, and letters of chats that are back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bot.engine.autonomy.checks.delivery import MessageHealthCheck
from storage.restore import RESTORED_ERROR
from tests.bot.engine.autonomy.checks.health_world import (
    NOW,
    HealthWorld,
    found_by,
    health_world,
    micros,
)

HOUR = timedelta(hours=1)


def check_of(world: HealthWorld) -> MessageHealthCheck:
    return MessageHealthCheck(figures=world.figures, wake=lambda: None, now=world.now)


async def test_messages_that_wait_too_long_are_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.run_sql(
            "INSERT INTO inbox (channel, dedupe, chat_id, incoming, state, received_at) VALUES"
            f" ('web', 'a', 'c1', '{{}}', 'new', {micros(NOW - HOUR)}),"
            f" ('web', 'b', 'c1', '{{}}', 'new', {micros(NOW)}),"
            f" ('web', 'c', 'c1', '{{}}', 'held', {micros(NOW - HOUR)})"
        )
        world.add_message_out(1, "queued", NOW - HOUR)
        world.add_message_out(2, "queued", NOW)

        found = await found_by(check_of(world))

        assert found["inbox_waits"].facts == {"n": 1, "minutes": 60}
        assert found["outbox_waits"].facts == {"n": 1, "minutes": 60}


async def test_a_dead_letter_is_sent_again_once_when_its_chat_is_back(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        check = check_of(world)
        world.add_message_out(1, "dead", NOW - 2 * HOUR, "blocked")
        found = await check.find()
        closed = await check.repair("retry_dead", found)

        world.add_message_out(2, "shown", NOW - HOUR)
        back = await check.repair("retry_dead", found)
        state = world.state_out(1)
        world.run_sql("UPDATE outbox SET state = 'dead' WHERE id = 1")
        world.advance(minutes=30)
        world.add_message_out(3, "shown", world.time)
        again = await check.repair("retry_dead", await check.find())

        assert [each.text for each in found] == ["dead_letters"]
        assert (closed, back, again) == (0, 1, 0)
        assert (state, world.state_out(1)) == ("queued", "dead")


async def test_what_a_restore_left_unsent_stays_unsent(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        check = check_of(world)
        world.add_message_out(1, "dead", NOW - 2 * HOUR, RESTORED_ERROR)
        world.add_message_out(2, "shown", NOW - HOUR)

        assert await check.repair("retry_dead", await check.find()) == 0
        assert await found_by(check) == {}
