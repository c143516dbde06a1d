"""Nothing is used that an owner has not seen exactly as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.skills.skill_library import match_trigger
from bot.engine.skills.skill_paths import SkillContents
from storage.records.skills import (
    MissingRequirement,
    SkillDraft,
    SkillListing,
    SkillRefusalReason,
    SkillRefused,
    SkillSource,
    SkillState,
)
from tests.bot.engine.skills.builders import SkillSetup, write_skill
from tests.fakes.skills import make_listed_skill
from tests.migrated_database import open_database


async def find_skill(shop: SkillSetup, name: str = "one", project: str = "") -> SkillListing:
    found = (await shop.library.list_skills(project)).find(name)
    assert found is not None
    return found


async def refusal_reason(
    shop: SkillSetup, name: str = "one", project: str = "", **how: bool
) -> SkillRefusalReason:
    with pytest.raises(SkillRefused) as refused:
        await shop.library.open(name, project=project, **how)
    return refused.value.reason


async def test_what_comes_with_the_program_can_be_used_at_once(shop: SkillSetup) -> None:
    loaded = await shop.library.load("Code-Review", arguments="shop.py")

    assert loaded.name == "code-review"
    assert "shop.py" in loaded.text
    assert "$ARGUMENTS" not in loaded.text


async def test_what_an_owner_has_switched_off_stays_off_also_built_in(shop: SkillSetup) -> None:
    await shop.library.disable("test", by=shop.olga)

    assert (await find_skill(shop, "test")).state is SkillState.DISABLED
    assert await refusal_reason(shop, "test") is SkillRefusalReason.NOT_ENABLED
    await shop.library.enable("test", "builtin", by=shop.olga)
    assert (await find_skill(shop, "test")).usable


async def test_a_skill_dropped_in_is_new_and_not_used(shop: SkillSetup) -> None:
    write_skill(shop.user_folder / "one")

    assert (await find_skill(shop)).state is SkillState.NEW
    assert await refusal_reason(shop) is SkillRefusalReason.NOT_ENABLED


async def test_an_enabled_skill_is_used_with_its_files(shop: SkillSetup) -> None:
    write_skill(shop.user_folder / "one", "Do it well.", files={"references/a.md": "more"})
    await shop.enable("one")

    skill, data = await shop.library.open("one")

    assert skill.body == "Do it well."
    assert data["references/a.md"] == b"more"


async def test_consent_outlives_the_program(shop: SkillSetup, tmp_path: Path) -> None:
    write_skill(shop.user_folder / "one")
    await shop.enable("one")

    async with open_database(tmp_path) as db:
        again = SkillSetup(tmp_path, db, shop.olga)
        assert (await find_skill(again)).usable


async def test_a_changed_file_puts_it_out_of_use_and_the_change_is_told(shop: SkillSetup) -> None:
    skill = write_skill(shop.user_folder / "one", "First.", files={"a": "1", "b": "2"})
    await shop.enable("one")
    write_skill(skill, "Second.", files={"a": "3", "c": "4"})
    (skill / "b").unlink()

    listed = await find_skill(shop)

    assert listed.state is SkillState.CHANGED
    assert await refusal_reason(shop) is SkillRefusalReason.NOT_ENABLED
    assert listed.change is not None
    assert listed.change.added == ("c",)
    assert listed.change.removed == ("b",)
    assert listed.change.changed == ("SKILL.md", "a")
    assert "-First." in listed.change.diff
    assert "+Second." in listed.change.diff


async def test_what_is_put_back_as_it_was_needs_no_new_consent(shop: SkillSetup) -> None:
    skill = write_skill(shop.user_folder / "one", "First.")
    await shop.enable("one")
    write_skill(skill, "Second.")
    assert not (await find_skill(shop)).usable
    write_skill(skill, "First.")

    assert (await find_skill(shop)).usable


async def test_consent_is_to_a_hash_that_is_there(shop: SkillSetup) -> None:
    skill = write_skill(shop.user_folder / "one", "First.")
    seen = (await find_skill(shop)).skill.hash
    write_skill(skill, "Second.")

    with pytest.raises(SkillRefused) as refused:
        await shop.library.enable("one", seen, by=shop.olga)

    assert refused.value.reason is SkillRefusalReason.CHANGED
    assert (await find_skill(shop)).state is SkillState.NEW


async def test_a_file_swapped_after_the_look_is_not_used(
    shop: SkillSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(shop.user_folder / "one", "First.")
    await shop.enable("one")
    honest = shop.paths.read_contents

    def swapped(folder: Path) -> SkillContents:
        return replace(honest(folder), hash="0" * 64)

    monkeypatch.setattr(shop.paths, "read_contents", swapped)

    assert await refusal_reason(shop) is SkillRefusalReason.CHANGED


async def test_a_project_cannot_put_the_programs_skill_out_of_use(shop: SkillSetup) -> None:
    write_skill(shop.project / "skills/test", "Do evil.")

    before = await find_skill(shop, "test", str(shop.project))
    shelf = await shop.library.list_skills(str(shop.project))
    hostile = next(each for each in shelf.skills if each.skill.source is SkillSource.WORKSPACE)
    await shop.library.enable("test", hostile.skill.hash, by=shop.olga, project=str(shop.project))
    after = await find_skill(shop, "test", str(shop.project))

    assert before.skill.source is SkillSource.BUILTIN
    assert hostile.shadowed_by == before.skill.path
    assert after.skill.source is SkillSource.WORKSPACE
    assert (await find_skill(shop, "test")).skill.source is SkillSource.BUILTIN


async def test_the_same_files_in_a_worktree_are_the_same_skill(
    shop: SkillSetup, tmp_path: Path
) -> None:
    write_skill(shop.project / "skills/one", "Do it.")
    await shop.enable("one", str(shop.project))
    write_skill(tmp_path / "worktree/skills/one", "Do it.")
    write_skill(tmp_path / "other/skills/one", "Do something else.")

    assert (await find_skill(shop, "one", str(tmp_path / "worktree"))).usable
    assert not (await find_skill(shop, "one", str(tmp_path / "other"))).usable


async def test_who_may_call_for_it_is_kept_to(shop: SkillSetup) -> None:
    write_skill(shop.user_folder / "person", front="disable-model-invocation: true\n")
    write_skill(shop.user_folder / "model", front="user-invocable: false\n")
    await shop.enable("person")
    await shop.enable("model")

    assert await refusal_reason(shop, "person", by_model=True) is SkillRefusalReason.PERSON_ONLY
    assert await refusal_reason(shop, "model", by_model=False) is SkillRefusalReason.MODEL_ONLY
    await shop.library.open("person", by_model=False)
    await shop.library.open("model", by_model=True)


async def test_what_lacks_something_says_what(shop: SkillSetup) -> None:
    write_skill(shop.user_folder / "one", front="metadata: {openclaw: {requires: {bins: [jq]}}}\n")
    await shop.enable("one")

    with pytest.raises(SkillRefused) as refused:
        await shop.library.load("one")

    assert (refused.value.reason, refused.value.detail) == (SkillRefusalReason.LACKS, "jq")


async def test_a_bad_skill_and_none_at_all_are_told_apart(shop: SkillSetup) -> None:
    (shop.user_folder / "bad").mkdir(parents=True)
    (shop.user_folder / "bad/SKILL.md").write_text("x")

    assert await refusal_reason(shop, "bad") is SkillRefusalReason.BAD
    assert await refusal_reason(shop, "none") is SkillRefusalReason.UNKNOWN


async def test_a_draft_is_kept_as_it_was_shown_and_is_enabled(shop: SkillSetup) -> None:
    text = "---\nname: one\ndescription: Does it.\n---\n\nDo it.\n"

    first = await shop.library.save(SkillDraft(name="one", text=text), by=shop.olga)
    again = await shop.library.save(SkillDraft(name="one", text=text), by=shop.olga)

    assert (shop.user_folder / "one/SKILL.md").read_text() == text
    assert first == again
    assert (await find_skill(shop)).usable
    assert [each.name for each in shop.user_folder.iterdir()] == ["one"]


async def test_a_draft_never_takes_the_place_of_another_skill(shop: SkillSetup) -> None:
    write_skill(shop.user_folder / "one", "Mine.")
    (shop.user_folder / "two").mkdir()
    (shop.user_folder / "two/notes.md").write_text("Mine.")

    for name in ("one", "two"):
        text = f"---\nname: {name}\ndescription: x\n---\nTheirs.\n"
        with pytest.raises(SkillRefused) as refused:
            await shop.library.save(SkillDraft(name=name, text=text), by=shop.olga)
        assert refused.value.reason is SkillRefusalReason.EXISTS

    assert "Mine." in (shop.user_folder / "one/SKILL.md").read_text()
    assert sorted(each.name for each in shop.user_folder.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".", "A B"])
async def test_a_draft_cannot_be_saved_elsewhere(shop: SkillSetup, name: str) -> None:
    text = f"---\nname: '{name}'\ndescription: x\n---\nx\n"

    with pytest.raises(SkillRefused):
        await shop.library.save(SkillDraft(name=name, text=text), by=shop.olga)

    assert not shop.home.exists() or list(shop.home.rglob("SKILL.md")) == []


async def test_words_propose_only_what_was_let_in(shop: SkillSetup) -> None:
    write_skill(shop.user_folder / "one", front="triggers: [weekly report]\n")

    assert await shop.library.find_triggered("my weekly report") is None
    await shop.enable("one")
    found = await shop.library.find_triggered("my weekly report")

    assert found is not None
    assert found.name == "one"


def triggered_name(text: str, *skills: SkillListing) -> str:
    found = match_trigger(text, skills)
    return found.skill.name if found else ""


@pytest.mark.parametrize(
    ("trigger", "text", "calls"),
    [
        ("/test", "/test the shop", True),
        ("/test", "/testing the shop", False),
        ("/test", "see tmp/test", False),
        ("test", "please test it", True),
        ("test", "Test!", True),
        ("test", "the latest", False),
        ("test", "contested", False),
        ("test", "请test一下", True),
        ("code review", "a code\n review, please", True),
        ("code review", "a code reviewer", False),
        ("代码审查", "帮我做代码审查吧", True),
        ("代码审查", "审查代码", False),
        ("c++", "write c++ now", True),
        ("été", "c'est l'été", True),
        ("été", "étés", False),
    ],
)
def test_words_count_whole_and_chinese_wherever_it_stands(
    trigger: str, text: str, calls: bool
) -> None:
    assert bool(triggered_name(text, make_listed_skill("one", triggers=(trigger,)))) is calls


def test_the_longest_trigger_wins() -> None:
    short = make_listed_skill("short", triggers=("review",))
    long = make_listed_skill("long", triggers=("code review",))

    assert triggered_name("a code review", short, long) == "long"
    assert triggered_name("a review", short, long) == "short"


def test_only_what_can_be_used_is_proposed() -> None:
    usable = make_listed_skill("one", triggers=("report",))
    lacking = replace(
        usable,
        skill=replace(
            usable.skill, missing_requirements=(MissingRequirement(key="bins", names=("x",)),)
        ),
    )
    models_only = replace(usable, skill=replace(usable.skill, person_may_load=False))

    assert triggered_name("a report", usable) == "one"
    assert triggered_name("a report", replace(usable, state=SkillState.NEW)) == ""
    assert triggered_name("a report", replace(usable, shadowed_by="/elsewhere")) == ""
    assert triggered_name("a report", lacking) == ""
    assert triggered_name("a report", models_only) == ""
