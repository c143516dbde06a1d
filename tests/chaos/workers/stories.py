"""Stories of workers with tools: leave is given, refused and taken back, what has an effect has it
once, and helpers report once."""

from __future__ import annotations

from tests.chaos.boss import Boss, Story
from tests.chaos.workers.mind import (
    asks,
    careful,
    fails,
    mind,
    never_ends,
    once,
    reads,
    runs,
    says,
    sends,
    writes,
)
from tests.emulators.models.script import Call
from tests.journeys.model_world import done

_DONE = ("completed",)
_ASKED = {"SHIFTBOSS_TOOLS_ASK_FOR": "exec, write(asked-*)"}

_LEAVE = mind(
    {
        "leave-yes": careful(
            writes("asked-yes.txt", "granted"), "asked-yes.txt", "granted", done("It is there.")
        ),
        "leave-no": once(
            writes("asked-no.txt", "no"),
            done("Then not."),
            before=[reads("nowhere.txt"), writes("../outside.txt", "no")],
        ),
        "leave-answer": asks("Which colour?", "red", "blue"),
        "leave-stop": once(writes("asked-stop.txt", "no"), done("Too late.")),
    },
    {},
)


async def _leave(boss: Boss) -> None:
    """Tasks that stop at a call: allowed, refused, answered, and stopped while they wait."""
    allowed = await boss.runs("leave-yes", status="waiting")
    await boss.decides("Once", allowed, about="asked-yes")
    refused = await boss.runs("leave-no", status="waiting")
    await boss.decides("❌", refused, about="asked-no")
    asked = await boss.runs("leave-answer", status="waiting")
    await boss.decides("blue", asked, about="Which colour")
    stopped = await boss.runs("leave-stop", status="waiting")
    await boss.orders(f"/stop {stopped}")


_TALKS = mind(
    {},
    {
        "talk-yes": careful(
            writes("asked-talk.txt", "said"), "asked-talk.txt", "said", says("They are there now.")
        ),
        "talk-no": once(writes("asked-never.txt", "no"), says("Then not.")),
        "talk-other": once(writes("asked-other.txt", "no"), says("Too late.")),
        "talk-about": says("Of course."),
    },
)


async def _talks(boss: Boss) -> None:
    """Talk that stops at a call: allowed, refused, and left for another subject."""
    await boss.front.says("talk-yes")
    await boss.decides("Once", about="asked-talk")
    await boss.front.says("talk-no")
    await boss.decides("❌", about="asked-never")
    await boss.front.says("talk-other")
    await boss.until("SELECT id FROM approvals WHERE detail LIKE '%asked-other%'")
    await boss.front.says("talk-about")


_EFFECTS = mind(
    {
        "tally-once": careful(
            runs("echo once >> tally.txt"), "tally.txt", "once", done("It is counted.")
        ),
        "unsafe-once": once(
            writes("plain.txt", "plain"),
            done("It is written."),
            before=[Call(name="skill_load", arguments={"name": "summarise"})],
        ),
        "team-once": sends(["help-once"], done("One is off."), done("It is told.")),
    },
    {"help-once": says("The sea is blue.")},
    unsafe=["unsafe-once"],
)


async def _effects(boss: Boss) -> None:
    """What a call does to the world it does once, or the Boss is asked before it does it again:
    by the call's own request, or by the step's that must not be repeated unasked. What a helper
    brings is told once."""
    tally = await boss.runs("tally-once")
    await boss.decides("Once", tally, about="tally.txt")
    unsafe = await boss.runs("--persona pragmatist unsafe-once")
    while await boss.is_now(unsafe, "completed", "blocked") == "blocked":
        await boss.orders(f"/resume {unsafe}")
        await boss.is_now(unsafe, "pending", "running", "completed")
    await boss.is_now(await boss.runs("team-once"), "completed")


_HELPERS = mind(
    {
        "team-pair": sends(["help-good", "help-bad"], done("Two are off."), done("All is told.")),
        "team-leave": sends(["help-leave"], done("One is off."), done("All is told.")),
        "team-stop": sends(["help-slow", "help-next"], done("Two are off."), done("All is told.")),
    },
    {
        "team-chat": sends(
            ["help-look", "help-more"], says("They look."), says("They have looked.")
        ),
        "help-good": says("The sea is blue."),
        "help-bad": fails,
        "help-leave": careful(
            writes("asked-help.txt", "kept"), "asked-help.txt", "kept", says("It is kept.")
        ),
        "help-slow": never_ends,
        "help-next": says("Nobody waits for this."),
        "help-look": says("There are clouds."),
        "help-more": says("There is rain."),
    },
)


async def _helpers(boss: Boss) -> None:
    """Helpers of tasks and of talk: they report, fail, wait for leave, and are sent home."""
    pair = await boss.runs("team-pair")
    await boss.is_now(pair, "completed")
    leave = await boss.runs("team-leave")
    await boss.decides("Once", leave, about="asked-help")
    stopped = await boss.runs("team-stop")
    await boss.until(
        "SELECT 1 FROM helpers WHERE task_id = ? AND status = 'running' AND label LIKE '%slow'",
        stopped,
    )
    await boss.until("SELECT 1 FROM helpers WHERE task_id = ? AND label LIKE '%next'", stopped)
    await boss.orders(f"/stop {stopped}")
    await boss.front.says("team-chat")
    await boss.until(
        "SELECT 1 WHERE (SELECT count(*) FROM helpers WHERE delivered_at IS NOT NULL) = 7"
    )


STORIES = (
    Story(
        name="leave",
        live=_leave,
        ends={
            "leave-yes": _DONE,
            "leave-no": _DONE,
            "leave-answer": _DONE,
            "leave-stop": ("cancelled",),
        },
        files={"asked-yes.txt": "granted"},
        moves=(
            "call.>open",
            "call.>running",
            "call.>denied",
            "call.open>allowed",
            "call.open>denied",
            "call.open>answered",
            "call.allowed>running",
            "call.running>done",
            "call.running>failed",
            "call.running>cut",
        ),
        settings=_ASKED,
        mind=_LEAVE,
    ),
    Story(
        name="talks",
        live=_talks,
        ends={},
        files={},
        moves=("call.open>cut",),
        also=("call.>open", "call.open>allowed", "call.open>denied", "call.running>done"),
        settings=_ASKED,
        mind=_TALKS,
    ),
    Story(
        name="effects",
        live=_effects,
        ends={"tally-once": _DONE, "unsafe-once": _DONE, "team-once": _DONE},
        files={"tally.txt": "once", "plain.txt": "plain"},
        moves=(),
        also=(
            "call.open>allowed",
            "call.allowed>running",
            "call.running>done",
            "helper.accepted>running",
            "report.awaited>told",
        ),
        settings=_ASKED,
        mind=_EFFECTS,
    ),
    Story(
        name="helpers",
        live=_helpers,
        ends={"team-pair": _DONE, "team-leave": _DONE, "team-stop": ("cancelled",)},
        files={"asked-help.txt": "kept"},
        moves=(
            "helper.>accepted",
            "helper.accepted>running",
            "helper.accepted>failed",
            "helper.running>accepted",
            "helper.running>done",
            "helper.running>failed",
            "report.>awaited",
            "report.awaited>told",
            "report.awaited>owed",
            "report.owed>told",
            "order.>helper",
            "call.allowed>cut",
        ),
        also=("call.open>allowed", "call.running>done"),
        unsure=frozenset({"asked-help.txt"}),
        settings={**_ASKED, "SHIFTBOSS_HELPERS": "1"},
        mind=_HELPERS,
    ),
)
