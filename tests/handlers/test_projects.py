"""Which folder tasks work in: chosen by owners, for a chat or for one task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.actions import StartTask, SubmitTaskForm
from storage.records.people import ChatId
from tests.handlers.router_harness import RouterHarness, text_of


def desk_with(**folders: bool) -> RouterHarness:
    desk = RouterHarness()
    desk.world.projects.folders = {f"/code/{name}": git for name, git in folders.items()}
    return desk


def choose(desk: RouterHarness, chat: str, folder: str) -> None:
    known = desk.world.people.chats[ChatId(chat)]
    settings = replace(known.settings, project=folder)
    desk.world.people.chats[ChatId(chat)] = replace(known, settings=settings)


@pytest.mark.parametrize(
    "text",
    [
        "/run -d /code/shop -p urgent mend it",
        "/run -p urgent -d /code/shop mend it",
        "/run --dir=/code/shop --priority urgent mend it",
        '/run -d "/code/shop" -p 紧急 mend it',
    ],
)
async def test_an_owner_names_the_folder_of_one_task_in_any_order(text: str) -> None:
    desk = desk_with(shop=True)

    await desk.send_message(text, who="x-olga", chat="c0")

    new = desk.world.tasks.created[0]
    assert (new.instruction, new.priority, new.project_dir, new.in_git) == (
        "mend it",
        "urgent",
        "/code/shop",
        True,
    )


@pytest.mark.parametrize(("folder", "told"), [("shop", "full path"), ("/code/none", "No such")])
async def test_a_folder_that_cannot_be_worked_in_makes_no_task(folder: str, told: str) -> None:
    desk = desk_with(shop=True)

    reply = await desk.send_message(f"/run -d {folder} mend it", who="x-olga", chat="c0")

    assert told in text_of(reply)
    assert desk.world.tasks.created == []


async def test_a_member_may_not_choose_a_folder_but_uses_the_chats() -> None:
    desk = desk_with(shop=False)
    choose(desk, "c1", "/code/shop")

    for text in ("/run -d /code/shop mend it", "/project /code/shop", "/project none"):
        assert "owner" in text_of(await desk.send_message(text)), text
    assert desk.world.tasks.created == []
    await desk.send_message("/run mend it")

    new = desk.world.tasks.created[0]
    assert (new.project_dir, new.in_git) == ("/code/shop", False)
    assert "/code/shop" in text_of(await desk.send_message("/project"))


async def test_a_chats_project_is_shown_chosen_and_forgotten() -> None:
    desk = desk_with(shop=True, notes=False)

    assert "/project PATH" in text_of(await desk.send_message("/project", who="x-olga", chat="c0"))
    assert "branch" in text_of(
        await desk.send_message("/project /code/shop", who="x-olga", chat="c0")
    )
    assert "keeps the folder" in text_of(
        await desk.send_message("/项目 /code/notes", who="x-olga", chat="c0")
    )
    chat = desk.world.people.chats[ChatId("c0")]
    assert chat.settings.project == "/code/notes"
    assert (await desk.send_message("/project", who="x-olga", chat="c0")).data == {
        "project": "/code/notes",
        "in_git": False,
    }
    await desk.send_message("/project 无", who="x-olga", chat="c0")
    assert not desk.world.people.chats[ChatId("c0")].settings.project


async def test_choosing_a_model_keeps_the_project() -> None:
    desk = desk_with(shop=True)
    await desk.send_message("/project /code/shop", who="x-olga", chat="c0")

    await desk.send_message("/model opus", who="x-olga", chat="c0")

    assert desk.world.people.chats[ChatId("c0")].settings.project == "/code/shop"


@pytest.mark.parametrize("action", [StartTask(text="mend it"), SubmitTaskForm()])
async def test_tasks_made_by_button_work_in_the_chats_project(
    action: StartTask | SubmitTaskForm,
) -> None:
    desk = desk_with(shop=True)
    choose(desk, "c1", "/code/shop")

    await desk.press(desk.world.post.add_button_card(action), form={"text": "mend it"})

    new = desk.world.tasks.created[0]
    assert (new.project_dir, new.in_git) == ("/code/shop", True)


async def test_a_chats_project_that_has_gone_is_told_instead_of_working_elsewhere() -> None:
    desk = desk_with()
    choose(desk, "c1", "/code/shop")

    reply = await desk.send_message("/run mend it")

    assert "No such folder" in text_of(reply)
    assert desk.world.tasks.created == []


async def test_a_repository_that_tasks_may_have_made_is_used_after_an_owner_adopts_it() -> None:
    desk = desk_with(shop=True)
    desk.world.projects.not_adopted.add("/code/shop")
    choose(desk, "c1", "/code/shop")

    await desk.send_message("/run mend it")
    refused = await desk.send_message("/project adopt")
    await desk.send_message("/project 采用 /code/shop", who="x-olga", chat="c0")
    await desk.send_message("/run mend it again")

    first, second = desk.world.tasks.created
    assert "owner" in text_of(refused)
    assert (first.project_dir, first.in_git) == ("/code/shop", False)
    assert second.in_git


async def test_there_is_nothing_to_adopt_in_a_plain_folder() -> None:
    desk = desk_with(notes=False)

    for text in ("/project adopt", "/project adopt /code/notes"):
        reply = await desk.send_message(text, who="x-olga", chat="c0")
        assert "No repository" in text_of(reply)
