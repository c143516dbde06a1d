"""Publishes Markdown files as Feishu documents: makes, fills and shares one for each file, once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from bot.transports.feishu.api import (
    FeishuApi,
    FeishuError,
    FeishuErrorKind,
    call_with_retries,
    path_segment,
)
from bot.transports.files import FileUnsendable, read_file
from bot.transports.ports import FileTooLarge

log = logging.getLogger(__name__)

_DOCUMENTS = "/docx/v1/documents"
_KIND: Mapping[str, str] = {"type": "docx"}
_MAX_BYTES = 1024 * 1024
_MAX_TITLE = 200
_MAX_BLOCKS = 1000
_LISTED = 50
# Three edits a second are allowed for a document, and three new documents for an app.
_EDIT_INTERVAL = 0.4
_DELAYS = (1.0, 2.0, 4.0)
_MAX_WAIT = 10.0
_IMAGE = re.compile(r"!(\[[^\]\n]*\]\([^)\n]*\))")
_TABLE = 31

DriveCall: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]
"""Calls the API with method, path, `params` and `body`, and returns the whole answer's `data`."""

_Blocks: TypeAlias = Mapping[str, Mapping[str, Any]]
_Part: TypeAlias = tuple[int, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDocument:
    """How far a document is; stored with its message. `token` is empty until the platform has
    answered, `filled` is the number of blocks at its top level. `url` is set when it is complete
    and shared, `problem` when it is given up: the key of a text (`render.feishu.document_…`)."""

    token: str = ""
    filled: int = 0
    url: str = ""
    problem: str = ""

    @property
    def is_settled(self) -> bool:
        return bool(self.url or self.problem)


def parse_document(stored: Any) -> PublishedDocument | None:
    if not isinstance(stored, Mapping):
        return None
    filled = stored.get("n")
    return PublishedDocument(
        token=str(stored.get("t") or ""),
        filled=filled if isinstance(filled, int) else 0,
        url=str(stored.get("u") or ""),
        problem=str(stored.get("p") or ""),
    )


def document_state(document: PublishedDocument) -> dict[str, Any]:
    """The stored form of a document's state, which `parse_document` reads."""
    return {
        "t": document.token,
        "n": document.filled,
        "u": document.url,
        "p": document.problem,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSource:
    """`path` is relative to the data directory. `title` is unique, since a document is found by it
    after a crash. `readers` are accounts (`ou_…`, who may manage it) and groups (`oc_…`, who may
    read it)."""

    path: str
    title: str
    readers: tuple[str, ...]


class _DocumentGivenUp(Exception):
    """No document can be made, and the file is sent instead. The text is the key of the reason."""


@dataclass(kw_only=True, eq=False)
class FeishuDocuments:
    """Publishes documents. `web_domain` is where people open them. `may_publish` says whether the
    tenant's monthly quota has room for them.
    """

    api: FeishuApi
    home: Path
    web_domain: str
    may_publish: Callable[[], bool]
    sleep: Callable[[float], Awaitable[None]]
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def publish(
        self,
        source: DocumentSource,
        known: PublishedDocument | None,
        *,
        save: Callable[[PublishedDocument], Awaitable[None]],
    ) -> PublishedDocument:
        """Continue from the state `known`. `save` is awaited before the document is created and
        after each of its changes, so that only one exists, whatever happens in between. What the
        platform refuses for good becomes a `problem`. Raises FeishuError and FeishuConnectionError
        if a later attempt may succeed.
        """
        async with self._lock:
            try:
                return await self._publish(source, known, save)
            except _DocumentGivenUp as given_up:
                document = PublishedDocument(problem=str(given_up))
            except FeishuError as error:
                if error.kind in _PASSING:
                    raise
                log.warning("feishu: no document, the file is sent: %s", error)
                document = PublishedDocument(problem=_problem(error))
        await save(document)
        return document

    async def _publish(
        self,
        source: DocumentSource,
        known: PublishedDocument | None,
        save: Callable[[PublishedDocument], Awaitable[None]],
    ) -> PublishedDocument:
        if known is not None and known.is_settled:
            return known
        if not source.readers:
            raise _DocumentGivenUp("render.feishu.document_no_reader")
        if known is None and not self.may_publish():
            raise _DocumentGivenUp("render.feishu.document_quota")
        # Converted first: a text that the platform refuses leaves no empty document behind.
        parts, blocks = await self._convert(await self._read(source.path))
        title = source.title[:_MAX_TITLE]
        document = known or PublishedDocument()
        if known is None:
            await save(document)
        if not document.token:
            # Stored as asked for, but without an answer: the earlier try may have created it.
            token = await self._find(title) if known is not None else ""
            document = replace(document, token=token or await self._create(title))
            await save(document)
        document = await self._fill(document, parts, blocks, save)
        for reader in source.readers:
            await share_drive_file(
                self._call,
                document.token,
                kind=_KIND,
                member=reader,
                perm="view" if reader.startswith("oc_") else "full_access",
            )
        document = replace(document, url=f"{self.web_domain}/docx/{document.token}")
        await save(document)
        return document

    async def _read(self, path: str) -> str:
        try:
            data = await asyncio.to_thread(read_file, self.home, path, _MAX_BYTES)
        except FileTooLarge as error:
            raise _DocumentGivenUp("render.feishu.document_too_long") from error
        except FileUnsendable as error:
            log.warning("feishu: no document, %s cannot be read: %s", path, error)
            raise _DocumentGivenUp("render.feishu.document_refused") from error
        if not data.strip():
            raise _DocumentGivenUp("render.feishu.document_empty")
        # Images would need an upload each; their links stay.
        return _IMAGE.sub(r"\1", data.decode("utf-8", "replace"))

    async def _create(self, title: str) -> str:
        data = await self._call("POST", _DOCUMENTS, body={"title": title}, repeatable=False)
        await self.sleep(_EDIT_INTERVAL)
        return str(_required(data.get("document"), "document_id"))

    async def _find(self, title: str) -> str:
        """Find the empty document with this title among the newest of the app's folder; empty if
        there is none.
        """
        root = _required(await self._call("GET", "/drive/explorer/v2/root_folder/meta"), "token")
        params = {
            "folder_token": str(root),
            "page_size": str(_LISTED),
            "order_by": "CreatedTime",
            "direction": "DESC",
        }
        files = (await self._call("GET", "/drive/v1/files", params=params)).get("files") or ()
        for each in files:
            if each.get("name") == title and each.get("type") == "docx":
                token = str(each.get("token") or "")
                if token and not await self._count_top(token):
                    return token
        return ""

    async def _count_top(self, token: str) -> int:
        path = f"{_DOCUMENTS}/{path_segment(token)}/blocks/{path_segment(token)}"
        block = (await self._call("GET", path)).get("block") or {}
        return len(block.get("children") or ())

    async def _convert(self, markdown: str) -> tuple[list[_Part], _Blocks]:
        body = {"content_type": "markdown", "content": markdown}
        converted = await self._call("POST", f"{_DOCUMENTS}/blocks/convert", body=body)
        # Some texts convert to nothing; the list is then empty or left out.
        top = [str(each) for each in converted.get("first_level_block_ids") or ()]
        if not top:
            raise _DocumentGivenUp("render.feishu.document_empty")
        blocks = {str(each["block_id"]): each for each in _required(converted, "blocks")}
        return list(_parts(top, blocks)), blocks

    async def _fill(
        self,
        document: PublishedDocument,
        parts: Sequence[_Part],
        blocks: _Blocks,
        save: Callable[[PublishedDocument], Awaitable[None]],
    ) -> PublishedDocument:
        if document.filled:
            # The answer to the last part may have been lost.
            document = replace(document, filled=await self._count_top(document.token))
        path = f"{_DOCUMENTS}/{path_segment(document.token)}/blocks"
        for start, part in parts:
            if start < document.filled:
                continue
            inserted = {
                "index": start,
                "children_id": part,
                "descendants": [_writable(each) for each in _subtree(part, blocks)],
            }
            params = {
                "document_revision_id": "-1",
                "client_token": str(uuid5(NAMESPACE_URL, f"{document.token}/{start}")),
            }
            into = f"{path}/{path_segment(document.token)}/descendant"
            # Stored first, so that a repeated try looks how far the document is.
            await save(replace(document, filled=max(start, 1)))
            await self._call("POST", into, body=inserted, params=params)
            document = replace(document, filled=start + len(part))
            await save(document)
            await self.sleep(_EDIT_INTERVAL)
        return document

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        repeatable: bool = True,
    ) -> Mapping[str, Any]:
        """Call the API, and wait for short limits and outages; the message with the result waits
        meanwhile.
        """
        call = partial(self.api.call, method, path, params=params, body=body, repeatable=repeatable)

        def may_retry(error: FeishuError, wait: float) -> bool:
            unsure = error.kind is FeishuErrorKind.SERVER and not repeatable
            return error.kind in _BRIEF and not unsure and wait <= _MAX_WAIT

        return await call_with_retries(call, delays=_DELAYS, may_retry=may_retry, sleep=self.sleep)


async def share_drive_file(
    call: DriveCall, token: str, *, kind: Mapping[str, str], member: str, perm: str
) -> None:
    """Give an account (`ou_…`) or group (`oc_…`) permission to a file of the app, once."""
    path = f"/drive/v1/permissions/{path_segment(token)}/members"
    members = (await call("GET", path, params=kind)).get("items") or []
    if any(each.get("member_id") == member and each.get("perm") == perm for each in members):
        return
    member_type = "openchat" if member.startswith("oc_") else "openid"
    body = {"member_type": member_type, "member_id": member, "perm": perm}
    await call("POST", path, body=body, params={**kind, "need_notification": "false"})


def feishu_web_domain(domain: str) -> str:
    """The domain where people open documents, for this address of the API."""
    parts = urlsplit(domain)
    return f"{parts.scheme}://{parts.netloc.removeprefix('open.')}"


_PASSING = {
    FeishuErrorKind.TOKEN,
    FeishuErrorKind.CREDENTIALS,
    FeishuErrorKind.QUOTA,
}
"""Messages could not be sent either."""

_BRIEF = {FeishuErrorKind.RATE, FeishuErrorKind.CHANNEL_RATE, FeishuErrorKind.SERVER}


def _problem(error: FeishuError) -> str:
    if error.kind is FeishuErrorKind.SCOPE:
        return "render.feishu.document_scope"
    if error.kind in _BRIEF:
        return "render.feishu.document_unavailable"
    return "render.feishu.document_refused"


def _required(data: Any, key: str) -> Any:
    if not isinstance(data, Mapping) or not data.get(key):
        raise FeishuError(-1, f"an answer without {key}", status=502)
    return data[key]


def _parts(top: Sequence[str], blocks: _Blocks) -> Iterator[_Part]:
    """Blocks of the top level with the position of the first: as many as fit into one call."""
    start, part, size = 0, list[str](), 0
    for number, each in enumerate(top):
        more = len(_subtree([each], blocks))
        if more > _MAX_BLOCKS:
            raise _DocumentGivenUp("render.feishu.document_too_long")
        if size + more > _MAX_BLOCKS:
            yield start, part
            start, part, size = number, [], 0
        part.append(each)
        size += more
    yield start, part


def _subtree(ids: Sequence[str], blocks: _Blocks) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    left = list(ids)
    while left:
        block = blocks.get(left.pop(0))
        if block is None:
            raise FeishuError(-1, "a converted block is missing", status=502)
        found.append(block)
        left.extend(_children(block))
    return found


def _children(block: Mapping[str, Any]) -> list[str]:
    """The children of a cell; a cell with one block names it without a list."""
    children = block.get("children") or []
    return [children] if isinstance(children, str) else [str(each) for each in children]


def _writable(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block without the fields that the platform returns but does not accept."""
    made = {key: value for key, value in block.items() if key != "parent_id"}
    if children := _children(block):
        made["children"] = children
    if block.get("block_type") == _TABLE:
        size = (block.get("table") or {}).get("property") or {}
        kept = {key: value for key, value in size.items() if key != "merge_info"}
        made["table"] = {"property": kept}
    return made
