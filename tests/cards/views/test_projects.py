"""What the cards tell of folders: whose turn it is, and how to be let in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.actions import LetIn
from cards.model import Button, Buttons, Card
from cards.render.text import render
from cards.views.work.projects import project_card
from cards.views.work.task_lists import detail_card
from cards.views.work.tasks import task_card
from cards.words import words_for
from storage.records.people import ChatId, Language
from storage.records.tasks import Task, TaskStatus, TaskView
from tests.cards.views.test_tasks import ZONE
from tests.samples import NOW, a_task, a_view

EN = words_for(Language.ENGLISH)
HOLDER = a_task("h0lder", TaskStatus.PAUSED, title="Dig the pond")
both = pytest.mark.parametrize("language", list(Language))


def in_folder(task: Task, *, branch: str = "", let_in: bool = False) -> Task:
    return replace(task, project_dir="/code/garden", branch=branch, let_in=let_in)


def waiting(task: Task, holder: Task | None = HOLDER) -> TaskView:
    return replace(a_view(task), holder=holder)


def buttons(card: Card) -> list[Button]:
    return [item for block in card.blocks if isinstance(block, Buttons) for item in block.items]


@both
def test_who_waits_for_a_folder_is_told_whose_it_is_and_may_be_let_in(
    language: Language,
) -> None:
    card = task_card(waiting(in_folder(a_task())), words_for(language), now=NOW)

    assert "Dig the pond" in render(card).text
    first = buttons(card)[0]
    assert first.action == LetIn(task_id="k3m9qa")
    assert first.confirm is not None


def test_a_git_project_needs_nobody_to_be_let_in() -> None:
    card = task_card(waiting(in_folder(a_task(), branch="shiftboss/k3m9qa")), EN, now=NOW)

    assert "Dig the pond" in render(card).text
    assert not [each for each in buttons(card) if isinstance(each.action, LetIn)]


@both
@pytest.mark.parametrize("status", [TaskStatus.PENDING, TaskStatus.RUNNING])
def test_who_was_let_in_is_told_so_and_asked_no_more(
    status: TaskStatus, language: Language
) -> None:
    view = waiting(in_folder(a_task(status=status), let_in=True), None)

    card = task_card(view, words_for(language), now=NOW)

    assert "🚪" in render(card).text
    assert not [each for each in buttons(card) if isinstance(each.action, LetIn)]


def test_what_another_chat_does_is_not_told_here() -> None:
    elsewhere = replace(HOLDER, chat_id=ChatId("c9"))

    text = render(task_card(waiting(in_folder(a_task()), elsewhere), EN, now=NOW)).text

    assert "Dig the pond" not in text
    assert "h0lder" in text


def test_nobody_is_asked_to_let_in_who_waits_for_a_slot() -> None:
    card = task_card(waiting(in_folder(a_task()), None), EN, now=NOW)

    assert not [each for each in buttons(card) if isinstance(each.action, LetIn)]


def test_the_cards_show_the_folder_and_the_branch() -> None:
    view = a_view(in_folder(a_task(status=TaskStatus.RUNNING), branch="shiftboss/k3m9qa"))

    card = render(task_card(view, EN, now=NOW)).text
    detail = render(detail_card(view, EN, now=NOW, zone=ZONE)).text

    assert "garden" in card
    assert "shiftboss/k3m9qa" in card
    assert "/code/garden" in detail
    assert "shiftboss/k3m9qa" in detail


@both
@pytest.mark.parametrize(("folder", "in_git"), [("", False), ("/code/x", True), ("/code/x", False)])
def test_the_chats_folder_is_shown(folder: str, in_git: bool, language: Language) -> None:
    words = words_for(language)

    text = render(project_card(folder, words, in_git=in_git)).text

    assert words("project.title") in text
    assert folder in text
