"""A strict object store with the interface of S3: it checks signatures, and knows one bucket."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from urllib.parse import quote
from xml.sax.saxutils import escape

from tests.emulators.feishu.http_server import HttpRequest, HttpResponse, HttpServer

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), "
    r"SignedHeaders=(?P<names>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_MAX_SKEW_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    data: bytes
    metadata: dict[str, str]
    at: datetime


@dataclass(kw_only=True, eq=False)
class S3Emulator:
    """`objects` by their keys. The next answers are these codes instead: `refusals`. Requests of
    the methods `closed_to` fail as in an outage."""

    bucket: str = "team-files"
    region: str = "us-east-1"
    key: str = "AKIDEMULATED"
    secret: str = field(default_factory=lambda: secrets.token_hex(20))
    objects: dict[str, StoredObject] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)
    closed_to: frozenset[str] = frozenset()

    async def __aenter__(self) -> Self:
        self._http = HttpServer(self._handle)
        await self._http.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.port}/{self.bucket}"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "SHIFTBOSS_S3_URL": f"{self.url}/shiftboss",
            "SHIFTBOSS_S3_KEY": self.key,
            "SHIFTBOSS_S3_SECRET": self.secret,
        }

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self.refusals:
            return _refuse(request, *self.refusals.pop(0))
        if request.method in self.closed_to:
            return _refuse(request, 503, "SlowDown")
        if (problem := self._check_signature(request)) is not None:
            return _refuse(request, 403, problem)
        bucket, _, key = request.path.lstrip("/").partition("/")
        if bucket != self.bucket:
            return _refuse(request, 404, "NoSuchBucket")
        match request.method:
            case "HEAD" if not key:
                return HttpResponse(headers={"x-amz-bucket-region": self.region})
            case "GET" if not key and request.query.get("list-type") == "2":
                return self._list(
                    request.query["prefix"], request.query.get("continuation-token", "")
                )
            case "DELETE" if key:
                self.objects.pop(key, None)
                return HttpResponse(status=204)
            case "PUT" if key:
                return self._put(request, key)
            case "GET" | "HEAD" if key in self.objects:
                return self._get(request, key)
            case "GET" | "HEAD" if key:
                return _refuse(request, 404, "NoSuchKey")
            case _:
                return _refuse(request, 405, "MethodNotAllowed")

    def _put(self, request: HttpRequest, key: str) -> HttpResponse:
        prefix = "x-amz-meta-"
        metadata = {k: v for k, v in request.headers.items() if k.startswith(prefix)}
        at = datetime.now(UTC).replace(microsecond=0)
        self.objects[key] = StoredObject(data=request.body, metadata=metadata, at=at)
        return HttpResponse(headers={"etag": _etag(request.body)})

    def _list(self, prefix: str, after: str) -> HttpResponse:
        """Two at a time."""
        keys = sorted(each for each in self.objects if each.startswith(prefix) and each > after)
        shown, more = keys[:2], keys[2:]
        body = "".join(f"<Contents><Key>{escape(each)}</Key></Contents>" for each in shown)
        if more:
            body += f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>"
        body += f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
        return HttpResponse(
            body=f"<ListBucketResult>{body}</ListBucketResult>".encode(),
            headers={"content-type": "application/xml"},
        )

    def _get(self, request: HttpRequest, key: str) -> HttpResponse:
        found = self.objects[key]
        headers = {
            **found.metadata,
            "etag": _etag(found.data),
            "last-modified": f"{found.at:%a, %d %b %Y %H:%M:%S} GMT",
            "content-length": str(len(found.data)),
        }
        return HttpResponse(body=found.data * (request.method == "GET"), headers=headers)

    def _check_signature(self, request: HttpRequest) -> str | None:
        """The code of what is wrong with it (Signature Version 4)."""
        found = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if found is None:
            return "AccessDenied"
        if found["key"] != self.key:
            return "InvalidAccessKeyId"
        stamp = request.headers["x-amz-date"]
        sent = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs((datetime.now(UTC) - sent).total_seconds()) > _MAX_SKEW_SECONDS:
            return "RequestTimeTooSkewed"
        digest = request.headers["x-amz-content-sha256"]
        if digest not in {"UNSIGNED-PAYLOAD", hashlib.sha256(request.body).hexdigest()}:
            return "XAmzContentSHA256Mismatch"
        if found["scope"] != f"{stamp[:8]}/{self.region}/s3/aws4_request":
            return "AuthorizationHeaderMalformed"
        names = found["names"].split(";")
        canonical = "\n".join(
            (
                request.method,
                quote(request.path, safe="/-_.~"),
                "&".join(
                    f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}"
                    for k, v in sorted(request.query.items())
                ),
                *(f"{name}:{' '.join(request.headers[name].split())}" for name in names),
                "",
                found["names"],
                digest,
            )
        )
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{found['scope']}\n{hashed}"
        signing = f"AWS4{self.secret}".encode()
        for part in found["scope"].split("/"):
            signing = hmac.digest(signing, part.encode(), "sha256")
        right = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
        return None if hmac.compare_digest(right, found["signature"]) else "SignatureDoesNotMatch"


def _refuse(request: HttpRequest, status: int, code: str) -> HttpResponse:
    body = f"<Error><Code>{code}</Code><Message>refused</Message></Error>".encode()
    headers = {"content-type": "application/xml"}
    return HttpResponse(
        status=status, body=b"" if request.method == "HEAD" else body, headers=headers
    )


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
