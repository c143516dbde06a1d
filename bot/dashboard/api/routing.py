"""Typed routes: what a route takes and returns is read from its handler's annotations."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from bot.dashboard.request import DashboardRequest
from handlers.request import ChangeAuthor, Request
from storage.records.people import PersonRole

MAX_BODY_BYTES = 1024 * 1024
MAX_PAGE = 100
_MAX_KEY = 200
_KEY_HEADER = "idempotency-key"
_Model = TypeVar("_Model", bound=BaseModel)
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Any]])


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


Line = Annotated[str, Field(max_length=200), AfterValidator(_check_text)]
Words = Annotated[str, Field(max_length=100_000), AfterValidator(_check_text)]


class ApiModel(BaseModel):
    """A body or an answer. Unknown fields are refused, so that no misspelt one is ignored."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class PageQuery(ApiModel):
    limit: int = Field(default=20, ge=1, le=MAX_PAGE)
    cursor: str = Field(default="", max_length=500, description="`next` of the page before")


class ApiProblem(Exception):
    """A refusal of the API itself, with its texts under `api.<key>`. `fields` are the wrong
    ones."""

    def __init__(
        self, status: int, key: str, *, fields: tuple[dict[str, str], ...] = (), **facts: object
    ) -> None:
        self.status, self.key, self.fields, self.facts = status, key, fields, facts
        super().__init__(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One call. Changes are recorded under `source`: the same `Idempotency-Key` is the same
    change."""

    request: DashboardRequest
    source: str

    async def first_time(self) -> datetime:
        """When this change was asked for first: now, unless the `Idempotency-Key` was seen before.
        It is stored before the change is made, so that a repeat makes the same one."""
        if _KEY_HEADER not in self.request.http.headers:
            return self.request.now
        return await self.request.deps.first_time(self.source)

    @property
    def author(self) -> ChangeAuthor:
        return {"by": self.request.person, "source": self.source}

    @property
    def command(self) -> Request:
        return self.request.command(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """`answer` None: there is no content, or it is no JSON (`media`). A `guarded` one changes only
    the version that the header `If-Match` names."""

    method: str
    path: str
    tag: str
    handler: Callable[..., Awaitable[Any]]
    query: type[BaseModel] | None
    body: type[BaseModel] | None
    answer: type[BaseModel] | None
    status: int
    role: PersonRole
    media: str
    guarded: bool

    @property
    def name(self) -> str:
        return str(self.handler.__name__)

    @property
    def path_parts(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class ApiRoutes:
    """Collects the routes of one noun. A handler takes the ApiCall, then the parts of its path, and
    `query` or `body` as annotated."""

    tag: str
    all: list[ApiRoute] = field(default_factory=list)

    def __call__(
        self,
        method: str,
        path: str,
        *,
        status: int = 200,
        role: PersonRole = PersonRole.MEMBER,
        media: str = "application/json",
        guarded: bool = False,
    ) -> Callable[[_Handler], _Handler]:
        def add(handler: _Handler) -> _Handler:
            hints = get_type_hints(handler)
            answer = hints["return"]
            is_model = isinstance(answer, type) and issubclass(answer, BaseModel)
            route = ApiRoute(
                method=method,
                path=f"/api/v1{path}",
                tag=self.tag,
                handler=handler,
                query=hints.get("query"),
                body=hints.get("body"),
                answer=answer if is_model else None,
                status=status if is_model or media != "application/json" else 204,
                role=role,
                media=media,
                guarded=guarded,
            )
            self.all.append(route)
            return handler

        return add


async def call_route(route: ApiRoute, request: DashboardRequest) -> Response:
    http = request.http
    arguments: dict[str, Any] = {name: http.path_params[name] for name in route.path_parts}
    if route.query is not None:
        arguments["query"] = _validate(route.query, dict(http.query_params))
    if route.body is not None:
        arguments["body"] = _validate(route.body, await _read_json(http))
    call = ApiCall(request=request, source=_idempotent_source(http, request.person.id))
    result = await route.handler(call, **arguments)
    if isinstance(result, Response):
        return result
    headers = {"cache-control": "no-store"}
    if result is None:
        return Response(status_code=204, headers=headers)
    return Response(
        result.model_dump_json(),
        status_code=route.status,
        media_type="application/json",
        headers=headers,
    )


def problem_response(
    status: int,
    kind: str,
    title: str,
    detail: str,
    *,
    fields: tuple[dict[str, str], ...] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """As RFC 9457 says."""
    kind = f"urn:shiftboss:problem:{kind.replace('_', '-')}"
    content: dict[str, Any] = {"type": kind, "title": title, "status": status, "detail": detail}
    if fields:
        content["errors"] = list(fields)
    return JSONResponse(
        content,
        status_code=status,
        media_type="application/problem+json",
        headers={"cache-control": "no-store", **(headers or {})},
    )


def read_if_match(http: HttpRequest) -> str:
    """The version that a change is based on; empty without the header, `*` for any."""
    return http.headers.get("if-match", "").strip().removeprefix("W/").strip('"')


def make_cursor(*parts: str) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def read_cursor(cursor: str, length: int) -> tuple[str, ...]:
    """The parts of a cursor that was made from so many. Raises ApiProblem."""
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as error:
        raise ApiProblem(400, "bad_cursor") from error
    if not (isinstance(parts, list) and len(parts) == length):
        raise ApiProblem(400, "bad_cursor")
    return tuple(map(str, parts))


def time_cursor(at: datetime, id_: str) -> str:
    return make_cursor(at.isoformat(), id_)


def read_time_cursor(cursor: str) -> tuple[datetime, str] | None:
    """None without a cursor. Raises ApiProblem."""
    if not cursor:
        return None
    text, id_ = read_cursor(cursor, 2)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ApiProblem(400, "bad_cursor") from error
    if at.tzinfo is None:
        raise ApiProblem(400, "bad_cursor")
    return at, id_


def _validate(model: type[_Model], values: Any) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = tuple(
            {"field": ".".join(map(str, each["loc"]))[:200], "message": each["msg"][:200]}
            for each in error.errors(include_url=False, include_input=False)[:20]
        )
        names = ", ".join(dict.fromkeys(each["field"] or "body" for each in wrong))
        raise ApiProblem(422, "wrong_fields", fields=wrong, names=names) from error


async def _read_json(http: HttpRequest) -> Any:
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    found = bytearray()
    async for chunk in http.stream():
        found += chunk
        if len(found) > MAX_BODY_BYTES:
            raise ApiProblem(413, "too_large", limit=MAX_BODY_BYTES)
    if not found:
        return {}
    if kind != "application/json":
        raise ApiProblem(415, "wrong_type")
    try:
        text = found.decode("utf-8")
        text.encode()
        value = json.loads(text, parse_constant=_refuse_constant)
        # Halves of surrogate pairs can be written in JSON, but not be stored.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ApiProblem(400, "bad_json") from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _idempotent_source(http: HttpRequest, person: str) -> str:
    """The source of what is made, the same for a repeated key of the person. Refuses keys that are
    too long or not printable."""
    key = http.headers.get(_KEY_HEADER, "")
    if not key:
        return f"api:{person}:{secrets.token_hex(16)}"
    if len(key) > _MAX_KEY or not key.isprintable():
        raise ApiProblem(400, "bad_key", limit=_MAX_KEY)
    what = f"{http.method} {http.url.path} {key}".encode("utf-8", "replace")
    return f"api:{person}:{hashlib.sha256(what).hexdigest()[:32]}"
