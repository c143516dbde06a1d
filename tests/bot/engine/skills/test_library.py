"""Nothing is used that an owner has not seen exactly as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.skills.folder import Contents
from storage.records.workers.skills import (
    Listed,
    SkillDraft,
    SkillRefused,
    SkillSource,
    SkillState,
    WhyNoSkill,
)
from tests.bot.engine.skills.shop import Shop, write_skill
from tests.fresh_store import open_store


async def one(shop: Shop, name: str = "one", project: str = "") -> Listed:
    found = (await shop.library.shelf(project)).find(name)
    assert found is not None
    return found


async def refusal(shop: Shop, name: str = "one", project: str = "", **how: bool) -> WhyNoSkill:
    with pytest.raises(SkillRefused) as refused:
        await shop.library.open(name, project=project, **how)
    return refused.value.reason


async def test_what_comes_with_the_program_can_be_used_at_once(shop: Shop) -> None:
    loaded = await shop.library.load("Code-Review", arguments="shop.py")

    assert loaded.name == "code-review"
    assert "shop.py" in loaded.text
    assert "$ARGUMENTS" not in loaded.text


async def test_what_an_owner_has_switched_off_stays_off_also_built_in(shop: Shop) -> None:
    await shop.library.disable("test", by=shop.olga)

    assert (await one(shop, "test")).state is SkillState.DISABLED
    assert await refusal(shop, "test") is WhyNoSkill.NOT_ENABLED
    await shop.library.enable("test", "builtin", by=shop.olga)
    assert (await one(shop, "test")).usable


async def test_a_skill_dropped_in_is_new_and_not_used(shop: Shop) -> None:
    write_skill(shop.own / "one")

    assert (await one(shop)).state is SkillState.NEW
    assert await refusal(shop) is WhyNoSkill.NOT_ENABLED


async def test_an_enabled_skill_is_used_with_its_files(shop: Shop) -> None:
    write_skill(shop.own / "one", "Do it well.", files={"references/a.md": "more"})
    await shop.let_in("one")

    skill, data = await shop.library.open("one")

    assert skill.body == "Do it well."
    assert data["references/a.md"] == b"more"


async def test_consent_outlives_the_program(shop: Shop, tmp_path: Path) -> None:
    write_skill(shop.own / "one")
    await shop.let_in("one")

    async with open_store(tmp_path) as db:
        again = Shop(tmp_path, db, shop.olga)
        assert (await one(again)).usable


async def test_a_changed_file_puts_it_out_of_use_and_the_change_is_told(shop: Shop) -> None:
    skill = write_skill(shop.own / "one", "First.", files={"a": "1", "b": "2"})
    await shop.let_in("one")
    write_skill(skill, "Second.", files={"a": "3", "c": "4"})
    (skill / "b").unlink()

    listed = await one(shop)

    assert listed.state is SkillState.CHANGED
    assert await refusal(shop) is WhyNoSkill.NOT_ENABLED
    assert listed.change is not None
    assert listed.change.added == ("c",)
    assert listed.change.gone == ("b",)
    assert listed.change.altered == ("SKILL.md", "a")
    assert "-First." in listed.change.diff
    assert "+Second." in listed.change.diff


async def test_what_is_put_back_as_it_was_needs_no_new_consent(shop: Shop) -> None:
    skill = write_skill(shop.own / "one", "First.")
    await shop.let_in("one")
    write_skill(skill, "Second.")
    assert not (await one(shop)).usable
    write_skill(skill, "First.")

    assert (await one(shop)).usable


async def test_consent_is_to_a_hash_that_is_there(shop: Shop) -> None:
    skill = write_skill(shop.own / "one", "First.")
    seen = (await one(shop)).skill.hash
    write_skill(skill, "Second.")

    with pytest.raises(SkillRefused) as refused:
        await shop.library.enable("one", seen, by=shop.olga)

    assert refused.value.reason is WhyNoSkill.CHANGED
    assert (await one(shop)).state is SkillState.NEW


async def test_a_file_swapped_after_the_look_is_not_used(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(shop.own / "one", "First.")
    await shop.let_in("one")
    honest = shop.shelves.read

    def swapped(folder: Path) -> Contents:
        return replace(honest(folder), hash="0" * 64)

    monkeypatch.setattr(shop.shelves, "read", swapped)

    assert await refusal(shop) is WhyNoSkill.CHANGED


async def test_a_project_cannot_put_the_programs_skill_out_of_use(shop: Shop) -> None:
    write_skill(shop.project / "skills/test", "Do evil.")

    before = await one(shop, "test", str(shop.project))
    shelf = await shop.library.shelf(str(shop.project))
    hostile = next(each for each in shelf.skills if each.skill.source is SkillSource.WORKSPACE)
    await shop.library.enable("test", hostile.skill.hash, by=shop.olga, project=str(shop.project))
    after = await one(shop, "test", str(shop.project))

    assert before.skill.source is SkillSource.BUILTIN
    assert hostile.shadowed == before.skill.path
    assert after.skill.source is SkillSource.WORKSPACE
    assert (await one(shop, "test")).skill.source is SkillSource.BUILTIN


async def test_the_same_files_in_a_worktree_are_the_same_skill(shop: Shop, tmp_path: Path) -> None:
    write_skill(shop.project / "skills/one", "Do it.")
    await shop.let_in("one", str(shop.project))
    write_skill(tmp_path / "worktree/skills/one", "Do it.")
    write_skill(tmp_path / "other/skills/one", "Do something else.")

    assert (await one(shop, "one", str(tmp_path / "worktree"))).usable
    assert not (await one(shop, "one", str(tmp_path / "other"))).usable


async def test_who_may_call_for_it_is_kept_to(shop: Shop) -> None:
    write_skill(shop.own / "person", front="disable-model-invocation: true\n")
    write_skill(shop.own / "model", front="user-invocable: false\n")
    await shop.let_in("person")
    await shop.let_in("model")

    assert await refusal(shop, "person", by_model=True) is WhyNoSkill.PERSON_ONLY
    assert await refusal(shop, "model", by_model=False) is WhyNoSkill.MODEL_ONLY
    await shop.library.open("person", by_model=False)
    await shop.library.open("model", by_model=True)


async def test_what_lacks_something_says_what(shop: Shop) -> None:
    write_skill(shop.own / "one", front="metadata: {openclaw: {requires: {bins: [jq]}}}\n")
    await shop.let_in("one")

    with pytest.raises(SkillRefused) as refused:
        await shop.library.load("one")

    assert (refused.value.reason, refused.value.detail) == (WhyNoSkill.LACKS, "jq")


async def test_a_bad_skill_and_none_at_all_are_told_apart(shop: Shop) -> None:
    (shop.own / "bad").mkdir(parents=True)
    (shop.own / "bad/SKILL.md").write_text("x")

    assert await refusal(shop, "bad") is WhyNoSkill.BAD
    assert await refusal(shop, "none") is WhyNoSkill.UNKNOWN


async def test_a_draft_is_kept_as_it_was_shown_and_is_enabled(shop: Shop) -> None:
    text = "---\nname: one\ndescription: Does it.\n---\n\nDo it.\n"

    first = await shop.library.save(SkillDraft(name="one", text=text), by=shop.olga)
    again = await shop.library.save(SkillDraft(name="one", text=text), by=shop.olga)

    assert (shop.own / "one/SKILL.md").read_text() == text
    assert first == again
    assert (await one(shop)).usable
    assert [each.name for each in shop.own.iterdir()] == ["one"]


async def test_a_draft_never_takes_the_place_of_another_skill(shop: Shop) -> None:
    write_skill(shop.own / "one", "Mine.")
    (shop.own / "two").mkdir()
    (shop.own / "two/notes.md").write_text("Mine.")

    for name in ("one", "two"):
        text = f"---\nname: {name}\ndescription: x\n---\nTheirs.\n"
        with pytest.raises(SkillRefused) as refused:
            await shop.library.save(SkillDraft(name=name, text=text), by=shop.olga)
        assert refused.value.reason is WhyNoSkill.EXISTS

    assert "Mine." in (shop.own / "one/SKILL.md").read_text()
    assert sorted(each.name for each in shop.own.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".", "A B"])
async def test_a_draft_cannot_be_saved_elsewhere(shop: Shop, name: str) -> None:
    text = f"---\nname: '{name}'\ndescription: x\n---\nx\n"

    with pytest.raises(SkillRefused):
        await shop.library.save(SkillDraft(name=name, text=text), by=shop.olga)

    assert not shop.home.exists() or list(shop.home.rglob("SKILL.md")) == []


async def test_words_propose_only_what_was_let_in(shop: Shop) -> None:
    write_skill(shop.own / "one", front="triggers: [weekly report]\n")

    assert await shop.library.triggered("my weekly report") is None
    await shop.let_in("one")
    found = await shop.library.triggered("my weekly report")

    assert found is not None
    assert found.name == "one"
