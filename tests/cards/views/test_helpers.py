"""A task's card says which helpers its worker has sent off, and that it waits for them."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from cards.render.text import render
from cards.views.work.task_lists import detail_card
from cards.views.work.tasks import task_card
from cards.words import words_for
from storage.records.helping import HELPERS_WORK, HelperLine, HelperStatus
from storage.records.people import Language
from storage.records.tasks import TaskStatus, TaskView
from tests.samples import NOW, a_task, a_view


def view_of(status: TaskStatus, *helpers: HelperLine, reason: str = "") -> TaskView:
    task = replace(a_task(status=status), status_reason=reason)
    return replace(a_view(task), helpers=helpers)


def lines() -> tuple[HelperLine, ...]:
    return tuple(HelperLine(label=f"about {each}", status=each) for each in HelperStatus)


@pytest.mark.parametrize("language", list(Language))
def test_each_is_shown_with_where_it_is(language: Language) -> None:
    words = words_for(language)
    view = view_of(TaskStatus.RUNNING, *lines())
    for card in (
        task_card(view, words, now=NOW),
        detail_card(view, words, now=NOW, zone=ZoneInfo("UTC")),
    ):
        told = render(card).text
        for status in HelperStatus:
            assert f"about {status}" in told
            assert words(f"helpers.status.{status}") in told


@pytest.mark.parametrize("language", list(Language))
def test_who_waits_for_helpers_waits_for_no_decision(language: Language) -> None:
    words = words_for(language)
    view = view_of(TaskStatus.WAITING, *lines(), reason=HELPERS_WORK)

    told = render(task_card(view, words, now=NOW)).text

    assert words(HELPERS_WORK) in told
    assert HELPERS_WORK not in told
    assert words("task.waiting") not in told


def test_many_are_counted() -> None:
    words = words_for(Language.ENGLISH)
    many = [HelperLine(label=f"number {n}.", status=HelperStatus.DONE) for n in range(13)]

    told = render(task_card(view_of(TaskStatus.RUNNING, *many), words, now=NOW)).text

    assert "and 3 more" in told
    assert "number 12." in told
    assert "number 2." not in told
