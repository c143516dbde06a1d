"""A running task's card shows what its step does now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.render.text import render
from cards.views.work.tasks import task_card
from cards.words import words_for
from storage.records.live import Live, LiveCall
from storage.records.people import Language
from storage.records.tasks import TaskStatus, TaskView
from tests.samples import NOW, a_task, a_view

LIVE = Live(
    path="1",
    plan=(("Look around", "completed"), ("Write it", "in_progress"), ("Test it", "pending")),
    calls=(
        LiveCall(id="a", title="Edit a.txt", good=True, diff="--- a\n+++ b\n-one\n+two\n"),
        LiveCall(id="b", title="make test"),
    ),
    used=12,
    notes=(
        (
            "backend.fell_back",
            {"name": "codex", "instead": "offline", "why": "backend.cli_missing"},
        ),
    ),
)


def shown(live: Live | None, language: Language = Language.ENGLISH) -> str:
    view: TaskView = replace(
        a_view(a_task(status=TaskStatus.RUNNING)), live=(live,) if live else ()
    )
    return render(task_card(view, words_for(language), now=NOW)).text


@pytest.mark.parametrize("language", list(Language))
def test_its_own_list_what_it_does_now_and_the_details(language: Language) -> None:
    told = shown(LIVE, language)

    assert "Look around" in told
    assert "make test" in told
    assert "12" in told
    assert "+two" in told
    assert "codex" in told
    assert "backend.cli_missing" not in told


def test_a_long_list_is_shown_from_where_it_is() -> None:
    done = tuple((f"Done {n}", "completed") for n in range(30))
    live = Live(path="1", plan=(*done, ("This one", "in_progress")))  # type: ignore[arg-type] # literals in a loop

    told = shown(live)

    assert "This one" in told
    assert "Done 29" in told
    assert "Done 1\n" not in told


def test_nothing_is_shown_where_nothing_is_told() -> None:
    assert shown(None) == shown(Live(path="1"))
