"""Files come in and go out, and never from or to anywhere but the `files` folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.transports.ports import ChatUnreachable, FileTooLarge
from bot.transports.web.files import MAX_FILE_BYTES
from storage.records.messages import AttachmentKind, IncomingMessage, RemoteFile
from tests.bot.transports.web.builders import TOKEN, WebHarness

PNG = b"\x89PNG\r\n\x1a\n"


def put(world: WebHarness, path: str, content: bytes = b"content") -> Path:
    target = world.home / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


async def test_a_file_is_downloaded_under_its_own_name_and_runs_nothing(world: WebHarness) -> None:
    put(world, "files/task/报告.html", b"<script>alert(1)</script>")
    async with world.browser() as browser:
        got = await browser.get("/files/task/报告.html")
    assert got.content == b"<script>alert(1)</script>"
    assert got.headers["content-disposition"].startswith("attachment; filename*=utf-8''%E6%8A%A5")
    assert "sandbox" in got.headers["content-security-policy"]
    assert got.headers["x-content-type-options"] == "nosniff"


async def test_a_picture_is_shown_but_a_drawing_that_can_run_scripts_is_not(
    world: WebHarness,
) -> None:
    put(world, "files/a.png", PNG)
    put(world, "files/a.svg", b"<svg/>")
    async with world.browser() as browser:
        png, svg = await browser.get("/files/a.png"), await browser.get("/files/a.svg")
    assert png.headers["content-disposition"].startswith("inline")
    assert svg.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "..%2fsecret",
        "%2e%2e/secret",
        "a/..%2f..%2fsecret",
        "..%5csecret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "link",
        "folder/secret",
        "%00",
        "a%00.png",
        "x" * 300,
        "",
        "inbox",
    ],
)
async def test_nothing_outside_the_folder_is_served(world: WebHarness, path: str) -> None:
    put(world, "secret", b"secret")
    put(world, "files/inbox/x/y")
    (world.home / "files/link").symlink_to(world.home / "secret")
    (world.home / "files/folder").symlink_to(world.home)
    async with world.browser() as browser:
        got = await browser.get(f"{world.url}/files/{path}")
    assert got.status_code in {400, 404}
    assert b"secret" not in got.content


async def test_files_need_the_cookie(world: WebHarness) -> None:
    put(world, "files/a.txt")
    async with world.stranger() as browser:
        assert (await browser.get("/files/a.txt")).status_code == 401


async def test_an_upload_is_kept_below_the_inbox_and_comes_with_the_message(
    world: WebHarness,
) -> None:
    async with world.browser() as browser:
        kept = (await browser.post("/upload?name=../a.png", content=PNG)).json()
    async with world.tab() as tab:
        await tab.send(type="say", id="message-1", text="look", files=[kept["id"]])
        item = await tab.next("item")
    message = world.inbox.messages[0]
    assert isinstance(message, IncomingMessage)
    (file,) = message.attachments
    assert (file.kind, file.name, file.size) == (AttachmentKind.IMAGE, "a.png", len(PNG))
    assert file.reference["path"] == f"files/inbox/{kept['id']}/a.png"
    assert f'src="/{file.reference["path"]}"' in item["html"]
    fetched = await world.transport.fetch(file, world.home / "work")
    assert fetched.read_bytes() == PNG


async def test_too_much_is_refused_and_leaves_nothing_behind(world: WebHarness) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_FILE_BYTES // 1_000_000 + 2):
            yield b"x" * 1_000_000

    async with world.browser() as browser:
        told = await browser.post("/upload?name=big.bin", content=endless())
    assert told.status_code == 413
    assert "20 MB" in told.json()["error"]
    assert list((world.home / "files/inbox").iterdir()) == []


async def test_an_empty_file_is_refused_and_leaves_nothing_behind(world: WebHarness) -> None:
    async with world.browser() as browser:
        told = await browser.post("/upload?name=a.txt", content=b"")
    assert told.status_code == 400
    assert list((world.home / "files/inbox").iterdir()) == []


async def test_a_home_that_cannot_be_written_is_said_so(world: WebHarness) -> None:
    put(world, "files", b"a file where the folder should be")
    async with world.browser() as browser:
        told = await browser.post("/upload?name=a.txt", content=b"x")
    assert told.status_code == 507
    assert "a.txt" in told.json()["error"]


@pytest.mark.parametrize("upload", ["nothing-like-this", "..", "../../secret", "a"])
async def test_a_message_with_an_unknown_upload_is_refused(world: WebHarness, upload: str) -> None:
    async with world.tab() as tab:
        await tab.send(type="say", id="message-1", text="look", files=[upload])
        # Ids that no upload can have are refused with the frame, others with the message.
        kind = "refused" if upload == "nothing-like-this" else "toast"
        await tab.next(kind)
    assert world.inbox.messages == []


async def test_fetch_takes_only_what_is_in_the_folder_and_not_too_large(world: WebHarness) -> None:
    put(world, "secret", b"secret")
    with (put(world, "files/big")).open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)

    def remote(path: str) -> RemoteFile:
        return RemoteFile(kind=AttachmentKind.FILE, reference={"path": path}, name="x")

    for path in ("../secret", "files/../secret", "", "files/gone"):
        with pytest.raises(ChatUnreachable):
            await world.transport.fetch(remote(path), world.home / "work")
    with pytest.raises(FileTooLarge):
        await world.transport.fetch(remote("files/big"), world.home / "work")


async def test_the_bearer_alone_may_not_be_in_the_address_of_a_post(world: WebHarness) -> None:
    async with world.stranger(headers={"origin": world.url}) as program:
        sent = await program.post(f"/upload?name=a&token={TOKEN}", content=b"x")
    assert sent.status_code == 401
