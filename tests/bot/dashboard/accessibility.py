"""Checks the HTML of a page for what people with a screen reader or a keyboard need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"})
NAMED_INPUTS = frozenset({"input", "select", "textarea"})
LANDMARKS = ("header", "nav", "main")
REFERENCES = ("aria-labelledby", "aria-describedby", "aria-controls", "for")


@dataclass(eq=False)
class Element:
    tag: str
    attributes: Mapping[str, str]
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    own_text: str = ""

    def walk(self) -> Iterator[Element]:
        yield self
        for each in self.children:
            yield from each.walk()

    def above(self) -> Iterator[Element]:
        if self.parent is not None:
            yield self.parent
            yield from self.parent.above()

    @property
    def text(self) -> str:
        """As it is read out: pictures by their `alt`, hidden parts not at all."""
        if self.get("aria-hidden") == "true":
            return ""
        own = self.get("alt") if self.tag == "img" else self.own_text
        return " ".join([own, *(each.text for each in self.children)]).strip()

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.at = Element("", {}, None)
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"<{tag}> repeats an attribute")
        made = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(made)
        if tag not in VOID:
            self.at = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Element(tag, {name: value or "" for name, value in attrs}, self.at))

    def handle_endtag(self, tag: str) -> None:
        if tag != self.at.tag:
            self.faults.append(f"</{tag}> closes <{self.at.tag}>")
        self.at = next(
            (
                each.parent
                for each in (self.at, *self.at.above())
                if each.tag == tag and each.parent
            ),
            self.at,
        )

    def handle_data(self, data: str) -> None:
        self.at.own_text += data


def find_faults(html: str) -> list[str]:
    """All faults of a whole page, in words."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    every = [each for each in reader.root.walk() if each.tag]
    ids = Counter(each.get("id") for each in every if "id" in each.attributes)
    by_id = {each.get("id"): each for each in every}
    return [
        *reader.faults,
        *(f"the id {name!r} occurs {n} times" for name, n in ids.items() if n > 1 or not name),
        *_page_faults(every),
        *_heading_faults(every),
        *(fault for each in every for fault in _element_faults(each, by_id)),
    ]


def _page_faults(every: list[Element]) -> Iterator[str]:
    tags = Counter(each.tag for each in every)
    for name in LANDMARKS:
        if not tags[name]:
            yield f"no <{name}>"
    if tags["main"] != 1:
        yield f"{tags['main']} times <main>"
    if not any(each.get("lang") for each in every if each.tag == "html"):
        yield "no language"
    if not any(each.text for each in every if each.tag == "title"):
        yield "no title"
    links = [each.get("href") for each in every if each.tag == "a"]
    if not any(each == "#main" for each in links[:1]):
        yield "no way to skip to the content"
    names = Counter(each.get("aria-label") for each in every if each.tag == "nav")
    if any(n > 1 or not name for name, n in names.items()):
        yield "menus without names of their own"


def _heading_faults(every: list[Element]) -> Iterator[str]:
    headings = [each for each in every if re.fullmatch("h[1-6]", each.tag)]
    levels = [int(each.tag[1]) for each in headings]
    if levels.count(1) != 1:
        yield f"{levels.count(1)} times <h1>"
    for each, level, before in zip(headings, levels, [0, *levels], strict=False):
        if level > before + 1:
            yield f"<{each.tag}> {each.text!r} skips a level"
        if not each.text:
            yield f"<{each.tag}> is empty"


def _element_faults(each: Element, by_id: Mapping[str, Element]) -> Iterator[str]:
    shown = f"<{each.tag} {dict(each.attributes)}>"[:120]
    for name in REFERENCES:
        for target in each.get(name).split():
            if target not in by_id or (name == "aria-labelledby" and not by_id[target].text):
                yield f"{shown}: {name} leads nowhere"
    if each.get("tabindex").isdecimal() and int(each.get("tabindex")) > 0:
        yield f"{shown}: a positive tabindex"
    if each.get("tabindex") == "0" and not _name(each) and each.tag != "pre":
        yield f"{shown}: takes the focus without a name"
    if each.get("role") == "img" and not _name(each):
        yield f"{shown}: a picture without a name"
    match each.tag:
        case "img" if "alt" not in each.attributes:
            yield f"{shown}: no alt"
        case "svg" if each.get("aria-hidden") != "true" and each.get("role") != "img":
            yield f"{shown}: neither hidden nor a picture"
        case "a" | "button" | "summary" if not (each.text or _name(each)):
            yield f"{shown}: no name"
        case "progress" if not _name(each):
            yield f"{shown}: no name"
        case tag if tag in NAMED_INPUTS and each.get("type") != "hidden":
            labels = [above for above in each.above() if above.tag == "label" and above.text]
            if not (labels or _name(each) or each.get("title")):
                yield f"{shown}: no label"
        case "th" if each.get("scope") not in {"col", "row"}:
            yield f"{shown}: no scope"
        case "table" if not any(found.tag == "th" for found in each.walk()):
            yield f"{shown}: no headings"
        case "section" if not _name(each):
            yield f"{shown}: no name"
        case "li" if each.parent and each.parent.tag not in {"ul", "ol", "menu"}:
            yield f"{shown}: outside of a list"


def _name(each: Element) -> str:
    return each.get("aria-label") or each.get("aria-labelledby")


def read_colours(css: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The variables of the light and of the dark scheme that are six hexadecimal digits."""
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    pattern = r"--([\w-]+): #([0-9a-f]{6})\b"
    first = dict(re.findall(pattern, light))
    return first, first | dict(re.findall(pattern, dark))


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, of two colours of six hexadecimal digits: 1 to 21."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
