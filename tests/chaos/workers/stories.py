"""Stories of workers with tools: leave is given, refused and taken back, what has an effect has it
once, and helpers report once."""

from __future__ import annotations

from tests.chaos.story import CrashStory, ScriptedUser
from tests.chaos.workers.scripted_model import (
    asks,
    careful,
    fails,
    never_ends,
    once,
    reads,
    runs,
    says,
    scripted_model,
    sends,
    writes,
)
from tests.emulators.models.script import ScriptedCall
from tests.journeys.model_world import step_reply, through

_DONE = ("completed",)
_ASKED = {"SHIFTBOSS_TOOLS_ASK_FOR": "exec, write(asked-*)"}

_LEAVE = scripted_model(
    {
        "leave-yes": careful(
            writes("asked-yes.txt", "granted"),
            "asked-yes.txt",
            "granted",
            step_reply("It is there."),
        ),
        "leave-no": once(
            writes("asked-no.txt", "no"),
            step_reply("Then not."),
            before=[reads("nowhere.txt"), writes("../outside.txt", "no")],
        ),
        "leave-answer": asks("Which colour?", "red", "blue"),
        "leave-stop": once(writes("asked-stop.txt", "no"), step_reply("Too late.")),
    },
    {},
)


async def _leave(boss: ScriptedUser) -> None:
    """Tasks that stop at a call: allowed, refused, answered, and stopped while they wait."""
    allowed = await boss.start_task("leave-yes", status="waiting")
    await boss.decide("Once", allowed, about="asked-yes")
    refused = await boss.start_task("leave-no", status="waiting")
    await boss.decide("❌", refused, about="asked-no")
    asked = await boss.start_task("leave-answer", status="waiting")
    await boss.decide("blue", asked, about="Which colour")
    stopped = await boss.start_task("leave-stop", status="waiting")
    await boss.send_command(f"/stop {stopped}")


