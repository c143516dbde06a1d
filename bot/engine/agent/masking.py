"""Secrets, taken out of whatever is shown, kept or given to a model.

Two kinds are found: the values that were configured, in each form in which they usually travel,
and the shapes of well-known keys. All searches are for literal text, so that the time taken grows
with the length of the text and with nothing else.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Iterator
from typing import TypeAlias
from urllib.parse import quote, quote_plus

from bot.engine.agent.outgoing.secret_shapes import shaped

MASK = "••••"
# Masking shorter values would garble every line and hide nothing.
_SHORTEST = 4
# A shorter piece of a secret at an edge is more likely something else.
_SHORTEST_PIECE = 8
# Of a value in base64: what its neighbours leave unchanged must still be its own.
_SHORTEST_CODED = 8

Span: TypeAlias = tuple[int, int]


class Masking:
    """Knows the configured secrets. Safe to use from any thread."""

    def __init__(self, secrets: Iterable[str]) -> None:
        held = {each for each in secrets if len(each) >= _SHORTEST}
        self._secrets = tuple(sorted(held))
        self._forms = tuple(sorted({form for each in held for form in _forms(each)}))

    def mask(self, text: str) -> str:
        """The text without any secret; itself where there is none. What it begins or ends with
        may be a piece of a configured one that was cut off there: that goes too."""
        spans = [*self._configured(text), *shaped(text)]
        return _without(text, spans) if spans else text

    def holds(self, text: str) -> bool:
        """Whether a configured secret is in it."""
        return any(form in text for form in self._forms)

    def _configured(self, text: str) -> Iterator[Span]:
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)
            yield from _cut_off(text, form)


def _cut_off(text: str, form: str) -> Iterator[Span]:
    """Where the text ends with the beginning of the secret, or begins with its end."""
    if len(form) <= _SHORTEST_PIECE:
        return
    first, last = form[:_SHORTEST_PIECE], form[-_SHORTEST_PIECE:]
    tail = max(0, len(text) - len(form) + 1)
    at = text.find(first, tail)
    while at >= 0:
        if form.startswith(text[at:]):
            yield at, len(text)
            break
        at = text.find(first, at + 1)
    at = text.rfind(last, 0, len(form) - 1)
    while at >= 0:
        if form.endswith(text[: at + len(last)]):
            yield 0, at + len(last)
            break
        at = text.rfind(last, 0, at + len(last) - 1)


def _without(text: str, spans: list[Span]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in _merged(spans):
        parts += text[done:start], MASK
        done = end
    return "".join((*parts, text[done:]))


def _merged(spans: list[Span]) -> Iterator[Span]:
    first, last = -1, -1
    for start, end in sorted(spans):
        if start > last:
            if last > first:
                yield first, last
            first, last = start, end
        else:
            last = max(last, end)
    if last > first:
        yield first, last


def _forms(secret: str) -> Iterator[str]:
    """As it is, and as it looks in a URL, in JSON, in HTML, in hex and in base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw, safe="")):
        yield from (quoted, _lower_hex(quoted))
    for ascii_only in (True, False):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
    yield html.escape(secret)
    yield from (raw.hex(), raw.hex().upper())
    yield from _base64_forms(raw)


def _lower_hex(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return "%".join((head, *(part[:2].lower() + part[2:] for part in rest)))


def _base64_forms(raw: bytes) -> Iterator[str]:
    """In the middle of something longer it may begin at any of three places in a group; only
    characters that hold nothing of its neighbours are looked for."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        whole = (before + len(raw)) * 8 // 6
        own = coded[-(-before * 8 // 6) : whole]
        if len(own) >= _SHORTEST_CODED:
            yield from (own, own.translate(_URL_SAFE))


_URL_SAFE = str.maketrans("+/", "-_")
