"""Is this card one that the platform would accept?"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Container
from typing import Any

from tests.emulators.feishu.card_schema import (
    COMPONENTS,
    PARSE,
    ROOT,
    anything,
    margin,
    refuse,
    shape,
)
from tests.emulators.feishu.refusals import CardRefused

MAX_BYTES = 30 * 1024
MAX_COMPONENTS = 200
MAX_TABLES = 5
MAX_MARKDOWN_TABLES = 3
MAX_DEPTH = 5
TOO_MANY = 11310
TOO_LARGE = 200860
UNSUPPORTED_TAG = 200861
BAD_IMAGE = 200570
BAD_PERSON = 100290
NAMELESS = 200530
SCHEMA_MIX = 200830

_ELEMENT_ID = re.compile(r"[A-Za-z]\w{0,19}", re.ASCII)
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]*)[^)]*\)")
_AT = re.compile(r"<at\s+(?:id|user_id)=[\"']?([^\"'\s>]*)")
_HEX = re.compile(r"<(?:font|text_tag)[^>]*color=[\"']?#", re.IGNORECASE)
_TABLE_RULE = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_ROOT_ONLY = {"table", "form"}
_V1_TAGS = {"action", "note"}


class KnownReferences:
    """The things that a card may refer to: image keys and people of this tenant."""

    def __init__(self, images: Container[str], people: Container[str]) -> None:
        self.images = images
        self.people = people


def check_card(card: Any, known: KnownReferences) -> None:
    """Raise `CardRefused` for anything but a valid card JSON 2.0."""
    if not isinstance(card, dict):
        raise CardRefused(PARSE, "card is not an object")
    if len(json.dumps(card, ensure_ascii=False).encode()) > MAX_BYTES:
        raise CardRefused(TOO_LARGE, "card content is over 30 KB")
    CardWalk(known).root(card)


def check_elements(elements: Any, known: KnownReferences) -> None:
    """As `check_card`, for elements that are to be added to a card."""
    CardWalk(known).elements("ROOT -> elements", elements)


class CardWalk:
    """One pass over one card: counts, collects ids and names, follows nesting."""

    def __init__(self, known: KnownReferences) -> None:
        self._known = known
        self._ids: set[str] = set()
        self._names: set[str] = set()
        self._count = 0
        self._tables = 0
        self._markdown_tables = 0
        self._containers: list[str] = []
        self._in_form = False

    def root(self, card: dict[str, Any]) -> None:
        ROOT(self, "ROOT", card)

    def elements(self, path: str, value: Any) -> None:
        if not isinstance(value, list):
            raise refuse(path, "elements is not a list")
        for index, node in enumerate(value):
            where = f"{path} -> [{index}]"
            if isinstance(node, dict) and node.get("tag") in _INLINE_ONLY:
                raise refuse(where, f"not support tag: {node['tag']}", UNSUPPORTED_TAG)
            self.component(where, node, None)

    def component(self, path: str, node: Any, tags: tuple[str, ...] | None) -> None:
        if not isinstance(node, dict):
            raise refuse(path, "component is not an object")
        tag = node.get("tag")
        spec = COMPONENTS.get(tag) if isinstance(tag, str) else None
        if spec is None or (tags is not None and tag not in tags):
            problem = f"unsupported tag {tag}"
            if tag in _V1_TAGS:
                problem = f"cards of schema V2 no longer support this capability; {problem}"
            raise refuse(path, problem, UNSUPPORTED_TAG)
        assert isinstance(tag, str)
        self._enter(path, tag, node)
        allowed = {"tag": anything, "element_id": anything, "margin": margin, **spec.fields}
        if spec.container:
            self._containers.append(tag)
        outside_form, self._in_form = self._in_form, self._in_form or tag == "form"
        shape(allowed, *spec.required)(self, path, node)
        self._in_form = outside_form
        if spec.container:
            self._containers.pop()

    def image_key(self, path: str, value: Any) -> None:
        if value not in self._known.images:
            raise refuse(path, f"card contains invalid image key {value}", BAD_IMAGE)

    def _enter(self, path: str, tag: str, node: dict[str, Any]) -> None:
        self._count += 1
        if self._count > MAX_COMPONENTS:
            raise refuse(path, "card component number over limit", TOO_MANY)
        self._check_id(path, node)
        self._check_place(path, tag)
        if COMPONENTS[tag].input and self._in_form:
            self._check_name(path, node)
        if tag == "table":
            self._check_table(path, node)
        if tag == "multi_select_static" and not self._in_form:
            raise refuse(path, "multi select must be in a form")
        if tag in ("markdown", "lark_md"):
            self._check_markdown(path, str(node.get("content", "")))

    def _check_id(self, path: str, node: dict[str, Any]) -> None:
        if "element_id" not in node:
            return
        own = node["element_id"]
        if not isinstance(own, str) or not _ELEMENT_ID.fullmatch(own):
            raise refuse(path, f"element_id {own!r} is invalid", 300302)
        if own in self._ids:
            raise refuse(path, f"element_id {own!r} is not unique", 300301)
        self._ids.add(own)

    def _check_place(self, path: str, tag: str) -> None:
        if tag in _ROOT_ONLY and self._containers:
            raise refuse(path, f"{tag} may only be in body.elements")
        if COMPONENTS[tag].container and len(self._containers) >= MAX_DEPTH:
            raise refuse(path, "containers are nested too deep")

    def _check_name(self, path: str, node: dict[str, Any]) -> None:
        name = node.get("name")
        if not name or not isinstance(name, str):
            raise refuse(path, "form member without a name", NAMELESS)
        if name in self._names:
            raise refuse(path, f"name {name!r} is not unique", NAMELESS)
        self._names.add(name)

    def _check_table(self, path: str, node: dict[str, Any]) -> None:
        self._tables += 1
        if self._tables > MAX_TABLES:
            raise refuse(path, "card table number over limit", TOO_MANY)
        columns = node.get("columns")
        rows = node.get("rows")
        if not isinstance(columns, list) or not isinstance(rows, list):
            return
        types = {
            column.get("name"): column.get("data_type")
            for column in columns
            if isinstance(column, dict)
        }
        for row in rows:
            for key, value in row.items() if isinstance(row, dict) else ():
                if key not in types:
                    raise refuse(path, f"table row has unknown column {key}", 200915)
                self._check_cell(path, types[key], value)

    def _check_cell(self, path: str, kind: Any, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            "number": number,
            "date": number,
            "options": isinstance(value, list | str),
            "persons": isinstance(value, list | str),
        }.get(kind, isinstance(value, str))
        if not fits:
            raise refuse(path, f"table cell {value!r} is no {kind}", 200914)
        if kind in ("markdown", "lark_md"):
            self._check_markdown(path, value)

    def _check_markdown(self, path: str, content: str) -> None:
        lines = _outside_fences(content)
        prose = "\n".join(re.sub(r"`[^`]*`", "", line) for line in lines)
        for image in _IMAGE.findall(prose):
            if image not in self._known.images:
                raise refuse(path, f"card contains invalid image key {image}", BAD_IMAGE)
        for person in _AT.findall(prose):
            if person != "all" and person not in self._known.people:
                raise refuse(path, f"invalid user id {person}", BAD_PERSON)
        if _HEX.search(prose):
            raise refuse(path, "hex colours are not supported")
        self._markdown_tables += _count_tables(lines)
        if self._markdown_tables > MAX_MARKDOWN_TABLES:
            raise refuse(path, "card table number over limit", TOO_MANY)


_INLINE_ONLY = {"plain_text", "lark_md", "standard_icon", "custom_icon", "text_tag", "column"}


def _count_tables(lines: list[str]) -> int:
    tables, inside = 0, False
    for before, line in itertools.pairwise(["", *lines]):
        if inside:
            inside = "|" in line
        elif "|" in before and "|" in line and _TABLE_RULE.match(line):
            tables, inside = tables + 1, True
    return tables


def _outside_fences(content: str) -> list[str]:
    kept = []
    fence: str | None = None
    for line in content.split("\n"):
        start = line.lstrip()
        if fence is not None:
            if start.startswith(fence):
                fence = None
        elif start.startswith(("```", "~~~")):
            fence = re.match(r"`+|~+", start).group()  # type: ignore[union-attr] # matched above
        else:
            kept.append(line)
    return kept
