"""Skills are found in the right folders; bad folders are reported and harmless."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.skills import skill_paths as reading
from bot.engine.skills.skill_parser import SkillRequirements
from bot.engine.skills.skill_paths import BUILTIN_FOLDER, HostEnvironment, SkillPaths, load_skill
from storage.records.skills import InvalidSkill, MissingRequirement, Skill, SkillSource
from tests.bot.engine.skills.builders import BARE_HOST, write_skill


@pytest.fixture
def shelves(tmp_path: Path) -> SkillPaths:
    return SkillPaths(home=tmp_path / "home", user_home=tmp_path / "user", host=BARE_HOST)


def names(shelves: SkillPaths, project: Path | None = None) -> list[tuple[str, str]]:
    return [
        (each.name, each.source)
        for each in shelves.scan(project).skills
        if each.source is not SkillSource.BUILTIN
    ]


def test_a_project_comes_before_the_boss_and_the_boss_before_the_program(
    tmp_path: Path, shelves: SkillPaths
) -> None:
    project = tmp_path / "project"
    for place in (
        project / ".claude/skills",
        project / "skills",
        tmp_path / "user/.agents/skills",
        project / ".agents/skills",
        tmp_path / "home/skills",
    ):
        write_skill(place / "same", body=str(place))

    found = [each for each in shelves.scan(project).skills if each.name in {"same", "test"}]

    assert [Path(each.path).parent.relative_to(tmp_path).as_posix() for each in found[:-1]] == [
        "project/skills",
        "project/.agents/skills",
        "project/.claude/skills",
        "home/skills",
        "user/.agents/skills",
    ]
    assert found[-1].source is SkillSource.BUILTIN


def test_a_bad_folder_is_told_and_the_others_are_there(tmp_path: Path, shelves: SkillPaths) -> None:
    write_skill(tmp_path / "home/skills/good")
    bad = tmp_path / "home/skills/bad"
    bad.mkdir()
    (bad / "SKILL.md").write_text("nothing")
    (tmp_path / "home/skills/no-skill").mkdir()
    (tmp_path / "home/skills/file").write_text("x")

    found = shelves.scan()

    assert names(shelves) == [("good", "user")]
    assert [(each.path, [f.key for f in each.errors]) for each in found.bad] == [
        (str(bad), ["no_front"])
    ]


def test_what_is_dropped_in_changed_or_mended_is_there_at_the_next_look(
    tmp_path: Path, shelves: SkillPaths
) -> None:
    assert names(shelves) == []
    skill = write_skill(tmp_path / "home/skills/one")
    first = shelves.scan().skills[0].hash
    (skill / "SKILL.md").write_text("broken")
    broken = shelves.scan().bad
    write_skill(skill, "Otherwise.")

    assert [each.name for each in broken] == ["one"]
    assert names(shelves) == [("one", "user")]
    assert shelves.scan().skills[0].hash != first


def test_a_file_that_has_not_changed_is_not_read_again(
    tmp_path: Path, shelves: SkillPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "home/skills/one")
    before = shelves.scan()

    def never(folder: Path) -> None:
        raise AssertionError(folder)

    monkeypatch.setattr(reading, "read_folder", never)

    assert shelves.scan() == before


def test_a_project_cannot_lead_out_of_itself(tmp_path: Path, shelves: SkillPaths) -> None:
    write_skill(tmp_path / "elsewhere/one")
    one, two = tmp_path / "first", tmp_path / "second"
    (one / "skills").mkdir(parents=True)
    (one / "skills/one").symlink_to(tmp_path / "elsewhere/one")
    two.mkdir()
    (two / "skills").symlink_to(tmp_path / "elsewhere")

    assert names(shelves, one) == []
    assert [each.errors[0].key for each in shelves.scan(one).bad] == ["link"]
    assert names(shelves, two) == []


def test_there_is_a_most_and_what_comes_with_the_program_is_always_there(
    tmp_path: Path, shelves: SkillPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_SKILLS", 2)
    for name in "abc":
        write_skill(tmp_path / "home/skills" / name)

    found = shelves.scan()

    assert names(shelves) == [("a", "user"), ("b", "user")]
    assert found.left_out == 1
    assert len(found.skills) == 2 + len(list(BUILTIN_FOLDER.iterdir()))


def test_what_a_machine_lacks_is_told_by_kind_and_name() -> None:
    needs = SkillRequirements(
        bins=("git", "jq", "/bin/sh"),
        any_bins=("npm", "pnpm"),
        env=("KEY",),
        config=("browser.on",),
        os=("macos",),
    )

    assert BARE_HOST.missing_requirements(needs) == (
        MissingRequirement(key="os", names=("macos",)),
        MissingRequirement(key="bins", names=("jq", "/bin/sh")),
        MissingRequirement(key="any_bins", names=("npm", "pnpm")),
        MissingRequirement(key="env", names=("KEY",)),
        MissingRequirement(key="config", names=("browser.on",)),
    )
    assert (
        BARE_HOST.missing_requirements(
            SkillRequirements(bins=("git",), any_bins=("npm", "git"), os=("linux",))
        )
        == ()
    )


def test_what_was_missing_is_looked_for_each_time(tmp_path: Path) -> None:
    env: dict[str, str] = {}
    shelves = SkillPaths(home=tmp_path, host=HostEnvironment(env=env, platform="linux"))
    claw = "metadata: {openclaw: {requires: {env: [SOME_KEY]}}}\n"
    write_skill(tmp_path / "skills/one", front=claw)

    before = shelves.scan().skills[0].missing_requirements
    env["SOME_KEY"] = "x"

    assert before == (MissingRequirement(key="env", names=("SOME_KEY",)),)
    assert shelves.scan().skills[0].missing_requirements == ()


def test_one_folder_can_be_checked_alone(tmp_path: Path) -> None:
    assert isinstance(load_skill(write_skill(tmp_path / "one")), Skill)
    assert isinstance(load_skill(tmp_path), InvalidSkill)


def test_the_programs_own_skills_are_good_and_called_for_in_both_languages() -> None:
    found = SkillPaths(home=Path("/nowhere")).scan()

    assert [each.name for each in found.skills] == [
        "code-review",
        "explain",
        "refactor",
        "skill-creator",
        "summarise",
        "test",
    ]
    assert found.bad == ()
    for each in found.skills:
        assert (each.notes, each.ignored, each.missing_requirements) == ((), (), ())
        assert any(trigger.isascii() for trigger in each.triggers)
        assert any(not trigger.isascii() for trigger in each.triggers)
        assert "$ARGUMENTS" in each.body
        assert each.body.count("\n") < 60


@pytest.mark.parametrize("folder", sorted(BUILTIN_FOLDER.iterdir()), ids=lambda path: path.name)
def test_the_programs_own_skills_keep_to_the_standard(folder: Path) -> None:
    validator = pytest.importorskip("skills_ref.validator", reason="a linter for development")

    assert validator.validate(folder) == []
