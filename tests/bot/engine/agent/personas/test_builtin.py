"""The nine that come with the program are complete, in both languages, and steer."""

from __future__ import annotations

import pytest

from bot.engine.agent.personas.builtin import BUILT_IN
from bot.engine.agent.personas.persona import DEFAULT, NONE
from bot.engine.agent.personas.traits import TRAITS, names_of
from bot.engine.agent.workbench import may_use
from bot.engine.llm.base import Mode
from cards.words import words_for
from storage.records.people import Language

each = pytest.mark.parametrize("name", list(BUILT_IN))


def test_there_are_nine_and_the_default_is_first() -> None:
    assert next(iter(BUILT_IN)) == DEFAULT == "pragmatist"
    assert set(BUILT_IN) == {
        *("none", "architect", "pragmatist", "perfectionist", "explorer"),
        *("tester", "reviewer", "security", "devops"),
    }


@each
def test_everybody_has_a_title_and_a_line_in_both_languages(name: str) -> None:
    persona = BUILT_IN[name]

    assert set(persona.title) == set(persona.about) == set(Language)
    assert len(set(persona.about.values())) == 2


@each
def test_all_but_none_are_told_how_to_work(name: str) -> None:
    persona = BUILT_IN[name]

    assert bool(persona.charter) is (name != NONE)
    assert set(persona.traits) == (set() if name == NONE else set(TRAITS))
    assert len(persona.charter) < 1200


def test_every_habit_has_a_name_in_both_languages() -> None:
    for language in Language:
        words = words_for(language)
        assert all(words(f"persona.trait.{trait}") for trait in TRAITS)
        assert all(words(f"persona.habit.{name}") for trait in TRAITS for name in names_of(trait))


@pytest.mark.parametrize(
    ("name", "mode"),
    [("explorer", Mode.PLAN), ("reviewer", Mode.REVIEW), ("security", Mode.REVIEW)],
)
def test_who_only_looks_gets_nothing_to_change_files_with(name: str, mode: Mode) -> None:
    persona = BUILT_IN[name]

    assert persona.works_in is mode
    assert may_use(persona, "read")
    assert not any(may_use(persona, tool) for tool in ("write", "edit"))


def test_who_does_the_work_may_use_every_tool() -> None:
    assert all(may_use(BUILT_IN["devops"], tool) for tool in ("write", "exec", "mcp__git__push"))
    assert BUILT_IN["devops"].works_in is Mode.EXECUTE
