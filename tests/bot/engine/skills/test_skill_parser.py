"""Valid forms of SKILL.md, and the errors its author gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.skills.skill_parser import ParsedSkill, SkillRequirements, parse_skill

FRONT = "name: weekly-report\ndescription: Writes the weekly report.\n"


def read(front: str = FRONT, body: str = "Do it.", folder: str = "weekly-report") -> ParsedSkill:
    return parse_skill(f"---\n{front}---\n{body}\n", folder)


def faults(written: ParsedSkill) -> list[str]:
    return [each.key for each in written.faults]


def notes(written: ParsedSkill) -> list[str]:
    return [each.key for each in written.notes]


def test_the_six_keys_of_the_standard_are_understood() -> None:
    written = read(
        FRONT + "license: MIT\ncompatibility: needs git\nallowed-tools: Bash Read\n"
        "metadata:\n  author: ann\n"
    )

    assert written.faults == ()
    assert (written.name, written.license) == ("weekly-report", "MIT")
    assert written.compatibility == "needs git"
    assert written.body == "Do it."
    assert written.ignored == ("allowed-tools", "metadata.author")


def test_keys_of_other_programs_are_used_or_said_to_be_ignored() -> None:
    written = read(
        FRONT + "disable-model-invocation: true\nuser-invocable: 'no'\nargument-hint: '[week]'\n"
        "model: opus\ncontext: fork\nhooks:\n  Stop: x\n"
    )

    assert written.faults == ()
    assert (written.by_model, written.by_person) == (False, False)
    assert written.argument_hint == "[week]"
    assert written.ignored == ("model", "context", "hooks")


@pytest.mark.parametrize("alias", ["openclaw", "clawdbot", "clawdis"])
@pytest.mark.parametrize("as_json", [True, False])
def test_what_openclaw_says_is_understood_as_a_map_and_as_a_line_of_json(
    alias: str, as_json: bool
) -> None:
    claw: dict[str, Any] = {
        "emoji": "🦞",
        "os": ["linux", "darwin"],
        "requires": {
            "bins": ["git"],
            "anyBins": ["npm", "pnpm"],
            "env": ["KEY"],
            "config": ["a.b"],
        },
        "install": [{"kind": "brew", "formula": "evil"}],
    }
    value = json.dumps({alias: claw}, ensure_ascii=False)
    metadata = f"metadata: '{value}'\n" if as_json else f"metadata: {value}\n"

    written = read(FRONT + metadata)

    assert written.faults == ()
    assert written.emoji == "🦞"
    assert written.requires == SkillRequirements(
        bins=("git",),
        any_bins=("npm", "pnpm"),
        env=("KEY",),
        config=("a.b",),
        os=("linux", "darwin"),
    )
    assert "metadata.openclaw.install" in written.ignored


@pytest.mark.parametrize(
    "front",
    [
        "triggers: [weekly report, 周报]\n",
        "triggers: weekly report, 周报\n",
        "triggers: weekly report、周报\n",
        "metadata:\n  boss:\n    triggers: [weekly report, 周报]\n",
        "metadata:\n  shiftboss:\n    triggers: weekly report, 周报\n",
    ],
)
def test_triggers_stand_at_the_top_or_under_metadata(front: str) -> None:
    assert read(FRONT + front).triggers == ("weekly report", "周报")


def test_a_missing_name_is_the_folders() -> None:
    written = read("description: Does it.\n", folder="my-skill")

    assert (written.name, written.faults) == ("my-skill", ())


@pytest.mark.parametrize(
    ("name", "meant"), [("Weekly_Report", "weekly-report"), ("周报", "周报"), ("ＡＢ", "ab")]
)
def test_a_name_is_read_as_it_is_meant(name: str, meant: str) -> None:
    written = read(f"name: {name}\ndescription: x\n", folder=meant)

    assert (written.name, faults(written)) == (meant, [])


@pytest.mark.parametrize("name", ["-a", "a--b", "a-", "a/b", "../x", "a" * 65, "a.b", "🙂"])
def test_a_name_that_is_none_is_a_fault(name: str) -> None:
    assert faults(read(f"name: '{name}'\ndescription: x\n")) == ["bad_name"]


def test_all_faults_of_a_file_are_told_at_once() -> None:
    written = read(
        "name: a--b\ntriggers: {a: b}\nuser-invocable: maybe\nmetadata: nonsense\nlicense: [x]\n",
        body=" ",
    )

    assert set(faults(written)) == {
        "bad_name",
        "no_description",
        "not_a_list",
        "not_yes_or_no",
        "not_a_map",
        "not_text",
        "no_body",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no_front"),
        ("# no front matter", "no_front"),
        ("---\nname: x", "open_front"),
        ("---\nname: [x\n---\nb", "yaml"),
        ("---\n- a\n- b\n---\nb", "yaml"),
        ("---\na: &a [x]\nb: *a\n---\nb", "yaml"),
        ("---\nname: " + "[" * 2000 + "\n---\nb", "yaml"),
        ("---\nname: " + "x" * 20_000 + "\n---\nb", "long_front"),
    ],
)
def test_front_matter_that_is_none_is_explained(text: str, fault: str) -> None:
    written = parse_skill(text, "my-skill")

    assert fault in faults(written)
    assert all(each.detail for each in written.faults if each.key == "yaml")


def test_a_fault_in_the_yaml_names_the_line_of_the_file() -> None:
    (fault,) = (each for each in read("name: x\ndescription: [a\n").faults if each.key == "yaml")

    assert fault.detail.startswith("line ")


def test_a_value_with_a_colon_is_understood_without_quotes() -> None:
    written = read("name: weekly-report\ndescription: Use it when: a week ends # or so\n")

    assert written.description == "Use it when: a week ends # or so"
    assert notes(written) == ["unquoted"]


def test_what_is_too_long_is_cut_and_told() -> None:
    written = read(f"name: weekly-report\ndescription: {'x' * 1100}\n", body="line\n" * 501)

    assert written.faults == ()
    assert len(written.description) == 1024
    assert notes(written) == ["long_description", "long_body"]


def test_invisible_characters_are_told() -> None:
    assert "hidden" in notes(read(body="Do it.\u200b\U000e0041"))


@given(st.text(max_size=400), st.text(max_size=20))
def test_any_text_at_all_is_read_or_has_faults(text: str, folder: str) -> None:
    written = parse_skill(text, folder)

    assert written.faults or written.name


_values = st.recursive(
    st.text(max_size=12) | st.booleans() | st.none() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_keys = st.sampled_from(
    (
        "name",
        "description",
        "metadata",
        "triggers",
        "license",
        "compatibility",
        "hooks",
        "user-invocable",
        "disable-model-invocation",
        "argument-hint",
        "allowed-tools",
    )
)


@given(st.dictionaries(_keys, _values, max_size=8), st.booleans())
def test_any_front_matter_is_read_or_has_faults(front: dict[str, Any], claw: bool) -> None:
    if claw:
        front = {**front, "metadata": {"openclaw": front.get("metadata")}}
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())

    written = read(lines)

    assert written.faults or (written.name and written.description)
    for text in (written.name, written.description, *written.triggers, *written.ignored):
        text.encode()
