"""Whoever answers a request decides neither where the next one goes nor who gets what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from bot.engine.llm.api.access import ApiAccess, ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import BackendError
from bot.engine.web import FetchRefused, WebFetcher, parse_private_hosts, parse_url
from tests.bot.engine.llm.builders import MODELS, build_request, collect_run

OWN, INNER = "127.0.0.2", "127.0.0.1"
"""An address that may be fetched, and one that may not."""


@dataclass
class Server:
    """Answers each request with the next answer, and the last one again and again."""

    answers: list[str]
    heard: list[str] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heard.append(head)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(answer.encode())
        await writer.drain()
        writer.close()


def plain(text: str) -> str:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}"
    return f"{head}\r\nConnection: close\r\n\r\n{text}"


def moved(to: str, status: int = 307) -> str:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0"
    return f"{head}\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def serving(host: str, *answers: str, port: int = 0) -> AsyncIterator[Server]:
    here = Server(list(answers))
    server = await asyncio.start_server(here.answer, host, port)
    here.port = server.sockets[0].getsockname()[1]
    async with server:
        yield here


def fetcher(*addresses: str) -> WebFetcher:
    """Each question for a host has the next of these answers."""
    left = list(addresses)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return [left.pop(0) if len(left) > 1 else left[0]]

    return WebFetcher(private_hosts=parse_private_hosts([f"{OWN}/32"]), resolve=resolve)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_page_that_moves_to_a_host_within_is_not_followed(status: int) -> None:
    async with (
        serving(INNER, plain("the secret")) as inner,
        serving(OWN, moved(f"http://inner.example:{inner.port}/", status)) as page,
    ):
        with pytest.raises(FetchRefused):
            await fetcher(OWN, INNER).fetch(f"http://page.example:{page.port}/")

    assert inner.heard == []


@pytest.mark.parametrize(
    "to", ["/next", "http://page.example:{port}/next", "//page.example:{port}/"]
)
async def test_a_name_that_means_another_host_at_the_second_look_is_not_asked(to: str) -> None:
    """Rebinding: the answer for the first look is allowed, that for the redirect is not."""
    async with serving(OWN) as page, serving(INNER, plain("x"), port=page.port) as inner:
        page.answers.append(moved(to.format(port=page.port)))
        with pytest.raises(FetchRefused):
            await fetcher(OWN, INNER).fetch(f"http://page.example:{page.port}/")

    assert (len(page.heard), inner.heard) == (1, [])


async def test_the_address_that_was_looked_at_is_the_one_that_is_asked() -> None:
    """A name that means another host right after the look."""
    async with serving(OWN, plain("harmless")) as page, serving(INNER, plain("x"), port=page.port):
        url = f"http://page.example:{page.port}/"
        read = await fetcher(OWN, INNER).fetch(url)
        parsed = parse_url(url)
        assert parsed is not None
        sent = await fetcher(OWN, INNER).send(parsed, headers={}, body=b"x")

    assert (read.body, sent.body) == (b"harmless", b"harmless")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_what_is_sent_goes_nowhere_else(status: int) -> None:
    """The header of an HTTP node may be a key."""
    async with (
        serving(OWN, plain("x")) as other,
        serving(OWN, moved(f"http://page.example:{other.port}/", status)) as page,
    ):
        url = parse_url(f"http://page.example:{page.port}/")
        assert url is not None
        answer = await fetcher(OWN).send(url, headers={"X-Key": "k"}, body=b"x", method="PUT")

    assert other.heard == []
    assert answer.redirect is not None


async def ask(api: ApiProvider, service: Server) -> BackendError:
    access = ApiAccess(
        provider=api, key="sk-very-secret", base_url=f"http://{INNER}:{service.port}"
    )
    backend = ApiBackend(access, (MODELS[api],))
    with pytest.raises(BackendError) as error:
        await collect_run(backend, build_request(api))
    await backend.aclose()
    return error.value


@pytest.mark.parametrize("api", list(ApiProvider))
@pytest.mark.parametrize("status", [302, 307, 308])
@pytest.mark.parametrize("place", ["http://localhost:{port}", "http://127.0.0.2:{port}"])
async def test_a_model_s_service_cannot_pass_key_and_words_on(
    api: ApiProvider, status: int, place: str
) -> None:
    async with serving("0.0.0.0", plain("x")) as other:
        to = place.format(port=other.port)
        async with serving(INNER, moved(f"{to}/v1/messages", status)) as service:
            error = await ask(api, service)

    assert service.heard
    assert other.heard == []
    assert str(status) in str(error)


async def test_a_service_may_move_within_itself() -> None:
    async with serving(INNER, moved("/elsewhere"), plain("no model")) as service:
        await ask(ApiProvider.ANTHROPIC, service)

    assert [head.split()[1] for head in service.heard[:2]] == ["/v1/messages", "/elsewhere"]
