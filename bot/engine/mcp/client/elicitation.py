"""Asks people what an MCP server wants to know during a call, on the card of a worker's question.

A server's words are untrusted: it gets a few plain values or a yes, and never a secret."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bot.engine.llm.tool_calls import (
    CallAuthorizer,
    CallKind,
    CallVerdict,
    ToolCall,
    find_argument_error,
)
from bot.engine.permissions.requests import MAX_OPTIONS
from bot.engine.web.urls import parse_url
from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Language

MAX_FIELDS = 8
_MAX_TRIES = 3
_MAX_MESSAGE_CHARS = 600
_MAX_LABEL_CHARS = 120
_MAX_ANSWER_CHARS = 2_000
_MAX_CHOICES = 30
_SECRET = re.compile(
    r"pass[\s_-]?(?:word|phrase|code)|\bpwd\b|secret|credential|token|api[\s_-]?key|access[\s_-]?key"
    r"|private[\s_-]?key|\bpin\b|\botp\b|\b2fa\b|\bcvv\b|\bcvc\b|card[\s_-]?number|seed[\s_-]?phrase"
    r"|口令|密码|密钥|令牌|验证码|卡号|私钥|助记词",
    re.IGNORECASE,
)
_YES, _NO = {"yes", "y", "true", "ok", "是", "对", "好"}, {"no", "n", "false", "否", "不"}
_TYPES = ("string", "integer", "number", "boolean", "array")
_OWN_HOSTS = {"localhost", "127.0.0.1", "::1"}


InputHandler: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Returns the result for the parameters of `elicitation/create`."""


class ElicitationDeclined(Exception):
    """Nobody is asked for this; the message is the end of a text key."""


