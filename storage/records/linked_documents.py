"""Links to documents of a platform's drive, and what is read of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urlsplit


class DocumentKind(StrEnum):
    """By the word in the link. A wiki page is one of the others behind a node of its own."""

    DOCX = "docx"
    WIKI = "wiki"
    SHEETS = "sheets"
    BASE = "base"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLink:
    """`part` is the sheet or table that the link opens, if it names one."""

    kind: DocumentKind
    token: str
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedDocument:
    """The text as Markdown; `is_cut` if the document has more."""

    title: str
    text: str
    is_cut: bool = False


class UnreadableReason(StrEnum):
    NO_RIGHTS = "no_rights"
    NO_SCOPE = "no_scope"
    GONE = "gone"
    KIND = "kind"
    QUOTA = "quota"
    UNAVAILABLE = "unavailable"


class DocumentUnreadable(Exception):
    """`detail` is what the platform said, or the kind that cannot be read."""

    def __init__(self, reason: UnreadableReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


_HOSTS = ("feishu.cn", "larksuite.com", "larkoffice.com")
_PATH = re.compile(r"/(?:space/)?([a-z]+)/([A-Za-z0-9]{10,64})/?")
_KINDS: Mapping[str, DocumentKind] = {
    "docx": DocumentKind.DOCX,
    "wiki": DocumentKind.WIKI,
    "sheets": DocumentKind.SHEETS,
    "base": DocumentKind.BASE,
    **dict.fromkeys(("docs", "file", "mindnotes", "slides", "minutes"), DocumentKind.OTHER),
}
_PARTS = ("sheet", "table")
_PART = re.compile(r"[A-Za-z0-9]{1,40}")


def parse_document_link(url: str, *, own_host: str = "") -> DocumentLink | None:
    """Parse a link. None if it does not lead to a document of Feishu or Lark, or of `own_host`."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
    except ValueError:
        return None
    known = any(host == each or host.endswith(f".{each}") for each in _HOSTS)
    found = _PATH.fullmatch(parts.path)
    if parts.scheme not in ("http", "https") or found is None or found[1] not in _KINDS:
        return None
    if not known and not (own_host and host == own_host):
        return None
    asked = dict(parse_qsl(parts.query))
    part = next((asked[each] for each in _PARTS if each in asked), "")
    return DocumentLink(
        kind=_KINDS[found[1]], token=found[2], part=part if _PART.fullmatch(part) else ""
    )
