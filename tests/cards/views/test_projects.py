"""Cards about folders: which task holds one, and how to start anyway."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.actions import StartTaskAnyway
from cards.catalog import catalog_for
from cards.model import ButtonsBlock, Card, CardButton
from cards.render.text import render
from cards.views.chat import project_card
from cards.views.task_card import task_card
from cards.views.tasks import task_detail_card
from storage.records.people import ChatId, Language
from storage.records.tasks import FolderKind, Task, TaskStatus, TaskView
from tests.builders import NOW, make_task, make_view
from tests.cards.views.test_task_card import ZONE

EN = catalog_for(Language.ENGLISH)
HOLDER = make_task("h0lder", TaskStatus.PAUSED, title="Dig the pond")
both = pytest.mark.parametrize("language", list(Language))


def in_folder(task: Task, *, branch: str = "", let_in: bool = False) -> Task:
    return replace(task, project_dir="/code/garden", branch=branch, let_in=let_in)


def waiting(task: Task, holder: Task | None = HOLDER) -> TaskView:
    return replace(make_view(task), directory_holder=holder)


def buttons(card: Card) -> list[CardButton]:
    return [
        item for block in card.blocks if isinstance(block, ButtonsBlock) for item in block.items
    ]


@both
def test_who_waits_for_a_folder_is_told_whose_it_is_and_may_be_let_in(
    language: Language,
) -> None:
    card = task_card(waiting(in_folder(make_task())), catalog_for(language), now=NOW)

    assert "Dig the pond" in render(card).text
    first = buttons(card)[0]
    assert first.action == StartTaskAnyway(task_id="k3m9qa")
    assert first.confirm is not None


def test_a_git_project_needs_nobody_to_be_let_in() -> None:
    card = task_card(waiting(in_folder(make_task(), branch="shiftboss/k3m9qa")), EN, now=NOW)

    assert "Dig the pond" in render(card).text
    assert not [each for each in buttons(card) if isinstance(each.action, StartTaskAnyway)]


@both
@pytest.mark.parametrize("status", [TaskStatus.PENDING, TaskStatus.RUNNING])
def test_who_was_let_in_is_told_so_and_asked_no_more(
    status: TaskStatus, language: Language
) -> None:
    view = waiting(in_folder(make_task(status=status), let_in=True), None)

    words = catalog_for(language)
    card = task_card(view, words, now=NOW)

    told = words("folder.let_in" if status is TaskStatus.PENDING else "folder.beside")
    assert told in render(card).text
    assert not [each for each in buttons(card) if isinstance(each.action, StartTaskAnyway)]


def test_what_another_chat_does_is_not_told_here() -> None:
    elsewhere = replace(HOLDER, chat_id=ChatId("c9"))

    text = render(task_card(waiting(in_folder(make_task()), elsewhere), EN, now=NOW)).text

    assert "Dig the pond" not in text
    assert "h0lder" in text


def test_nobody_is_asked_to_let_in_who_waits_for_a_slot() -> None:
    card = task_card(waiting(in_folder(make_task()), None), EN, now=NOW)

    assert not [each for each in buttons(card) if isinstance(each.action, StartTaskAnyway)]


def test_the_cards_show_the_folder_and_the_branch() -> None:
    view = make_view(in_folder(make_task(status=TaskStatus.RUNNING), branch="shiftboss/k3m9qa"))

    card = render(task_card(view, EN, now=NOW)).text
    detail = render(task_detail_card(view, EN, now=NOW, zone=ZONE)).text

    assert "garden" in card
    assert "shiftboss/k3m9qa" in card
    assert "/code/garden" in detail
    assert "shiftboss/k3m9qa" in detail


@both
@pytest.mark.parametrize(
    ("folder", "kind"), [("", FolderKind.PLAIN), *(("/code/x", each) for each in FolderKind)]
)
def test_the_chats_folder_is_shown(folder: str, kind: FolderKind, language: Language) -> None:
    words = catalog_for(language)

    text = render(project_card(folder, words, kind=kind)).text

    assert words("project.title") in text
    assert folder in text
