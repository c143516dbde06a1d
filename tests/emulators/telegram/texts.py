"""Message text as the Bot API checks it: UTF-16 lengths, entities, trimming."""

from __future__ import annotations

import re
from typing import Any

from tests.emulators.telegram.errors import bad_request

TextEntity = dict[str, Any]

MAX_TEXT = 4096
MAX_CAPTION = 1024
MAX_ENTITIES = 100

_TYPES = frozenset(
    {
        *("mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number"),
        *("bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre"),
        *("blockquote", "expandable_blockquote", "text_link", "text_mention"),
        *("custom_emoji", "date_time"),
    }
)
_INVISIBLE = " \t\r\n\v\f\u00a0\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u2800"
_HOST = re.compile(r"[^\s/?#@:\[\]]+\.[^\s/?#@:\[\].]+")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://(.*)", re.DOTALL)


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_slice(text: str, start: int, end: int) -> str:
    """The part of a text between two UTF-16 offsets."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw[start * 2 : end * 2].decode("utf-16-le", "surrogatepass")


def check_text(text: str, entities: list[TextEntity], limit: int) -> tuple[str, list[TextEntity]]:
    """Trimmed text with its entities; refuses what the Bot API refuses."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise bad_request("strings must be encoded in UTF-8")
    check_entities(text, entities)
    trimmed, kept = _trim(text.replace("\r", ""), entities)
    if utf16_length(trimmed) > limit:
        raise bad_request(
            "message is too long" if limit == MAX_TEXT else "message caption is too long"
        )
    return trimmed, kept


def is_empty(text: str) -> bool:
    return not text.strip(_INVISIBLE)


def check_entities(text: str, entities: list[TextEntity]) -> None:
    if len(entities) > MAX_ENTITIES:
        raise bad_request("ENTITIES_TOO_LONG")
    for entity in entities:
        _check_entity(text, entity)
    _check_nesting(entities)


def _check_entity(text: str, entity: TextEntity) -> None:
    kind, offset, length = entity.get("type"), entity.get("offset"), entity.get("length")
    if kind not in _TYPES:
        raise bad_request("can't parse MessageEntity: Unsupported type specified")
    for name, value in (("offset", offset), ("length", length)):
        if not isinstance(value, int):
            raise bad_request(f"can't parse MessageEntity: Can't find field \"{name}\"")
    assert isinstance(offset, int)
    assert isinstance(length, int)
    if offset < 0 or length <= 0:
        raise bad_request(f"receive an entity with incorrect offset {offset} or length {length}")
    total = utf16_length(text)
    if offset >= total:
        raise bad_request(f"entity begins after the end of the text at UTF-16 offset {offset}")
    if offset + length > total:
        raise _ends_late(entity)
    _check_boundaries(text, offset, length)
    if kind == "text_link":
        check_link(str(entity.get("url", "")))


def _check_boundaries(text: str, offset: int, length: int) -> None:
    raw = text.encode("utf-16-le", "surrogatepass")
    for position, verb in ((offset, "begins"), (offset + length, "ends")):
        unit = raw[position * 2 : position * 2 + 2]
        if len(unit) == 2 and 0xDC <= unit[1] <= 0xDF:
            raise bad_request(f"entity {verb} in a middle of a UTF-16 symbol at {position}")


def _check_nesting(entities: list[TextEntity]) -> None:
    """Entities may nest, but not cross."""
    open_ends: list[TextEntity] = []
    for entity in sorted(entities, key=lambda e: (e["offset"], -e["length"])):
        while open_ends and _end(open_ends[-1]) <= entity["offset"]:
            open_ends.pop()
        if open_ends and _end(entity) > _end(open_ends[-1]):
            raise _ends_late(entity)
        open_ends.append(entity)


def check_link(url: str) -> None:
    """Only HTTP(S), tg:// and ton:// links with a real host are links."""
    reason = _link_error(url)
    if reason:
        raise bad_request(f"entity URL '{url}' is invalid: {reason}")


def _link_error(url: str) -> str:
    matched = _SCHEME.fullmatch(url)
    scheme, rest = (matched[1].lower(), matched[2]) if matched else ("http", url)
    if scheme in {"tg", "ton"}:
        return "" if rest else f"Wrong {scheme} URL"
    if scheme not in {"http", "https"}:
        return "Unsupported URL protocol"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    host, _, port = authority.partition(":")
    if not _HOST.fullmatch(host) or (port and not port.isdigit()):
        return "Wrong HTTP URL"
    return ""


def _end(entity: TextEntity) -> int:
    return int(entity["offset"]) + int(entity["length"])


def _ends_late(entity: TextEntity) -> Exception:
    start = entity["offset"]
    return bad_request(
        f"entity beginning at UTF-16 offset {start} ends after the end of the text"
        f" at UTF-16 offset {_end(entity)}"
    )


def _trim(text: str, entities: list[TextEntity]) -> tuple[str, list[TextEntity]]:
    """Drop white space at both ends, and move, shorten or drop the entities with it. At the start
    it stays where an entity begins."""
    if is_empty(text):
        return "", []
    lead = utf16_length(text) - utf16_length(text.lstrip(" \t\n"))
    lead = min([lead, *(entity["offset"] for entity in entities)])
    trimmed = text[lead:].rstrip(" \t\n")
    total = utf16_length(trimmed)
    kept = []
    for entity in entities:
        start = max(0, entity["offset"] - lead)
        end = min(total, _end(entity) - lead)
        if end > start:
            kept.append({**entity, "offset": start, "length": end - start})
    return trimmed, kept