class _EndedWithoutAnswer(Exception):
    def __init__(self, action: str) -> None:
        self.action = action
        super().__init__(action)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One value that a server asks for. `choices` are its values by the labels that are shown."""

    name: str
    label: str
    about: str
    schema: Mapping[str, Any]
    choices: Mapping[str, str]
    is_required: bool

    def describe(self, words: TextCatalog) -> str:
        """The field's name, what it is for, and the choices that are too many for buttons."""
        text = f"{self.label}: {self.about}".rstrip(": ")
        if self.schema["type"] == "array" or len(self.choices) > MAX_OPTIONS - 1:
            listed = ", ".join(self.choices)
            key = "several" if self.schema["type"] == "array" else "one_of"
            text += f"\n{words(f'mcp.input.{key}', choices=listed)}"
        elif self.schema["type"] in {"integer", "number"}:
            text += f" ({words('mcp.input.number')})"
        return text

    def options(self, words: TextCatalog) -> tuple[str, ...]:
        if self.schema["type"] == "boolean":
            return (words("mcp.input.yes"), words("mcp.input.no"))
        is_single = self.schema["type"] == "string" and len(self.choices) < MAX_OPTIONS
        return tuple(self.choices) if is_single else ()

    def parse(self, answer: str, words: TextCatalog) -> Any:
        """Raises ValueError, also for a value outside the field's limits."""
        text = answer.strip()
        value: Any = text
        match self.schema["type"]:
            case "array":
                parts = (each.strip() for each in re.split(r"[,，、\n]", text))
                value = [self._choose(each) for each in parts if each]
            case "boolean":
                yes, no = words("mcp.input.yes").casefold(), words("mcp.input.no").casefold()
                if text.casefold() not in {*_YES, *_NO, yes, no}:
                    raise ValueError
                value = text.casefold() in {*_YES, yes}
            case "integer":
                value = int(text)
            case "number":
                value = float(text)
                if not math.isfinite(value):
                    raise ValueError
            case _ if self.choices:
                value = self._choose(text)
        if find_argument_error(self.schema, value) or not self._has_size(value):
            raise ValueError
        return value

    def _choose(self, text: str) -> str:
        for label, value in self.choices.items():
            if text.casefold() in {label.casefold(), value.casefold()}:
                return value
        raise ValueError

    def _has_size(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value) >= int(self.schema.get("minLength", 0))
        if isinstance(value, list):
            least, most = self.schema.get("minItems", 0), self.schema.get("maxItems", _MAX_CHOICES)
            return bool(least <= len(value) <= most)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitor:
    """Asks the person of one run. A question that is not answered within `patience` seconds is
    withdrawn."""

    permit: CallAuthorizer
    language: Language
    patience: float = 300.0

    async def answer(self, server: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result for the parameters of `elicitation/create`. Raises
        ElicitationDeclined."""
        message = _clean(request.get("message"), _MAX_MESSAGE_CHARS)
        try:
            if request.get("mode") == "url":
                return await self._ask_for_visit(server, message, str(request.get("url") or ""))
            fields = parse_fields(request.get("requestedSchema"), message)
            return await self._ask_for_values(server, message, fields)
        except _EndedWithoutAnswer as end:
            return {"action": end.action}

    async def _ask_for_values(
        self, server: str, message: str, fields: Sequence[_Field]
    ) -> dict[str, Any]:
        words = catalog_for(self.language)
        head = words("mcp.input.asks", server=server, message=message)
        if not fields:
            await self._ask_for_yes(head, words("mcp.input.yes"))
        content: dict[str, Any] = {}
        for number, each in enumerate(fields, start=1):
            place = f" ({number}/{len(fields)})" if len(fields) > 1 else ""
            value = await self._ask_for_value(f"{head}\n\n{each.describe(words)}{place}", each)
            if value is not None:
                content[each.name] = value
        return {"action": "accept", "content": content}

    async def _ask_for_value(self, question: str, wanted: _Field) -> Any:
        """Return None if an optional field is skipped."""
        words = catalog_for(self.language)
        skip = words("mcp.input.skip")
        options = wanted.options(words) + (() if wanted.is_required else (skip,))
        hint = ""
        for _ in range(_MAX_TRIES):
            answer = await self._ask(f"{question}{hint}", options)
            if not wanted.is_required and answer.strip().casefold() == skip.casefold():
                return None
            try:
                return wanted.parse(answer, words)
            except ValueError:
                hint = f"\n\n{words('mcp.input.again', answer=_clean(answer, _MAX_LABEL_CHARS))}"
        raise _EndedWithoutAnswer("cancel")

    async def _ask_for_visit(self, server: str, message: str, address: str) -> dict[str, Any]:
        url = parse_url(address)
        if url is None or (url.scheme != "https" and url.host not in _OWN_HOSTS):
            raise ElicitationDeclined("address")
        words = catalog_for(self.language)
        facts = {"server": server, "message": message, "host": url.site, "url": str(url)}
        await self._ask_for_yes(words("mcp.input.visit", **facts), words("mcp.input.visited"))
        return {"action": "accept"}

    async def _ask_for_yes(self, question: str, option: str) -> None:
        answer = (await self._ask(question, (option,))).strip().casefold()
        if answer not in _YES and answer != option.casefold():
            raise _EndedWithoutAnswer("decline")

    async def _ask(self, question: str, options: Sequence[str]) -> str:
        call = ToolCall(
            call_id=f"elicitation-{secrets.token_hex(8)}",
            name="ask_user",
            arguments={"question": question, "options": list(options)},
            kind=CallKind.ASK,
            title="ask_user",
            detail=question,
        )
        answer = ""
        try:
            decision = await self.permit(call, wait_seconds=self.patience)
            if decision.verdict is CallVerdict.ANSWER:
                answer = decision.text
        finally:
            # Its answer serves this request only; without one the question is withdrawn.
            await self.permit.record_outcome(
                call.call_id, succeeded=bool(answer), outcome=answer or "not answered"
            )
        if not answer:
            is_late = decision.verdict is CallVerdict.PENDING
            raise _EndedWithoutAnswer("cancel" if is_late else "decline")
        return answer


def parse_fields(schema: object, message: str) -> tuple[_Field, ...]:
    """Return the fields of a form. Raises ElicitationDeclined for one that asks for too much or for
    a secret, or that is not a flat form."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(found, Mapping) or len(found) > MAX_FIELDS:
        raise ElicitationDeclined("form")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    return tuple(_parse_field(str(name), each, message, names) for name, each in found.items())


def _parse_field(name: str, data: object, message: str, required: Sequence[Any]) -> _Field:
    if not isinstance(data, Mapping) or data.get("type") not in _TYPES:
        raise ElicitationDeclined("form")
    kind = data["type"]
    source = data.get("items") if kind == "array" else data
    choices = _parse_choices(source if isinstance(source, Mapping) else {})
    texts = [_clean(data.get(key), _MAX_LABEL_CHARS) for key in ("title", "description")]
    spoken = " ".join((name, *texts, str(data.get("format"))))
    is_free = kind in {"string", "integer", "number"} and not choices
    if is_free and (_SECRET.search(spoken) or _SECRET.search(message)):
        raise ElicitationDeclined("secret")
    if kind == "array" and not choices:
        raise ElicitationDeclined("form")
    limits = {
        key: limit
        for key in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
        if isinstance(limit := data.get(key), int | float) and math.isfinite(limit)
    }
    return _Field(
        name=name,
        label=texts[0] or _clean(name, _MAX_LABEL_CHARS),
        about=texts[1],
        schema={"type": kind, "maxLength": _MAX_ANSWER_CHARS, **limits},
        choices=choices,
        is_required=name in required,
    )


def _parse_choices(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Values by the labels that are shown. Raises ElicitationDeclined for too many."""
    titled = data.get("oneOf") or data.get("anyOf")
    if isinstance(titled, list):
        pairs = [
            (each.get("title") or each.get("const"), each.get("const"))
            for each in titled
            if isinstance(each, Mapping)
        ]
    else:
        values, labels = (
            each if isinstance(each := data.get(key), list) else [] for key in ("enum", "enumNames")
        )
        names = labels if len(labels) == len(values) else values
        pairs = list(zip(names, values, strict=True))
    if len(pairs) > _MAX_CHOICES:
        raise ElicitationDeclined("form")
    return {
        _clean(label, _MAX_LABEL_CHARS): value
        for label, value in pairs
        if isinstance(value, str) and isinstance(label, str)
    }


def _clean(data: object, limit: int) -> str:
    text = data if isinstance(data, str) else ""
    shown = "".join(each if each.isprintable() else " " for each in text[: limit * 4])
    return " ".join(shown.split())[:limit]
