"""/heartbeat: for owners in private, in both languages."""

from __future__ import annotations

import pytest

from handlers.request import Reply
from storage.records.autonomy import HeartbeatOutcome, WakeReason
from storage.records.people import Language
from tests.fakes.heartbeat import make_run
from tests.handlers.router_harness import RouterHarness, text_of


async def ask(desk: RouterHarness, text: str) -> Reply:
    return await desk.send_message(text, who="x-olga", chat="c0")


async def test_it_shows_when_it_runs_what_is_open_and_how_it_went() -> None:
    reply = await ask(RouterHarness(), "/heartbeat")
    shown = text_of(reply)
    for part in ("On", "30 minutes", "08:00-22:00", "Check the backups", "did something", "$0.50"):
        assert part in shown
    assert reply.data is not None
    assert reply.data["pending"][0]["text"] == "Check the backups"


async def test_it_is_switched_run_and_fed() -> None:
    desk = RouterHarness()
    heartbeat = desk.world.heartbeat
    assert "is off" in text_of(await ask(desk, "/heartbeat off"))
    assert not heartbeat.is_on
    assert "is on" in text_of(await ask(desk, "/heartbeat on"))

    assert "Started" in text_of(await ask(desk, "/heartbeat now"))
    heartbeat.is_running = True
    assert "in progress" in text_of(await ask(desk, "/heartbeat now"))
    assert len(heartbeat.asked) == 2

    assert "water the plants" in text_of(await ask(desk, "/heartbeat add water the plants"))
    for refused in ("/heartbeat add", f"/heartbeat add {'x' * 501}", "/heartbeat dance"):
        assert "/heartbeat" in text_of(await ask(desk, refused))
    assert heartbeat.tasks == ["Check the backups", "water the plants"]


@pytest.mark.parametrize("language", Language)
async def test_the_log_tells_each_way_to_end_from_the_others(language: Language) -> None:
    desk = RouterHarness(language=language)
    outcomes = set()
    for outcome in HeartbeatOutcome:
        desk.world.heartbeat.runs = [
            make_run(outcome, reasons=tuple(WakeReason), claims=(), text="")
        ]
        outcomes.add(text_of(await ask(desk, "/heartbeat log")))
    assert len(outcomes) == len(HeartbeatOutcome)


async def test_the_log_shows_which_claims_are_backed() -> None:
    shown = text_of(await ask(RouterHarness(), "/heartbeat log"))
    assert "✅ report: Wrote it (report.md)" in shown
    assert "⚠️ mail: it says “Sent it”" in shown


async def test_it_is_for_owners_in_private() -> None:
    desk = RouterHarness()
    await desk.send_message("/heartbeat off")
    await desk.send_message("/heartbeat off", who="x-olga", chat="g1")
    assert desk.world.heartbeat.is_on
