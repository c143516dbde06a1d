"""How far cards and results lag behind the truth, and how many calls an answer costs on Feishu."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.running_program import BenchmarkProgram, both_channels
from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedReply
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.journeys.platform_world import open_platforms

_TASKS = 3
_FILES = 3
_QUOTA = 10_000
_WORDS = " ".join(f"word{number}" for number in range(400))


async def measure_group(scale: Scale) -> list[Measurement]:
    """Three tasks run at the same time in one Telegram group whose emulator enforces the
    platform's limits: twenty messages and edits in any minute, thirty in any second over all
    chats. Each task has twelve short steps, so that its card changes far more often than the group
    allows, and ends with three files. The truth is the time at which the store recorded a task's
    start or end; a card lags until it shows it, a result until its message is there. With six such
    changes the 95th percentile is the worst one.
    """
    steps = scale.pick(12, 1)
    with tempfile.TemporaryDirectory() as home:
        async with both_channels(
            Path(home), SHIFTBOSS_OWNERS="telegram:1", SHIFTBOSS_SLOTS=str(_TASKS)
        ) as running:
            team = await _run_tasks(running, steps)
            refused = running.telegram.refused_by_limits
        cards = [*_card_lags(Path(home), team)]
        results = [*_result_lags(Path(home), team)]
    first_file = min(m.history[0].at for m in team.from_bot if m.upload)
    waited = sum(m.history[0].at > first_file for m in team.from_bot if _is_result(m))
    albums = {m.album for m in team.from_bot if m.upload and m.album}
    return [
        Figure("cards behind the truth, worst", max(cards), "s", at_most(3)),
        Figure("results behind the end, worst", max(results), "s", at_most(3)),
        Figure("results that waited for a file", waited),
        Figure("sends for the files of three results", len(albums)),
        Figure("calls refused by the limits", refused, bar=at_most(0)),
    ]


async def _run_tasks(running: BenchmarkProgram, steps: int) -> TelegramChat:
    boss = running.telegram.user(1, "Boss")
    team = running.telegram.group("Team")
    running.telegram.enforce_limits()
    for number in range(_TASKS):
        waits = ["wait 3 seconds"] * steps
        writes = [f'write "{number}" to task{number}-{name}.md' for name in "abc"[:_FILES]]
        await boss.says(team, f"/run {', then '.join([*waits, *writes])}", mention=True)
    done = _TASKS * _FILES
    await team.wait_until(lambda: sum(bool(m.upload) for m in team.from_bot) == done, timeout=300)
    await team.wait_until(lambda: sum(_is_card(m, "✅") for m in team.from_bot) == _TASKS)
    return team


def _card_lags(home: Path, team: TelegramChat) -> Iterator[float]:
    for kind, sign in (("started", "🔄"), ("completed", "✅")):
        for task, at in _events(home, kind).items():
            shown = [
                version.at
                for message in team.from_bot
                for version in message.history
                if task in version.text and _is_card(message, "") and version.text.startswith(sign)
            ]
            # A short task may be over before its card could say that it had started.
            if shown:
                yield min(shown) - at


def _result_lags(home: Path, team: TelegramChat) -> Iterator[float]:
    for task, at in _events(home, "completed").items():
        shown = [m.history[0].at for m in team.from_bot if _is_result(m) and task in m.text]
        yield min(shown) - at


def _is_card(message: TelegramMessage, sign: str) -> bool:
    return message.text.startswith(sign) and not _is_result(message)


def _is_result(message: TelegramMessage) -> bool:
    return message.text.startswith("✅ Task finished")


def _events(home: Path, kind: str) -> Mapping[str, float]:
    """When each task first had such an event."""
    with sqlite3.connect(home / "shiftboss.db") as store:
        rows = store.execute(
            "SELECT task_id, min(at) FROM events WHERE kind = ? GROUP BY task_id", (kind,)
        ).fetchall()
    return {task: at / 1_000_000 for task, at in rows}


async def measure_feishu_calls(scale: Scale) -> list[Measurement]:
    """An answer of 400 words streams for some eight seconds into a private Feishu chat, with all,
    half and a tenth of the month's API calls left. Counted are all calls of the platform's API from
    the question to the finished answer, the typing indicator included. A notice to the owner that
    a threshold has been passed is sent before.
    """
    pieces = scale.pick(0.02, 0.0)
    bars = {100: None, 49: at_most(8), 10: at_most(8)}
    return [
        Figure(f"calls of one answer, {left} % left", await _count_calls(left, pieces), bar=bar)
        for left, bar in bars.items()
    ]


async def _count_calls(left: int, pace: float) -> int:
    with tempfile.TemporaryDirectory() as home:
        async with (
            ModelEmulator() as models,
            open_platforms(
                Path(home),
                owner_ids=(1,),
                FEISHU_MONTHLY_QUOTA=str(_QUOTA),
                ANTHROPIC_API_KEY=models.key,
                ANTHROPIC_BASE_URL=models.url,
                SHIFTBOSS_LANGUAGE="en",
            ) as world,
        ):
            models.replies(lambda _: ScriptedReply(text=_WORDS, pace=pace))
            await world.program.stop()
            set_calls_of_month(Path(home), _QUOTA * (100 - left) // 100)
            await world.program.start()
            await world.wait_until_connected()
            owner, chat = world.feishu_owner, world.feishu_chat
            # The first command makes the notice of the threshold go out before it is counted.
            await world.ask_on_feishu("/chat")
            if left < 100:
                await chat.wait_for(lambda m: "monthly API calls" in m.header)
            before = world.feishu.rates.calls
            await owner.says(chat, "tell me about words")
            await world.feishu.wait_until(
                lambda: any("word399" in m.text and _is_closed(m) for m in chat.from_bot)
            )
            return world.feishu.rates.calls - before


def set_calls_of_month(home: Path, calls: int) -> None:
    """As if the program had made so many calls this month; it must not be running."""
    value = json.dumps({"month": f"{datetime.now(UTC):%Y-%m}", "calls": calls})
    with sqlite3.connect(home / "shiftboss.db") as store:
        store.execute(
            "INSERT INTO marks (name, value) VALUES ('feishu.calls', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (value,),
        )


def _is_closed(message: FeishuMessage) -> bool:
    return message.entity is None or not message.entity.streaming
