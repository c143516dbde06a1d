"""A page is fetched from where its name led when it was checked, and no more of it than allowed."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from bot.engine.web import MAX_BODY_BYTES, FetchRefused, WebFetcher, resolve_host
from tests.bot.engine.web.local_site import (
    HOST,
    Answer,
    FakeResolver,
    build_fetcher,
    http_redirect,
    http_reply,
    serve_site,
)


async def test_a_page_is_fetched_in_its_hosts_name() -> None:
    async with serve_site(home=http_reply("hello", kind="text/plain; charset=UTF-8")) as site:
        page = await build_fetcher().fetch(site.url("/"))

    assert (page.body, page.content_type, page.charset, page.status) == (
        b"hello",
        "text/plain",
        "utf-8",
        200,
    )
    assert f"Host: {HOST}:{site.port}\r\n" in site.heard[0]
    assert "Cookie" not in site.heard[0]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
        "localhost",
        "１２７.0.0.1",
    ],
)
async def test_no_way_of_writing_this_machine_reaches_it(host: str) -> None:
    async with serve_site(home=http_reply("secret")) as site:
        with pytest.raises(FetchRefused):
            await WebFetcher(resolve=resolve_host).fetch(site.url("/", host=host))

    assert site.heard == []


async def test_a_name_that_leads_inside_is_refused_with_any_of_its_addresses() -> None:
    names = FakeResolver({"evil.test": [["8.8.8.8", "169.254.169.254"]]})

    with pytest.raises(FetchRefused, match="not on the open internet"):
        await build_fetcher(names).fetch("http://evil.test/latest/meta-data/")


async def test_a_name_that_answers_otherwise_the_second_time_is_not_asked_again() -> None:
    async with serve_site(home=http_reply("first")) as site:
        names = FakeResolver({HOST: [["127.0.0.1"], ["10.0.0.1"]]})

        page = await build_fetcher(names).fetch(site.url())

    assert page.body == b"first"
    assert names.asked == [HOST]


async def test_each_redirect_is_resolved_and_checked_again() -> None:
    closed = build_fetcher(FakeResolver({HOST: [["127.0.0.1"]], "evil.test": [["127.0.0.1"]]}))

    async with serve_site(home=http_redirect("http://evil.test/")) as site:
        with pytest.raises(FetchRefused, match=r"evil\.test is not on the open internet"):
            await closed.fetch(site.url())


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{port}/secret",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:{port}/secret",
        "http://2130706433:{port}/secret",
        "//127.0.0.1:{port}/secret",
        "file:///etc/passwd",
        "http://user:pass@good.test/",
        "ftp://good.test/",
        "http://good.test:25/",
    ],
)
async def test_a_redirect_never_leads_inside(target: str) -> None:
    async def resolves(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == HOST else list(await resolve_host(host, port))

    async with serve_site(secret=http_reply("secret")) as site:
        site.answers["/"] = http_redirect(target.format(port=site.port))
        names = build_fetcher()
        names._resolve = resolves
        with pytest.raises(FetchRefused):
            await names.fetch(site.url())

    assert len(site.heard) == 1


async def test_redirects_within_a_site_are_followed() -> None:
    async with serve_site(home=http_redirect("/a"), b=http_reply("there")) as site:
        site.answers["/a"] = http_redirect(site.url("/b", host=f"www.{HOST}"))

        page = await build_fetcher().fetch(site.url())

    assert page.body == b"there"


async def test_a_redirect_to_another_host_is_told_and_not_followed() -> None:
    names = FakeResolver({HOST: [["127.0.0.1"]], "other.test": [["8.8.8.8"]]})

    async with serve_site(home=http_redirect("https://other.test/x")) as site:
        page = await build_fetcher(names).fetch(site.url())

    assert str(page.redirect) == "https://other.test/x"
    assert page.body == b""


async def test_redirects_end() -> None:
    async with serve_site(home=http_redirect("/")) as site:
        with pytest.raises(FetchRefused, match="more than 5 redirects"):
            await build_fetcher().fetch(site.url())

    assert len(site.heard) == 6


async def test_a_huge_body_is_cut_off() -> None:
    async with serve_site(home=http_reply(b"x" * (MAX_BODY_BYTES + 1_000))) as site:
        page = await build_fetcher().fetch(site.url())

    assert (len(page.body), page.is_truncated) == (MAX_BODY_BYTES, True)


async def test_an_endless_body_is_cut_off() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()

    async with serve_site(home=endless) as site:
        page = await build_fetcher().fetch(site.url())

    assert page.is_truncated


async def test_a_gzip_bomb_is_cut_off_before_it_unpacks() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(300)) + packer.flush()
    assert len(bomb) < 400_000

    async with serve_site(home=http_reply(bomb, more="Content-Encoding: gzip\r\n")) as site:
        page = await build_fetcher().fetch(site.url())

    assert (len(page.body), page.is_truncated) == (MAX_BODY_BYTES, True)


async def test_gzip_is_unpacked_and_other_codings_are_refused() -> None:
    async with serve_site(
        home=http_reply(gzip.compress("你好".encode()), more="Content-Encoding: gzip\r\n"),
        broken=http_reply(b"not gzip at all", more="Content-Encoding: gzip\r\n"),
        brotli=http_reply(b"x", more="Content-Encoding: br\r\n"),
    ) as site:
        assert (await build_fetcher().fetch(site.url())).body.decode() == "你好"
        with pytest.raises(FetchRefused, match="broken gzip"):
            await build_fetcher().fetch(site.url("/broken"))
        with pytest.raises(FetchRefused, match="not asked for"):
            await build_fetcher().fetch(site.url("/brotli"))


async def _drip(writer: asyncio.StreamWriter) -> None:
    """Whoever says one letter of a header at a time never ends by itself."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _drip_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("slow", [_drip, _drip_body], ids=["headers", "body"])
async def test_a_slow_answer_is_given_up(slow: Answer) -> None:
    async with serve_site(home=slow) as site:
        with pytest.raises(FetchRefused, match="took longer than"):
            await build_fetcher(seconds=0.3).fetch(site.url())


async def test_a_name_that_does_not_resolve_in_time_is_given_up() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(FetchRefused, match="took longer than"):
        await WebFetcher(resolve=never, seconds=0.1).fetch("https://example.com")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (http_reply(b"\x89PNG", kind="image/png"), "sends image/png, which is no text"),
        (http_reply(b"%PDF", kind="application/pdf"), "which is no text"),
        (http_reply(b"\0\0", kind=""), "sends no text"),
        (b"no http at all\r\n\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "broke off"),
    ],
)
async def test_what_cannot_be_read_is_said_in_one_sentence(answer: bytes, says: str) -> None:
    async with serve_site(home=answer) as site:
        with pytest.raises(FetchRefused, match=says):
            await build_fetcher().fetch(site.url())


async def test_a_server_that_is_not_there_is_said_to_be_silent() -> None:
    async with serve_site() as site:
        pass

    with pytest.raises(FetchRefused, match="does not answer"):
        await build_fetcher().fetch(site.url())
