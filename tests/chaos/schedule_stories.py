"""Reminders and a job that fire while the process dies, as a story."""

from __future__ import annotations

from tests.chaos.story import CrashStory, ScriptedUser

_ACTIVE = "SELECT id FROM schedules WHERE state = 'active' AND title LIKE ?"

# The program's own schedules fire as well when the clock goes on.
_BOTH_DONE = (
    "SELECT 1 WHERE (SELECT count(*) FROM firings f JOIN schedules s ON s.id = f.schedule_id"
    " WHERE f.state = 'done' AND s.title IN ('stretch', 'wait 1 second')) = 2"
)


async def _schedules(boss: ScriptedUser) -> None:
    """A reminder and a job fall due, because the clock goes on; another reminder is paused, goes on
    and is deleted. To change it wakes the timer, which looks at the clock once a minute."""
    await _schedule(boss, "/remind in 2 hours stretch", "stretch")
    await _schedule(boss, "/schedule in 2 hours wait 1 second", "wait 1 second")
    other = await _schedule(boss, "/remind every day at 9 drink", "drink")
    boss.advance_clock(2.02)
    for change in ("pause", "resume", "delete"):
        await boss.send_command(f"/schedule {change} {other}")
    await boss.wait_for_row(
        "SELECT 1 FROM firings f JOIN schedules s ON s.id = f.schedule_id WHERE f.state = 'sent'"
        " AND s.title LIKE '%stretch%'"
    )
    await boss.channel.press("Done", about="stretch")
    await boss.wait_for_row(_BOTH_DONE)


async def _schedule(boss: ScriptedUser, text: str, title: str) -> str:
    await boss.channel.send_message(text)
    await boss.channel.press("Confirm", about=title)
    return str(await boss.wait_for_row(_ACTIVE, f"%{title}%"))


STORIES = (
    CrashStory(
        name="schedules",
        act=_schedules,
        final_statuses={"wait 1 second": ("completed",)},
        files={},
        moves_clock=True,
        transitions=(
            "schedule.>proposed",
            "schedule.proposed>active",
            "schedule.active>paused",
            "schedule.paused>active",
            "schedule.active>ended",
            "firing.>sent",
            "firing.>started",
            "firing.sent>done",
            "firing.started>done",
        ),
    ),
)