_TALKS = scripted_model(
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


async def _talks(boss: ScriptedUser) -> None:
    """Talk that stops at a call: allowed, refused, and left for another subject."""
    await boss.channel.send_message("talk-yes")
    await boss.decide("Once", about="asked-talk")
    await boss.channel.send_message("talk-no")
    await boss.decide("❌", about="asked-never")
    await boss.channel.send_message("talk-other")
    await boss.wait_for_row("SELECT id FROM approvals WHERE detail LIKE '%asked-other%'")
    await boss.channel.send_message("talk-about")


_TURNS = scripted_model(
    {
        "turn-work": through(
            [
                [reads("nowhere.txt")],
                [writes("turn-a.txt", "one"), writes("turn-b.txt", "two")],
                [reads("turn-a.txt")],
            ],
            step_reply("It is written."),
        ),
    },
    {
        "turn-talk": through(
            [[writes("turn-c.txt", "three")], [reads("turn-c.txt")]], says("It is written.")
        )
    },
)


async def _turns(boss: ScriptedUser) -> None:
    """A step and an answer of several replies, with calls between them: each reply and each
    result stands in the store, and what was cut off goes on after it."""
    await boss.wait_for_status(await boss.start_task("turn-work"), "completed")
    await boss.channel.send_message("turn-talk")


_EFFECTS = scripted_model(
    {
        "tally-once": careful(
            runs("echo once >> tally.txt"), "tally.txt", "once", step_reply("It is counted.")
        ),
        "unsafe-once": once(
            writes("plain.txt", "plain"),
            step_reply("It is written."),
            before=[ScriptedCall(name="skill_load", arguments={"name": "summarise"})],
        ),
        "team-once": sends(["help-once"], step_reply("One is off."), step_reply("It is told.")),
    },
    {"help-once": says("The sea is blue.")},
    unsafe=["unsafe-once"],
)


async def _effects(boss: ScriptedUser) -> None:
    """A call has its side effects once, or the Boss is asked before it repeats: by the call's own
    request, or by that of the step that must not repeat. A helper's report is delivered once."""
    tally = await boss.start_task("tally-once")
    await boss.decide("Once", tally, about="tally.txt")
    unsafe = await boss.start_task("--persona pragmatist unsafe-once")
    while await boss.wait_for_status(unsafe, "completed", "blocked") == "blocked":
        await boss.send_command(f"/resume {unsafe}")
        await boss.wait_for_status(unsafe, "pending", "running", "completed")
    await boss.wait_for_status(await boss.start_task("team-once"), "completed")


_HELPERS = scripted_model(
    {
        "team-pair": sends(
            ["help-good", "help-bad"], step_reply("Two are off."), step_reply("All is told.")
        ),
        "team-leave": sends(["help-leave"], step_reply("One is off."), step_reply("All is told.")),
        "team-stop": sends(
            ["help-slow", "help-next"], step_reply("Two are off."), step_reply("All is told.")
        ),
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


async def _helpers(boss: ScriptedUser) -> None:
    """Helpers of tasks and of talk: they report, fail, wait for leave, and are sent home."""
    pair = await boss.start_task("team-pair")
    await boss.wait_for_status(pair, "completed")
    leave = await boss.start_task("team-leave")
    await boss.decide("Once", leave, about="asked-help")
    stopped = await boss.start_task("team-stop")
    await boss.wait_for_row(
        "SELECT 1 FROM helpers WHERE task_id = ? AND status = 'running' AND label LIKE '%slow'",
        stopped,
    )
    await boss.wait_for_row(
        "SELECT 1 FROM helpers WHERE task_id = ? AND label LIKE '%next'", stopped
    )
    await boss.send_command(f"/stop {stopped}")
    await boss.channel.send_message("team-chat")
    await boss.wait_for_row(
        "SELECT 1 WHERE (SELECT count(*) FROM helpers WHERE delivered_at IS NOT NULL) = 7"
    )


STORIES = (
    CrashStory(
        name="leave",
        act=_leave,
        final_statuses={
            "leave-yes": _DONE,
            "leave-no": _DONE,
            "leave-answer": _DONE,
            "leave-stop": ("cancelled",),
        },
        files={"asked-yes.txt": "granted"},
        transitions=(
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
        model=_LEAVE,
    ),
    CrashStory(
        name="talks",
        act=_talks,
        final_statuses={},
        files={},
        transitions=("call.open>cut",),
        extra_transitions=(
            "call.>open",
            "call.open>allowed",
            "call.open>denied",
            "call.running>done",
        ),
        settings=_ASKED,
        model=_TALKS,
    ),
    CrashStory(
        name="turns",
        act=_turns,
        final_statuses={"turn-work": _DONE},
        files={"turn-a.txt": "one", "turn-b.txt": "two"},
        transitions=(
            "turn.>complete",
            "turn.complete>open",
            "turn.open>complete",
            "request.>sent",
            "bill.>booked",
        ),
        extra_transitions=("call.>running", "call.running>done"),
        optional_files=frozenset({"turn-a.txt", "turn-b.txt"}),
        settings=_ASKED,
        model=_TURNS,
        every_call_is_billed=True,
    ),
    CrashStory(
        name="effects",
        act=_effects,
        final_statuses={"tally-once": _DONE, "unsafe-once": _DONE, "team-once": _DONE},
        files={"tally.txt": "once", "plain.txt": "plain"},
        transitions=(),
        extra_transitions=(
            "call.open>allowed",
            "call.allowed>running",
            "call.running>done",
            "helper.accepted>running",
            "report.awaited>told",
        ),
        settings=_ASKED,
        model=_EFFECTS,
    ),
    CrashStory(
        name="helpers",
        act=_helpers,
        final_statuses={"team-pair": _DONE, "team-leave": _DONE, "team-stop": ("cancelled",)},
        files={"asked-help.txt": "kept"},
        transitions=(
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
        extra_transitions=("call.open>allowed", "call.running>done"),
        optional_files=frozenset({"asked-help.txt"}),
        settings={**_ASKED, "SHIFTBOSS_HELPERS": "1"},
        model=_HELPERS,
    ),
)
