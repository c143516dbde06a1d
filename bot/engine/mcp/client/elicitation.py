"""Asks people what an MCP server wants to know during a call, on the card of a worker's question.

A server's words are untrusted: it gets a few plain values or a yes, and never a secret."""

from __future__ import annotations

import math
import re
import secrets
import unicodedata
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
from bot.engine.web import parse_url
from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Language

MAX_FIELDS = 8
_MAX_TRIES = 3
_MAX_MESSAGE_CHARS = 600
_MAX_LABEL_CHARS = 120
_MAX_ANSWER_CHARS = 2_000
_MAX_CHOICES = 30
_LOOK_ALIKES = str.maketrans("аеорсухіѕԁкмтαορνκτ", "aeopcyxisdkmtaopvkt")
_DIGITS_FOR_LETTERS = str.maketrans("0134@5$7", "oieaasst")
_SPACED_LETTERS = re.compile(r"(?<=\b\w)[\W_]+(?=\w\b)")


def _as_read(text: str) -> str:
    """In lower case, with Latin letters for look-alikes, and without what is not seen."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    seen = "".join(each for each in parts if unicodedata.category(each) not in {"Cf", "Mn"})
    return unicodedata.normalize("NFC", seen.translate(_LOOK_ALIKES))


_SECRET = re.compile(
    _as_read(
        r"pass[\s_-]?(?:word|wort|wd|phrase|code|key)|\bpwd\b|secret|credential|token|bearer"
        r"|mot de passe|contrase|пароль|パスワード|비밀번호|palavra[\s_-]?passe|\bsenha\b"
        r"|(?:api|access|private|ssh|auth|signing|encryption|recovery)[\s_-]?key"
        r"|\bpin(?:[\s_-]?code)?\b|\botp\b|\b2fa\b|\bcvv\b|\bcvc\b|card[\s_-]?number|\bssn\b"
        r"|(?:one[\s_-]?time|verification|security|recovery|backup|login|sign[\s_-]?in|auth"
        r"|authentication|authorization|confirmation)[\s_-]?code"
        r"|session[\s_-]?(?:id\b|cookie)|seed[\s_-]?(?:phrase|word)|mnemonic"
        r"|口令|密[码碼]|密[钥鑰]|令牌|[验驗][证證][码碼]|校[验驗][码碼]|[动動][态態][码碼]"
        r"|(?:安全|恢[复復]|登[录錄])[码碼]|卡[号號]|私[钥鑰]|助[记記][词詞]"
    )
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
    if is_free and (_names_a_secret(spoken) or _names_a_secret(message)):
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


def _names_a_secret(text: str) -> bool:
    read = _as_read(text)
    joined = _SPACED_LETTERS.sub("", read)
    return any(map(_SECRET.search, (read, joined, joined.translate(_DIGITS_FOR_LETTERS))))


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
    seen = (each for each in text[: limit * 4] if unicodedata.category(each) != "Cf")
    shown = "".join(each if each.isprintable() else " " for each in seen)
    return " ".join(shown.split())[:limit]
