"""Shares the files of the data directory among processes that have no folder in common, through an
object store with the interface of S3."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from storage.db import Transaction
from storage.home_files import HomeFileRepo
from storage.records.tasks import TaskId

log = logging.getLogger(__name__)

MAX_OBJECT_BYTES = 5 * 1024**3
"""S3 takes no more in one request."""

EXTRA = "shiftboss[s3]"

_ATTEMPTS = 4
_CONNECT_SECONDS = 5
_READ_SECONDS = 60
_PUBLISH_SECONDS = 60.0
"""How long after it was written a file may still be on its way to the object store."""

Clock: TypeAlias = Callable[[], datetime]

utc_now: Clock = partial(datetime.now, UTC)

_PART = ".shiftboss-{}.part"
_DIGEST = "sha256"
_GONE = frozenset({"404", "NoSuchKey", "NotFound"})
_SETUP_CODES = {
    **dict.fromkeys(("NoSuchBucket",), "bucket"),
    **dict.fromkeys(("InvalidBucketName",), "bucket_name"),
    **dict.fromkeys(
        ("403", "AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
        "denied",
    ),
    **dict.fromkeys(("ExpiredToken", "InvalidToken"), "denied"),
    **dict.fromkeys(("RequestTimeTooSkewed",), "clock"),
    **dict.fromkeys(("AuthorizationHeaderMalformed", "PermanentRedirect", "301"), "region"),
}
_UNKNOWN_HOST = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})


class FileShareError(Exception):
    """The text names the problem, without secrets. `setup` is what only somebody who changes the
    settings, the bucket or the machine can solve, as in the texts `store.s3`; empty for what may
    pass by itself."""

    def __init__(self, text: str, *, setup: str = "", **facts: str) -> None:
        self.setup, self.facts = setup, facts
        super().__init__(text)


class SharedFiles(Protocol):
    """Paths are relative to the data directory."""

    async def check(self) -> None:
        """Raises FileShareError."""
        ...

    async def publish(self, path: str) -> None:
        """Make a file of this process available to the others. Raises FileShareError."""
        ...

    async def publish_or_later(self, path: str, task_id: TaskId) -> None:
        """Publish a task's file, or store that it is late: it is tried again until it is out."""
        ...

    async def ensure(self, path: str) -> bool:
        """Bring the newest published version of a file here, if this process has not got it; False
        if there is none at all, or if it must be forgotten. Raises FileShareError."""
        ...

    async def list_late(self, paths: Sequence[str]) -> Sequence[str]:
        """Those of them that only another data directory has: they are not there yet."""
        ...

    async def mark_told(self, tx: Transaction, paths: Sequence[str]) -> None:
        """These late files have to follow a card that goes out without them. Raises NotLate."""
        ...

    async def erase(self, *paths: str) -> None:
        """Delete these files and folders where processes share them, not in their data
        directories. Raises FileShareError."""
        ...

    async def forget(self, folders: Sequence[str], what: Mapping[str, Any]) -> None:
        """Store that these folders must be nowhere and come back nowhere, and that `what` is to be
        erased in every other data directory. Here, the caller does that."""
        ...


class OneFolder:
    """All processes have the same data directory, or bring nothing to one another."""

    def __init__(self, rows: HomeFileRepo | None = None, now: Clock = utc_now) -> None:
        self._rows, self._now = rows, now

    async def check(self) -> None: ...

    async def publish(self, path: str) -> None: ...

    async def publish_or_later(self, path: str, task_id: TaskId) -> None: ...

    async def ensure(self, path: str) -> bool:
        return True

    async def list_late(self, paths: Sequence[str]) -> Sequence[str]:
        return ()

    async def mark_told(self, tx: Transaction, paths: Sequence[str]) -> None: ...

    async def erase(self, *paths: str) -> None: ...

    async def forget(self, folders: Sequence[str], what: Mapping[str, Any]) -> None:
        if self._rows is not None:
            await self._rows.forget(folders, what, in_store=False, now=self._now())


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """`endpoint` is the service's URL; keys of objects begin with `prefix`, which may be empty."""

    endpoint: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> BucketAddress:
        """Of `https://HOST/BUCKET` or `https://HOST/BUCKET/PREFIX`. Raises ValueError."""
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise ValueError("keys do not belong into the address")
        bucket, _, prefix = unquote(parts.path).strip("/").partition("/")
        if parts.scheme not in {"http", "https"} or not parts.hostname or not bucket:
            raise ValueError("give https://HOST/BUCKET or https://HOST/BUCKET/PREFIX")
        return cls(
            endpoint=f"{parts.scheme}://{parts.netloc}",
            bucket=bucket,
            prefix=f"{prefix.strip('/')}/" if prefix.strip("/") else "",
        )


