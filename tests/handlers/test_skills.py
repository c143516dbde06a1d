"""Skills in a chat: everybody sees and uses them, owners let them in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cards.actions import AnswerWithoutTask, EnableSkill, SaveSkill, ShowSkill, UseSkill
from cards.catalog import catalog_for
from cards.model import ButtonsBlock, FileBlock
from handlers.request import Reply
from storage.records.people import Language
from storage.records.skills import (
    InvalidSkill,
    MissingRequirement,
    SkillChanges,
    SkillFile,
    SkillListing,
    SkillNote,
    SkillSource,
    SkillState,
)
from tests.fakes.skills import make_listed_skill
from tests.handlers.router_harness import RouterHarness, text_of

HASH = "abcdef0123456789" * 4
OWNER: dict[str, Any] = {"who": "x-olga", "chat": "c0"}


def actions(reply: Reply) -> list[Any]:
    assert reply.card is not None
    blocks = [block for block in reply.card.blocks if isinstance(block, ButtonsBlock)]
    return [button.action for block in blocks for button in block.items]


def a_desk(*listed: SkillListing) -> RouterHarness:
    desk = RouterHarness()
    desk.world.skills.listed = list(listed or (make_listed_skill(),))
    return desk


def new(name: str = "weekly-report") -> SkillListing:
    return make_listed_skill(name, SkillState.NEW)


async def press(desk: RouterHarness, action: Any, **who: Any) -> Reply:
    who = who or OWNER
    return await desk.press(desk.world.post.add_button_card(action, chat=who["chat"]), **who)


async def test_the_list_tells_state_lacks_and_what_to_mend() -> None:
    lacking = make_listed_skill(
        "lacking", missing_requirements=(MissingRequirement(key="bins", names=("jq",)),)
    )
    desk = a_desk(
        make_listed_skill(), new("fresh"), lacking, make_listed_skill("off", SkillState.DISABLED)
    )
    desk.world.skills.bad = [
        InvalidSkill(
            name="bad",
            source=SkillSource.USER,
            path="/skills/bad",
            errors=(SkillNote(key="no_description"), SkillNote(key="bad_name", detail="A`B")),
        )
    ]

    reply = await desk.send_message("/skill", **OWNER)

    text = text_of(reply)
    for part in (
        "weekly-report",
        "missing on this machine: jq",
        "not reviewed yet",
        "disabled",
        "/skills/bad",
        "description is missing",
        "A'B",
    ):
        assert part in text
    assert actions(reply) == [ShowSkill(name="fresh")]
    assert reply.data is not None
    assert [each["name"] for each in reply.data["bad"]] == ["bad"]


@pytest.mark.parametrize("said", ["/技能", "/skills list", "/skill 列表", "/skill reload"])
async def test_the_list_has_several_names(said: str) -> None:
    assert "weekly-report" in text_of(await a_desk().send_message(said))


async def test_before_it_is_let_in_an_owner_sees_all_of_it() -> None:
    desk = a_desk(new())

    reply = await desk.send_message("/skill show weekly-report", **OWNER)

    text = text_of(reply)
    for part in ("/home/boss/.shiftboss/skills/weekly-report", HASH, "49 B", "scripts/run.sh"):
        assert part in text
    assert "List what was done." in text
    assert actions(reply) == [
        EnableSkill(name="weekly-report", hash=HASH),
        EnableSkill(name="weekly-report", hash=HASH, enable=False),
    ]


async def test_a_changed_skill_says_what_has_changed() -> None:
    change = SkillChanges(added=("evil.sh",), changed=("SKILL.md",), diff="-First.\n+Second.")
    desk = a_desk(replace(make_listed_skill(state=SkillState.CHANGED), change=change))

    text = text_of(await desk.send_message("/skill show weekly-report", **OWNER))

    assert "have changed since" in text
    assert "evil.sh" in text
    assert "+Second." in text


async def test_a_member_sees_it_and_cannot_let_it_in() -> None:
    desk = a_desk(new())

    shown = await desk.send_message("/skill show weekly-report")
    typed = await desk.send_message(f"/skill enable weekly-report {HASH}")
    used = await desk.send_message("/skill weekly-report now")
    drafted = await desk.send_message("/skill new something")
    action = EnableSkill(name="weekly-report", hash=HASH)
    pressed = await press(desk, action, who="x-ann", chat="c1")

    assert actions(shown) == []
    assert "Only an owner" in text_of(shown)
    assert not pressed.good
    assert "not enabled" in text_of(used)
    assert desk.world.skills.decisions == []
    assert desk.world.skills.drafted == []
    assert "weekly-report" not in text_of(typed)
    assert text_of(drafted)


async def test_an_owners_button_lets_in_exactly_the_hash_on_the_card() -> None:
    desk = a_desk(new())
    reply = await desk.send_message("/skill weekly-report", **OWNER)
    enable, _ = actions(reply)

    pressed = await press(desk, enable)

    assert pressed.in_place
    assert "is enabled" in text_of(pressed)
    assert desk.world.skills.decisions == [("weekly-report", HASH, True)]


async def test_files_that_changed_under_the_card_are_not_let_in() -> None:
    desk = a_desk(new())

    reply = await press(desk, EnableSkill(name="weekly-report", hash="0" * 64))

    assert "has changed" in text_of(reply)
    assert desk.world.skills.decisions == []


async def test_not_now_is_a_decision_too() -> None:
    desk = a_desk(new())

    await press(desk, EnableSkill(name="weekly-report", hash=HASH, enable=False))

    assert desk.world.skills.decisions == [("weekly-report", HASH, False)]


async def test_by_words_it_takes_the_hash_and_shows_it_first_without() -> None:
    desk = a_desk(new())

    shown = await desk.send_message("/skill enable weekly-report", **OWNER)
    short = await desk.send_message("/skill enable weekly-report abc", **OWNER)
    assert desk.world.skills.decisions == []
    done = await desk.send_message(f"/skill enable weekly-report {HASH[:12]}", **OWNER)
    off = await desk.send_message("/skill 停用 weekly-report", **OWNER)

    assert HASH in text_of(shown)
    assert "too short" in text_of(short)
    assert "is enabled" in text_of(done)
    assert "is disabled" in text_of(off)


@pytest.mark.parametrize(
    "said",
    [
        "/skill weekly-report  for May",
        "/skill use weekly-report for May",
        "/weekly-report for May",
        "／Weekly-Report@shiftbot for May",
        "/skill Weekly-Report\nfor May",
    ],
)
async def test_a_skill_is_used_as_the_next_turn_with_its_body(said: str) -> None:
    desk = a_desk()

    reply = await desk.send_message(said)

    (question,) = desk.world.talk.questions
    assert text_of(reply) == "Fine."
    assert question.text == "for May"
    assert "List what was done." in question.brief
    assert question.no_proposal


async def test_without_words_it_works_on_what_was_said() -> None:
    desk = a_desk()

    await desk.send_message("/skill weekly-report")

    assert "been discussing" in desk.world.talk.questions[0].text


@pytest.mark.parametrize(
    "said", ["/skill --task weekly-report {}", "/skill weekly-report --task {}"]
)
async def test_as_a_task_it_is_named_in_what_the_worker_is_told(said: str) -> None:
    desk = a_desk()
    text = 'for May -p urgent "quoted"'

    await desk.send_message(said.format(text))

    (task,) = desk.world.tasks.created
    assert task.instruction.startswith(text)
    assert "skill_load" in task.instruction
    assert "weekly-report" in task.instruction
    assert task.title == text
    assert desk.world.talk.questions == []


async def test_what_no_worker_may_load_is_no_task() -> None:
    desk = a_desk(make_listed_skill(model_may_load=False))

    text = text_of(await desk.send_message("/skill weekly-report --task for May"))

    assert "for people only" in text
    assert desk.world.tasks.created == []


async def test_words_that_call_for_a_skill_propose_it_and_wait() -> None:
    desk = a_desk()
    desk.world.skills.triggers = {"my weekly report": "weekly-report"}

    reply = await desk.send_message("my weekly report", files=("a.txt",))

    use, talk = actions(reply)
    assert use == UseSkill(name="weekly-report", text="my weekly report", files=("a.txt",))
    assert talk == AnswerWithoutTask(text="my weekly report", files=("a.txt",))
    assert desk.world.talk.questions == []
    who: dict[str, Any] = {"who": "x-ann", "chat": "c1"}
    await press(desk, use, **who)
    assert "List what was done." in desk.world.talk.questions[0].brief
    assert desk.world.talk.questions[0].files == ("a.txt",)
    await press(desk, talk, **who)
    assert desk.world.talk.questions[1].brief == ""


async def test_a_slash_that_is_no_skill_is_talk() -> None:
    desk = a_desk()

    await desk.send_message("/weekly-reporting for May")
    await desk.send_message("/dance")

    assert [each.brief for each in desk.world.talk.questions] == ["", ""]


async def test_a_command_comes_before_a_skill_of_its_name() -> None:
    desk = a_desk(make_listed_skill("list"))

    await desk.send_message("/list")
    await desk.send_message("/skill use list x")

    assert [each.text for each in desk.world.talk.questions] == ["x"]


async def test_a_draft_is_shown_whole_and_kept_only_by_the_button() -> None:
    desk = a_desk()

    reply = await desk.send_message("/skill new my weekly report", **OWNER)

    save, drop = actions(reply)
    assert desk.world.skills.drafted == ["my weekly report"]
    assert desk.world.skills.saved == []
    assert isinstance(save, SaveSkill)
    assert save.text in text_of(reply)
    await press(desk, drop)
    assert desk.world.skills.saved == []
    await press(desk, save)
    assert [each.text for each in desk.world.skills.saved] == [save.text]


async def test_what_is_not_there_is_told() -> None:
    desk = a_desk()

    assert "No skill named nothing" in text_of(await desk.send_message("/skill nothing at all"))
    assert "No skill named nothing" in text_of(await desk.send_message("/skill show nothing"))
    assert "/skill" in text_of(await desk.send_message("/skill show"))
    assert desk.incidents == 0 or text_of(await desk.send_message("/skill"))


async def test_a_hostile_text_stays_in_its_box() -> None:
    listed = new()
    evil = "`` ` ``` [Enable](http://evil) <at id=all></at>\u202e"
    skill = replace(
        listed.skill,
        description=evil,
        text=evil * 2000,
        emoji="🧩",
        files=(SkillFile(name=f"{evil}.md", size=1, digest="x"),),
        ignored=(evil,),
        notes=(SkillNote(key="hidden", detail="1"),),
    )
    desk = a_desk(replace(listed, skill=skill))

    reply = await desk.send_message("/skill show weekly-report", **OWNER)

    text = text_of(reply)
    assert "invisible characters" in text
    assert "\u202e" not in text
    assert "[Enable](http://evil) <at id=all>" not in text.partition("SKILL.md")[0].split("```")[0]
    assert "first 4,000 of" in text


@pytest.mark.parametrize("said", ["/skill", "/skill show weekly-report"])
async def test_where_a_skill_lies_is_told_to_owners_in_private_only(said: str) -> None:
    desk = a_desk(
        replace(make_listed_skill(), shadowed_by="/home/boss/project/skills/weekly-report")
    )
    desk.world.skills.bad = [
        InvalidSkill(name="bad", source=SkillSource.USER, path="/home/boss/skills/bad", errors=())
    ]

    told = await desk.send_message(said, **OWNER)
    member = await desk.send_message(said)
    group = await desk.send_message(said, who="x-olga", chat="g1")

    assert "/home/boss" in text_of(told) + str(told.data)
    for reply in (member, group):
        assert "/home/boss" not in text_of(reply) + str(reply.data)
        assert "…/weekly-report" in text_of(reply) + str(reply.data)


async def test_what_built_in_skills_are_for_is_told_in_the_readers_language() -> None:
    listed = make_listed_skill("test")
    builtin = replace(listed, skill=replace(listed.skill, source=SkillSource.BUILTIN))
    own = make_listed_skill("weekly-report")
    desk = a_desk(builtin, own)
    spoken = RouterHarness(language=Language.CHINESE)
    spoken.world.skills.listed = [builtin, own]

    english = text_of(await desk.send_message("/skill"))
    chinese = text_of(await spoken.send_message("/技能"))

    assert "can really fail" in english
    assert "编写或补充测试" in chinese
    assert own.skill.description[:30] in chinese


def test_every_built_in_skill_has_its_words() -> None:
    words = catalog_for(Language.CHINESE)
    folder = Path(__file__).parents[2] / "bot" / "engine" / "skills" / "builtin"
    names = {each.parent.name for each in folder.glob("*/SKILL.md")}

    assert names
    assert {name for name in names if not words.has(f"skill.about.{name}")} == set()


def attached(reply: Reply) -> list[str]:
    assert reply.card is not None
    return [block.name for block in reply.card.blocks if isinstance(block, FileBlock)]


async def test_who_may_let_it_in_gets_all_of_it_as_a_file_where_the_card_shows_only_a_part() -> (
    None
):
    short, scripted = new("short"), new("scripted")
    short = replace(short, skill=replace(short.skill, files=short.skill.files[:1]))
    long = replace(short, skill=replace(short.skill, name="long", text="x" * 4_001))
    desk = a_desk(short, scripted, long, make_listed_skill("known"))

    for name, files in (("short", []), ("scripted", ["scripted.md"]), ("long", ["long.md"])):
        assert attached(await desk.send_message(f"/skill show {name}", **OWNER)) == files
    assert attached(await desk.send_message("/skill show known", **OWNER)) == []
    assert attached(await desk.send_message("/skill show long")) == [], "a member decides nothing"


async def test_an_owner_who_uses_the_skill_for_making_skills_gets_a_draft() -> None:
    ours = make_listed_skill("skill-creator")
    ours = replace(ours, skill=replace(ours.skill, source=SkillSource.BUILTIN))
    desk = a_desk(ours)

    drafted = await desk.send_message("/skill-creator for tea", **OWNER)
    await desk.send_message("/skill-creator for tea")

    assert desk.world.skills.drafted == ["for tea"], "a member only talks about it"
    assert any(isinstance(action, SaveSkill) for action in actions(drafted))
