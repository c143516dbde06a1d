"""The nine that come with the program are complete, in both languages, and steer."""

from __future__ import annotations

import pytest

from bot.engine.agent.worker_context import is_tool_allowed
from bot.engine.llm.backend import WorkerMode
from bot.engine.workers.personas import BUILT_IN_PERSONAS, TRAITS, trait_values
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.workers import DEFAULT_PERSONA, NO_PERSONA

each = pytest.mark.parametrize("name", list(BUILT_IN_PERSONAS))


def test_there_are_nine_and_the_default_is_first() -> None:
    assert next(iter(BUILT_IN_PERSONAS)) == DEFAULT_PERSONA == "pragmatist"
    assert set(BUILT_IN_PERSONAS) == {
        *("none", "architect", "pragmatist", "perfectionist", "explorer"),
        *("tester", "reviewer", "security", "devops"),
    }


@each
def test_everybody_has_a_title_and_a_line_in_both_languages(name: str) -> None:
    persona = BUILT_IN_PERSONAS[name]

    assert set(persona.title) == set(persona.about) == set(Language)
    assert len(set(persona.about.values())) == 2


@each
def test_all_but_none_are_told_how_to_work(name: str) -> None:
    persona = BUILT_IN_PERSONAS[name]

    assert bool(persona.system_text) is (name != NO_PERSONA)
    assert set(persona.traits) == (set() if name == NO_PERSONA else set(TRAITS))
    assert len(persona.system_text) < 1200


def test_every_habit_has_a_name_in_both_languages() -> None:
    for language in Language:
        words = catalog_for(language)
        assert all(words(f"persona.trait.{trait}") for trait in TRAITS)
        assert all(
            words(f"persona.habit.{name}") for trait in TRAITS for name in trait_values(trait)
        )


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("explorer", WorkerMode.PLAN),
        ("reviewer", WorkerMode.REVIEW),
        ("security", WorkerMode.REVIEW),
    ],
)
def test_who_only_looks_gets_nothing_to_change_files_with(name: str, mode: WorkerMode) -> None:
    persona = BUILT_IN_PERSONAS[name]

    assert persona.default_mode is mode
    assert is_tool_allowed(persona, "read")
    assert not any(is_tool_allowed(persona, tool) for tool in ("write", "edit"))


def test_who_does_the_work_may_use_every_tool() -> None:
    assert all(
        is_tool_allowed(BUILT_IN_PERSONAS["devops"], tool)
        for tool in ("write", "exec", "mcp__git__push")
    )
    assert BUILT_IN_PERSONAS["devops"].default_mode is WorkerMode.EXECUTE
