"""A program that knows the token can say something and read the answer as plain text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cards.actions import PauseTask
from cards.model import ButtonsBlock, Card, CardButton, ProgressBlock, TextBlock
from tests.bot.transports.web.builders import TOKEN, WebHarness

BEARER = {"authorization": f"Bearer {TOKEN}"}


async def test_the_answer_comes_back_as_plain_text(world: WebHarness) -> None:
    pause = CardButton(label="Pause", action=PauseTask(task_id="k3"), token="abcdefghijkl")
    world.say_handler.cards = (
        Card(title="Task", blocks=(ProgressBlock(percent=50), ButtonsBlock(items=(pause,)))),
        Card(blocks=(TextBlock(markdown="**done**"),)),
    )
    async with world.stranger(headers=BEARER) as program:
        answer = await program.post("/api/say", json={"text": "/list", "id": "from-cli-1"})
    assert answer.status_code == 200
    assert answer.json() == {
        "id": "from-cli-1",
        "good": True,
        "cards": [
            {"title": "Task", "text": "Task\n\n▓▓▓▓▓░░░░░ 50 %\n\nPause: /pause k3"},
            {"title": "", "text": "done"},
        ],
        "data": None,
    }
    heard = world.say_handler.received[0]
    assert (heard.text, heard.message_id) == ("/list", "from-cli-1")
    assert heard.sender.external_id == "local"


async def test_the_answer_comes_as_plain_values_too_and_without_buttons_if_so_wanted(
    world: WebHarness,
) -> None:
    pause = CardButton(label="Pause", action=PauseTask(task_id="k3"), token="abcdefghijkl")
    world.say_handler.cards = (Card(title="Task", blocks=(ButtonsBlock(items=(pause,)),)),)
    world.say_handler.data = {"id": "k3"}
    async with world.stranger(headers=BEARER) as program:
        answer = await program.post("/api/say", json={"text": "/get k3", "buttons": False})

    assert answer.json()["cards"] == [{"title": "Task", "text": "Task"}]
    assert answer.json()["data"] == {"id": "k3"}


async def test_what_a_program_says_is_seen_on_open_pages(world: WebHarness) -> None:
    async with world.tab() as tab, world.stranger(headers=BEARER) as program:
        await tab.next("past")
        await program.post("/api/say", json={"text": "from outside"})
        assert (await tab.next("item"))["text"] == "from outside"


async def test_what_is_asked_quietly_is_answered_and_not_seen_on_open_pages(
    world: WebHarness,
) -> None:
    world.say_handler.cards = (Card(title="Tasks"),)
    async with world.tab() as tab, world.stranger(headers=BEARER) as program:
        await tab.next("past")
        answer = await program.post("/api/say", json={"text": "/list", "quiet": True})
        await program.post("/api/say", json={"text": "aloud"})

        assert answer.json()["cards"][0]["title"] == "Tasks"
        assert (await tab.next("item"))["text"] == "aloud"
    assert [each.quiet for each in world.say_handler.received] == [True, False]


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN])
async def test_saying_needs_the_token(world: WebHarness, authorization: str) -> None:
    headers = {"authorization": authorization, "origin": world.url}
    async with world.stranger(headers=headers) as program:
        answer = await program.post("/api/say", json={"text": "x"})
    assert answer.status_code == 401
    assert "Bearer" in answer.text
    assert world.say_handler.received == []


async def test_a_browsers_cookie_is_not_enough(world: WebHarness) -> None:
    async with world.browser() as browser:
        answer = await browser.post("/api/say", json={"text": "x"})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"{}", b'{"text": ""}', b'{"text": 5}', b'{"text": "a", "id": "!"}', b"\xff\xfe"],
)
async def test_a_malformed_body_is_refused(world: WebHarness, body: bytes) -> None:
    async with world.stranger(headers=BEARER) as program:
        answer = await program.post("/api/say", content=body)
    assert answer.status_code == 422
    assert "wrong" in answer.json()["error"]
    assert world.say_handler.received == []


async def test_a_failure_is_told_without_its_inner_workings(world: WebHarness) -> None:
    world.say_handler.broken = True
    async with world.stranger(headers=BEARER) as program:
        answer = await program.post("/api/say", json={"text": "x"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "Something went wrong. The reason is in the log."}


async def test_a_store_that_is_away_is_told_and_may_be_tried_again(world: WebHarness) -> None:
    world.say_handler.store_away = True
    async with world.stranger(headers=BEARER) as program:
        answer = await program.post("/api/say", json={"text": "x"})
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert "database away" in answer.json()["detail"]
    assert "No space" not in answer.text


async def test_further_pages_stand_behind_the_same_rule(tmp_path: Path) -> None:
    async def tasks(_request: Request) -> Response:
        return PlainTextResponse("all tasks")

    world = WebHarness(tmp_path)
    world.settings = {"routes": [Route("/tasks", tasks)]}
    await world.start()
    async with world.stranger() as stranger, world.browser() as owner:
        refused, shown = await stranger.get("/tasks"), await owner.get("/tasks")
    await world.stop()
    assert (refused.status_code, shown.text) == (401, "all tasks")


async def test_a_body_that_no_text_needs_is_not_even_read(world: WebHarness) -> None:
    """The program would hold all of it in memory."""
    at = httpx.URL(world.url)
    reader, writer = await asyncio.open_connection(at.host, at.port)
    head = {"Host": f"{at.host}:{at.port}", **BEARER, "Content-Length": str(10**9)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    writer.write(f"POST /api/say HTTP/1.1\r\n{lines}\r\n".encode())

    status = await reader.readline()

    writer.close()
    assert b" 413 " in status
    assert world.say_handler.received == []
