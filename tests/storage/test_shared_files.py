"""Files go through an object store: the newest version arrives, each problem has its message."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cards.catalog import catalog_for
from storage.db import Database
from storage.home_files import HomeFileRepo
from storage.records.people import Language
from storage.records.tasks import TaskId
from storage.shared_files import MAX_OBJECT_BYTES, FileShareError, S3Files, build_s3_files
from tests.emulators.s3 import S3Emulator

pytest.importorskip("boto3")

NOW = datetime(2026, 11, 28, tzinfo=UTC)
RESULT = "files/tasks/t1/第一 answer.md"


@dataclass(kw_only=True)
class Machines:
    """One store, and machines that share files through an object store."""

    db: Database
    now: datetime = NOW

    def rows(self, home: Path) -> HomeFileRepo:
        return HomeFileRepo(self.db, home.name)

    def files_of(self, home: Path, s3: S3Emulator, *, url: str = "", secret: str = "") -> S3Files:
        return build_s3_files(
            home,
            url or f"{s3.url}/shiftboss/",
            key=s3.key,
            secret=secret or s3.secret,
            region=s3.region,
            rows=self.rows(home),
            now=lambda: self.now,
        )


@pytest.fixture
def machines(db: Database) -> Machines:
    return Machines(db=db)


def write(home: Path, text: str, at: float | None = None) -> Path:
    path = home / RESULT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if at is not None:
        os.utime(path, (at, at))
    return path


async def test_a_file_of_one_machine_reaches_another_in_its_newest_version(
    machines: Machines, tmp_path: Path
) -> None:
    async with S3Emulator() as s3:
        here, there = machines.files_of(tmp_path / "a", s3), machines.files_of(tmp_path / "b", s3)
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


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
async def test_the_newest_version_arrives_whatever_the_clocks_say(
    machines: Machines, tmp_path: Path, ahead: float
) -> None:
    async with S3Emulator() as s3:
        here, there = machines.files_of(tmp_path / "a", s3), machines.files_of(tmp_path / "b", s3)
        for text in ("first", "second"):
            write(tmp_path / "a", text)
            await here.publish(RESULT)
            key, stored = next(iter(s3.objects.items()))
            s3.objects[key] = replace(stored, at=stored.at + timedelta(seconds=ahead))

            assert await there.ensure(RESULT)
            assert (tmp_path / "b" / RESULT).read_text() == text


async def test_what_was_written_here_and_is_not_out_yet_is_kept(
    machines: Machines, tmp_path: Path
) -> None:
    async with S3Emulator() as s3:
        files = machines.files_of(tmp_path, s3)
        write(tmp_path, "published")
        await files.publish(RESULT)
        path = write(tmp_path, "about to be published")
        assert await files.ensure(RESULT)
        assert path.read_text() == "about to be published"

        s3.refusals = [(400, "InvalidRequest")]
        path = write(tmp_path, "late", at=1.0)
        await files.publish_or_later(RESULT, TaskId("t1"))
        assert await machines.files_of(tmp_path, s3).ensure(RESULT)
        assert path.read_text() == "late"

        await files.publish(RESULT)
        async with machines.db.write() as tx:
            assert not await machines.rows(tmp_path).drop_late(tx, RESULT)
        write(tmp_path, "old", at=1.0)
        assert await machines.files_of(tmp_path, s3).ensure(RESULT)
        assert path.read_text() == "late"


async def test_what_is_hashed_is_what_is_sent(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = hashlib.file_digest

    def replace_then_hash(file: Any, kind: str) -> Any:
        fresh = tmp_path / "fresh"
        fresh.write_text("a newer version, of another size")
        fresh.replace(tmp_path / RESULT)
        return hashed(file, kind)

    async with S3Emulator() as s3:
        write(tmp_path, "first")
        monkeypatch.setattr(hashlib, "file_digest", replace_then_hash)
        await machines.files_of(tmp_path, s3).publish(RESULT)

        (stored,) = s3.objects.values()
        digest = hashlib.sha256(stored.data).hexdigest()
        assert [*stored.metadata.values()] == [digest]


async def test_what_is_forgotten_does_not_come_back(machines: Machines, tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        here, there = machines.files_of(tmp_path / "a", s3), machines.files_of(tmp_path / "b", s3)
        await machines.rows(tmp_path / "b").register("b", now=NOW)
        others = [f"files/tasks/t1/{name}" for name in ("a", "b", "c", "d/e")]
        for path in (RESULT, *others, "files/tasks/t10/mine.md"):
            (tmp_path / "a" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "a" / path).write_text("the words")
            await here.publish(path)
        await there.ensure(RESULT)

        what = {"folders": ["files/tasks/t1"]}
        await here.forget(["files/tasks/t1"], what)
        await here.forget(["files/tasks/t1"], what)

        (tmp_path / "b" / RESULT).unlink()
        assert not await there.ensure(RESULT), "the object store has it still"
        assert not (tmp_path / "b" / RESULT).exists()
        due = await machines.rows(tmp_path / "b").list_due_erasures(NOW)
        assert sorted(each.home for each in due) == ["", "b"]
        await there.erase("files/tasks/t1")
        await here.publish(RESULT)
        await here.publish_or_later(RESULT, TaskId("t1"))
        assert [*s3.objects] == ["shiftboss/files/tasks/t10/mine.md"]
        assert await there.ensure("files/tasks/t10/mine.md")


async def test_a_file_that_cannot_be_written_here_is_a_problem_of_the_share(
    machines: Machines, tmp_path: Path
) -> None:
    async with S3Emulator() as s3:
        write(tmp_path / "a", "text")
        await machines.files_of(tmp_path / "a", s3).publish(RESULT)
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "files").write_text("not a folder")

        with pytest.raises(FileShareError, match="cannot be kept here"):
            await machines.files_of(tmp_path / "b", s3).ensure(RESULT)


async def test_a_deleted_object_and_a_path_outside_are_no_files(
    machines: Machines, tmp_path: Path
) -> None:
    async with S3Emulator() as s3:
        files = machines.files_of(tmp_path / "home", s3)
        assert not await files.ensure(RESULT)
        assert not await files.ensure("../outside.txt")
        assert not (tmp_path / "outside.txt").exists()


async def test_each_problem_has_one_message_without_secrets(
    machines: Machines, tmp_path: Path
) -> None:
    async with S3Emulator() as s3:
        wrong = machines.files_of(tmp_path, s3, secret="not-the-secret")
        with pytest.raises(FileShareError, match="refuses the keys") as refused:
            await wrong.check()
        assert refused.value.setup == "denied"
        write(tmp_path, "text")
        with pytest.raises(FileShareError, match="SignatureDoesNotMatch") as told:
            await wrong.publish(RESULT)
        for secret in ("not-the-secret", s3.key, s3.secret):
            assert secret not in str(told.value)

        elsewhere = machines.files_of(
            tmp_path, s3, url=s3.url.replace("team-files", "no-such-bucket")
        )
        for ask in (elsewhere.check(), elsewhere.publish(RESULT), elsewhere.ensure("files/x.txt")):
            with pytest.raises(FileShareError, match="no such bucket") as missing:
                await ask
            assert missing.value.setup == "bucket"

        s3.refusals = [(400, "InvalidRequest")]
        with pytest.raises(FileShareError, match="InvalidRequest") as busy:
            await machines.files_of(tmp_path, s3).ensure("files/y.txt")
        assert not busy.value.setup
    with pytest.raises(FileShareError, match="cannot be reached") as away:
        await machines.files_of(tmp_path, s3).check()
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
    machines: Machines,
    setup: str,
    changed: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with S3Emulator() as s3:
        url = changed.pop("url", s3.url)
        if url.startswith("/"):
            url = s3.url.replace(f"/{s3.bucket}", url)
        if url == "https:":
            url = s3.url.replace("http:", "https:")
        given = {"key": s3.key, "secret": s3.secret, "region": s3.region, **changed}
        files = build_s3_files(
            tmp_path,
            url,
            key=given["key"],
            secret=given["secret"],
            region=given["region"],
            rows=machines.rows(tmp_path),
        )

        with pytest.raises(FileShareError) as told:
            await files.check()
        assert told.value.setup == setup
        for language in Language:
            text = catalog_for(language)(f"store.s3.{setup}", **told.value.facts)
            assert s3.secret not in text
            assert "{" not in text


async def test_a_host_that_does_not_exist_is_no_outage(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(code: int) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise socket.gaierror(code, "told by the name server")

        return fail

    files = build_s3_files(
        tmp_path,
        "https://no.invalid/b",
        key="k",
        secret="s",
        region="r-1",
        rows=machines.rows(tmp_path),
    )
    for code, setup in ((socket.EAI_NONAME, "host"), (socket.EAI_AGAIN, "")):
        monkeypatch.setattr(socket, "getaddrinfo", say(code))
        with pytest.raises(FileShareError) as told:
            await files.check()
        assert told.value.setup == setup


async def test_more_than_5_gb_stay_where_they_are(machines: Machines, tmp_path: Path) -> None:
    async with S3Emulator() as s3:
        path = write(tmp_path, "")
        with path.open("wb") as file:
            file.truncate(MAX_OBJECT_BYTES + 1)
        with pytest.raises(FileShareError, match="larger than 5 GB"):
            await machines.files_of(tmp_path, s3).publish(RESULT)
        assert s3.objects == {}


@pytest.mark.parametrize(
    "url", ["https://host", "ftp://host/bucket", "host/bucket", "https://key:secret@host/bucket"]
)
async def test_an_address_that_is_none_is_refused(
    machines: Machines, url: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"give https|keys do not belong") as wrong:
        build_s3_files(tmp_path, url, key="k", secret="s", region="r", rows=machines.rows(tmp_path))
    assert "secret@" not in str(wrong.value)
