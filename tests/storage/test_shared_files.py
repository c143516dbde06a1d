"""Files go through an object store: the newest version arrives, each problem has its message."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cards.catalog import catalog_for
from storage.records.people import Language
from storage.shared_files import MAX_OBJECT_BYTES, FileShareError, S3Files, build_s3_files
from tests.emulators.s3 import S3Emulator

pytest.importorskip("boto3")

RESULT = "files/tasks/t1/第一 answer.md"


def files_of(home: Path, s3: S3Emulator, *, url: str = "", secret: str = "") -> S3Files:
    return build_s3_files(
        home,
        url or f"{s3.url}/shiftboss/",
        key=s3.key,
        secret=secret or s3.secret,
        region=s3.region,
    )


def write(home: Path, text: str, at: float | None = None) -> Path:
    path = home / RESULT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if at is not None:
        os.utime(path, (at, at))
    return path


async def test_a_file_of_one_machine_reaches_another_in_its_newest_version(tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        here, there = files_of(tmp_path / "a", s3), files_of(tmp_path / "b", s3)
        await here.check()

        write(tmp_path / "a", "first")
        await here.publish(RESULT)
        assert await there.ensure(RESULT)
        assert (tmp_path / "b" / RESULT).read_text() == "first"
        assert await there.ensure(RESULT)
        assert s3.requests[-1].startswith("HEAD")

        os.utime(tmp_path / "b" / RESULT, (0, 0))
        write(tmp_path / "a", "second")
        await here.publish(RESULT)
        assert await there.ensure(RESULT)
        assert (tmp_path / "b" / RESULT).read_text() == "second"
        assert [*s3.objects] == [f"shiftboss/{RESULT}"]


async def test_what_was_written_here_later_is_kept(tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        files = files_of(tmp_path, s3)
        path = write(tmp_path, "published")
        await files.publish(RESULT)
        key, stored = next(iter(s3.objects.items()))
        path = write(tmp_path, "newer", at=stored.at.timestamp() + 60)

        assert await files.ensure(RESULT)
        assert path.read_text() == "newer"
        s3.objects[key] = replace(stored, metadata={})
        assert await files.ensure(RESULT)
        assert path.read_text() == "newer"


async def test_a_file_that_cannot_be_written_here_is_a_problem_of_the_share(tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        write(tmp_path / "a", "text")
        await files_of(tmp_path / "a", s3).publish(RESULT)
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "files").write_text("not a folder")

        with pytest.raises(FileShareError, match="cannot be kept here"):
            await files_of(tmp_path / "b", s3).ensure(RESULT)


async def test_a_deleted_object_and_a_path_outside_are_no_files(tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        files = files_of(tmp_path / "home", s3)
        assert not await files.ensure(RESULT)
        assert not await files.ensure("../outside.txt")
        assert not (tmp_path / "outside.txt").exists()


async def test_each_problem_has_one_message_without_secrets(tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        wrong = files_of(tmp_path, s3, secret="not-the-secret")
        with pytest.raises(FileShareError, match="refuses the keys") as refused:
            await wrong.check()
        assert refused.value.setup == "denied"
        write(tmp_path, "text")
        with pytest.raises(FileShareError, match="SignatureDoesNotMatch") as told:
            await wrong.publish(RESULT)
        for secret in ("not-the-secret", s3.key, s3.secret):
            assert secret not in str(told.value)

        elsewhere = files_of(tmp_path, s3, url=s3.url.replace("team-files", "no-such-bucket"))
        for ask in (elsewhere.check(), elsewhere.publish(RESULT), elsewhere.ensure("files/x.txt")):
            with pytest.raises(FileShareError, match="no such bucket") as missing:
                await ask
            assert missing.value.setup == "bucket"

        s3.refusals = [(400, "InvalidRequest")]
        with pytest.raises(FileShareError, match="InvalidRequest") as busy:
            await files_of(tmp_path, s3).ensure("files/y.txt")
        assert not busy.value.setup
    with pytest.raises(FileShareError, match="cannot be reached") as away:
        await files_of(tmp_path, s3).check()
    assert not away.value.setup


@pytest.mark.parametrize(
    ("setup", "changed"),
    [
        ("keys", {"key": "", "secret": ""}),
        ("keys", {"secret": ""}),
        ("keys", {"key": ""}),
        ("denied", {"key": "密钥"}),
        ("region", {"region": "欧洲"}),
        ("bucket_name", {"url": "/团队 文件"}),
        ("bucket", {"url": "/Team_Files"}),
        ("endpoint", {"url": "http://exa mple/files"}),
        ("endpoint", {"url": "http://127.0.0.1:99999/files"}),
        ("endpoint", {"url": "http://127.0.0.1:port/files"}),
        ("tls", {"url": "https:"}),
    ],
)
async def test_what_only_the_settings_can_mend_is_no_outage(
    setup: str, changed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with S3Emulator() as s3:
        url = changed.pop("url", s3.url)
        if url.startswith("/"):
            url = s3.url.replace(f"/{s3.bucket}", url)
        if url == "https:":
            url = s3.url.replace("http:", "https:")
        given = {"key": s3.key, "secret": s3.secret, "region": s3.region, **changed}

        with pytest.raises(FileShareError) as told:
            await build_s3_files(tmp_path, url, **given).check()
        assert told.value.setup == setup
        for language in Language:
            text = catalog_for(language)(f"store.s3.{setup}", **told.value.facts)
            assert s3.secret not in text
            assert "{" not in text


async def test_a_host_that_does_not_exist_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(code: int) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise socket.gaierror(code, "told by the name server")

        return fail

    files = build_s3_files(tmp_path, "https://no.invalid/b", key="k", secret="s", region="r-1")
    for code, setup in ((socket.EAI_NONAME, "host"), (socket.EAI_AGAIN, "")):
        monkeypatch.setattr(socket, "getaddrinfo", say(code))
        with pytest.raises(FileShareError) as told:
            await files.check()
        assert told.value.setup == setup


async def test_more_than_5_gb_stay_where_they_are(tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        path = write(tmp_path, "")
        with path.open("wb") as file:
            file.truncate(MAX_OBJECT_BYTES + 1)
        with pytest.raises(FileShareError, match="larger than 5 GB"):
            await files_of(tmp_path, s3).publish(RESULT)
        assert s3.objects == {}


@pytest.mark.parametrize(
    "url", ["https://host", "ftp://host/bucket", "host/bucket", "https://key:secret@host/bucket"]
)
def test_an_address_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give https|keys do not belong") as wrong:
        build_s3_files(tmp_path, url, key="k", secret="s", region="r")
    assert "secret@" not in str(wrong.value)
