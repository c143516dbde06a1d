"""A node that sends one HTTP request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import JsonValue

from bot.engine.llm.tool_calls import CallKind
from bot.engine.workflow.expressions.evaluator import template_expressions
from bot.engine.workflow.expressions.operations import ExpressionError, value_as_text
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue, scalar_text
from bot.engine.workflow.nodes.contract import (
    CallArguments,
    CallTypeSpec,
    EvaluationContext,
    NodeConfig,
)
from bot.engine.workflow.nodes.shared_settings import expression_issues, fill_text, fill_value

METHODS = ("get", "head", "post", "put", "patch", "delete")
_READ_METHODS = frozenset({"get", "head"})
_MAX_HEADERS = 20
_MAX_HEADER = 2_000
_MAX_BODY = 200_000
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,60}")
_OWN_HEADERS = {
    "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
    "accept-encoding", "expect", "proxy-authorization", "proxy-connection",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig(NodeConfig):
    """One request. `body` is a text, or data that is sent as JSON. With `fail_on_error` a status
    from 400 fails the node."""

    kind: Literal["http"] = "http"
    url: str
    method: str = "get"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonValue = None
    fail_on_error: bool = True


class HttpNode(CallTypeSpec[HttpConfig]):
    """Sends one HTTP request without a model, with the permissions and address checks of the tool
    web_fetch. Anything but GET and HEAD is asked about unless a rule allows it."""

    name = "http"
    config = HttpConfig
    markdown_names = ("请求",)
    foreign_names = ("webhook", "request", "api", "fetch", "url")
    shorthand = "url"
    telling_fields = ("url",)
    fields = ("url", "method")
    inline_fields = ("headers", "body", "failOnError")
    example = """\
nodes:
  - {id: rates, type: http, url: "https://example.com/rates.json"}
  - {id: use, name: "Explain {{outputs.rates.json}}"}
"""

    def read(self, block: FieldReader) -> HttpConfig:
        headers = {
            name: scalar_text(value) or ""
            for name, value in (block.mapping("headers") or {}).items()
        }
        return HttpConfig(
            url=block.word("url"),
            method=block.one_of(METHODS, "method", default="get"),
            headers=headers,
            body=block.value("body"),
            fail_on_error=block.boolean("failOnError", default=True),
        )

    def write(self, config: HttpConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"url": config.url, "method": config.method}
        if config.headers:
            data["headers"] = dict(config.headers)
        if config.body is not None:
            data["body"] = config.body
        return data if config.fail_on_error else data | {"failOnError": False}

    def check(self, config: HttpConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        if not config.url:
            yield ValidationIssue(key="missing", field="url")
        if len(config.headers) > _MAX_HEADERS:
            facts = {"least": 0, "most": _MAX_HEADERS}
            yield ValidationIssue(key="out_of_range", field="headers", facts=facts)
        for name in config.headers:
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                yield ValidationIssue(key="bad_header", field="headers", facts={"name": name[:60]})
        if config.body is not None and config.method in _READ_METHODS:
            yield ValidationIssue(key="no_body_here", field="body")
        for name, text in self.expressions(config):
            yield from expression_issues(text, name)

    def expressions(self, config: HttpConfig) -> Iterable[tuple[str, str]]:
        body = config.body if isinstance(config.body, str) else json.dumps(config.body)
        headers = "\n".join(config.headers.values())
        return template_expressions(url=config.url, headers=headers, body=body)

    def rewrite(
        self, config: HttpConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> HttpConfig:
        return replace(
            config,
            url=text(config.url),
            headers={name: text(value) for name, value in config.headers.items()},
            body=_map_texts(config.body, text),
        )

    def is_repeatable(self, settings: HttpConfig) -> bool:
        return settings.method in _READ_METHODS

    def fill(self, config: HttpConfig, context: EvaluationContext) -> HttpConfig:
        headers = {name: fill_text(value, context) for name, value in config.headers.items()}
        for name, value in headers.items():
            if len(value) > _MAX_HEADER or not value.isprintable() or not value.isascii():
                raise ExpressionError(f"the value of the header {name} cannot be sent")
        body = None
        if config.body is not None:
            given = _map_texts(config.body, lambda each: fill_value(each, context))
            is_text = isinstance(config.body, str) and not isinstance(given, list | Mapping)
            body = value_as_text(given) if is_text else json.dumps(given, ensure_ascii=False)
            if len(body) > _MAX_BODY:
                raise ExpressionError(f"the body has more than {_MAX_BODY} characters")
            is_json = not is_text and "content-type" not in {name.lower() for name in headers}
            headers |= {"Content-Type": "application/json"} if is_json else {}
        return replace(config, url=fill_text(config.url, context), headers=headers, body=body)

    def call(self, config: HttpConfig) -> CallArguments:
        if config.method == "get" and not config.headers:
            arguments: dict[str, Any] = {"url": config.url}
            return CallArguments(tool="web_fetch", kind=CallKind.FETCH, arguments=arguments)
        arguments = {"method": config.method.upper(), "url": config.url}
        headers = {"headers": dict(config.headers)} if config.headers else {}
        body = {"body": config.body} if config.body is not None else {}
        kind = CallKind.FETCH if config.method in _READ_METHODS else CallKind.OTHER
        arguments |= {**headers, **body}
        return CallArguments(tool="http_request", kind=kind, arguments=arguments)

    def describe(self, config: HttpConfig) -> str:
        head = [f"{config.method.upper()} {config.url}"]
        head += [f"{name}: {value}" for name, value in config.headers.items()]
        return "\n".join(head) + (f"\n\n{config.body}" if config.body is not None else "")


def _map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _map_texts(each, change) for name, each in value.items()}
    return [_map_texts(each, change) for each in value] if isinstance(value, list) else value