class S3Files:
    """`new_client` returns a client of boto3, in a thread, when it is first needed."""

    def __init__(
        self,
        home: Path,
        address: BucketAddress,
        new_client: Callable[[], Any],
        rows: HomeFileRepo,
        now: Clock,
    ) -> None:
        self._home = home
        self._address = address
        self._new_client = new_client
        self._rows, self._now = rows, now
        self._client: Any = None
        self._synced: dict[str, str] = {}

    async def check(self) -> None:
        await asyncio.to_thread(self._check)

    async def publish(self, path: str) -> None:
        if await self._rows.is_forgotten(path):
            return
        await asyncio.to_thread(self._publish, path)
        # Between the question and the answer, it may have been forgotten and erased.
        if await self._rows.is_forgotten(path):
            await self.erase(path)

    async def publish_or_later(self, path: str, task_id: TaskId) -> None:
        try:
            await self.publish(path)
        except FileShareError as error:
            log.warning("%s of task %s is shared later: %s", path, task_id, error)
            await self._rows.add_late(path, task_id, now=self._now())

    async def ensure(self, path: str) -> bool:
        if await self._rows.is_forgotten(path):
            return False
        late = await self._rows.find_late(path)
        if late is not None and late.home == self._rows.home:
            return True
        found = await asyncio.to_thread(self._ensure, path)
        if found and await self._rows.is_forgotten(path):
            # Meanwhile: whoever erased it here may have come before it was written.
            await asyncio.to_thread((self._home / path).unlink, missing_ok=True)
            return False
        return found

    async def list_late(self, paths: Sequence[str]) -> Sequence[str]:
        return await self._rows.list_late(paths) if paths else ()

    async def mark_told(self, tx: Transaction, paths: Sequence[str]) -> None:
        await self._rows.mark_told(tx, paths)

    async def forget(self, folders: Sequence[str], what: Mapping[str, Any]) -> None:
        await self._rows.forget(folders, what, in_store=True, now=self._now())

    async def erase(self, *paths: str) -> None:
        await asyncio.to_thread(self._erase, paths)

    def _check(self) -> None:
        with self._explain(""):
            self._connect().head_bucket(Bucket=self._address.bucket)

    def _publish(self, path: str) -> None:
        try:
            with (self._home / path).open("rb") as file:
                self._upload(path, file)
        except OSError as error:
            raise FileShareError(f"{path} cannot be read: {error.strerror}") from error

    def _upload(self, path: str, file: BufferedReader) -> None:
        """Hash and send the same file: a new one of that name is another."""
        size = os.fstat(file.fileno()).st_size
        if size > MAX_OBJECT_BYTES:
            raise FileShareError(f"{path} is larger than 5 GB and stays on this machine")
        digest = _digest(file)
        file.seek(0)
        with self._explain(path):
            self._connect().put_object(
                Bucket=self._address.bucket,
                Key=self._key(path),
                Body=file,
                ContentLength=size,
                Metadata={_DIGEST: digest},
            )
        self._synced[path] = digest

    def _ensure(self, path: str) -> bool:
        target = self._home / path
        if not target.resolve().is_relative_to(self._home.resolve()):
            return False
        place = {"Bucket": self._address.bucket, "Key": self._key(path)}
        try:
            with self._explain(path):
                if target.is_file():
                    published = self._connect().head_object(**place)
                    if self._is_current(path, target, published):
                        return True
                found = self._connect().get_object(**place)
                if found["ContentLength"] > MAX_OBJECT_BYTES:
                    found["Body"].close()
                    raise FileShareError(f"{path} is larger than 5 GB and is not brought here")
                self._synced[path] = _write_atomically(target, found["Body"])
        except FileNotFoundError:
            if not target.is_file():
                log.warning("%s is not in the object store: it was deleted or never shared", path)
            return target.is_file()
        except OSError as error:
            raise FileShareError(f"{path} cannot be kept here: {error.strerror}") from error
        return True

    def _is_current(self, path: str, target: Path, published: Any) -> bool:
        """Whether the file here is the published one, or was written a moment ago by somebody here
        who is about to publish it. Times of other machines say nothing."""
        with target.open("rb") as file:
            digest = _digest(file)
            age = time.time() - os.fstat(file.fileno()).st_mtime
        if published.get("Metadata", {}).get(_DIGEST) == digest:
            return True
        return self._synced.get(path) != digest and 0 <= age < _PUBLISH_SECONDS

    def _erase(self, paths: Sequence[str]) -> None:
        client, bucket = self._connect(), self._address.bucket
        for path in paths:
            key = self._key(path)
            with self._explain(""):
                client.delete_object(Bucket=bucket, Key=key)
                pages = client.get_paginator("list_objects_v2")
                for page in pages.paginate(Bucket=bucket, Prefix=f"{key}/"):
                    for each in page.get("Contents", ()):
                        client.delete_object(Bucket=bucket, Key=each["Key"])

    def _key(self, path: str) -> str:
        return f"{self._address.prefix}{PurePosixPath(path)}"

    def _connect(self) -> Any:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    @contextmanager
    def _explain(self, path: str) -> Iterator[None]:
        """Translate errors of the client to FileShareError, or to FileNotFoundError for a missing
        object."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "?"))
            if code in _GONE and path:
                raise FileNotFoundError(path) from None
            setup = _SETUP_CODES.get(code, "")
            if not path:
                # The answer to the first look has no text that would name the reason.
                setup = setup or {"404": "bucket", "400": "region"}.get(code, "")
            raise self._failure(setup, code) from None
        except BotoCoreError as error:
            raise self._failure(self._find_setup(error), type(error).__name__) from None
        except ValueError:
            raise self._failure("endpoint", "ValueError") from None

    def _failure(self, setup: str, code: str) -> FileShareError:
        where = f"{self._address.endpoint}/{self._address.bucket}"
        said = _SAID.get(setup, "fails")
        return FileShareError(
            f"the object store {where} {said} ({code})", setup=setup, where=where, code=code
        )

    def _find_setup(self, error: Exception) -> str:
        """Name what has to be set; empty for an outage."""
        from botocore import exceptions as of_client

        match error:
            case of_client.NoCredentialsError() | of_client.PartialCredentialsError():
                return "keys"
            case of_client.ParamValidationError():
                return "bucket_name"
            case of_client.InvalidRegionError():
                return "region"
            case of_client.SSLError():
                return "tls"
            case of_client.EndpointConnectionError():
                # A name server that cannot be reached says so with another code.
                return "host" if _is_unknown(self._address.endpoint) else ""
            case _:
                return "endpoint" if "EndpointResolution" in type(error).__name__ else ""


_SAID = {
    "": "cannot be reached or fails",
    "keys": "needs keys",
    "denied": "refuses the keys",
    "bucket": "has no such bucket",
    "bucket_name": "has no bucket of such a name",
    "endpoint": "has an address that is none",
    "host": "is on a host that does not exist",
    "tls": "has no certificate that is trusted",
    "region": "refuses the region",
    "clock": "refuses this machine's clock",
}


def _is_unknown(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    try:
        socket.getaddrinfo(parts.hostname, parts.port)
    except socket.gaierror as error:
        return error.errno in _UNKNOWN_HOST
    return False


def build_s3_files(
    home: Path,
    url: str,
    *,
    key: str,
    secret: str,
    region: str,
    rows: HomeFileRepo,
    now: Clock = utc_now,
) -> S3Files:
    """Connect to the bucket at this address. Raises ValueError for an invalid address, and
    FileShareError without the packages."""
    address = BucketAddress.parse(url)

    def new_client() -> Any:
        try:
            # Loaded only where files go through an object store.
            from boto3.session import Session
            from botocore.config import Config
            from botocore.exceptions import NoCredentialsError
        except ImportError as error:
            raise FileShareError(
                "packages for an object store are not installed", setup="packages", extra=EXTRA
            ) from error
        if bool(key) != bool(secret):
            raise NoCredentialsError
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            # Services other than Amazon's know neither bucket names in host names nor trailers.
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return Session(
            aws_access_key_id=key, aws_secret_access_key=secret, region_name=region
        ).client("s3", endpoint_url=address.endpoint, config=config)

    return S3Files(home, address, new_client, rows, now)


def _digest(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _write_atomically(target: Path, body: Any) -> str:
    """Returns the digest of what was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(_PART.format(secrets.token_hex(6)))
    written = hashlib.sha256()
    try:
        with part.open("xb") as file:
            for chunk in body.iter_chunks(1024 * 1024):
                file.write(chunk)
                written.update(chunk)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        body.close()
    return written.hexdigest()
