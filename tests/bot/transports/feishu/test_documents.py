"""Results as Feishu documents: complete, shared, and one only, whatever call fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.transports.feishu.api import FeishuApi, FeishuConnectionError
from bot.transports.feishu.documents import (
    DocumentSource,
    FeishuDocuments,
    PublishedDocument,
    document_state,
    parse_document,
)
from tests.emulators.feishu.documents import CONVERT_SCOPE, CREATE_SCOPE, FeishuDocument
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut, FeishuApiError, rate_limited

_TABLE = "| name | price |\n|---|---|\n| a | 1 |\n| b | 2 |"
_LONG = f"# All\n![a drawing](https://x.test/a.png)\n{_TABLE}\n```\ncode\n```"
_LONG += "".join(f"\n\n- point {number}" for number in range(1100))


@dataclass
class Publisher:
    """What one process does, and what it has stored."""

    fs: FeishuEmulator
    home: Path
    api: FeishuApi
    readers: tuple[str, ...]
    stored: list[PublishedDocument] = field(default_factory=list)
    has_quota: bool = True

    async def sleep(self, seconds: float) -> None:
        self.fs.advance(seconds)

    async def save(self, document: PublishedDocument) -> None:
        self.stored.append(document)

    async def publish(self) -> PublishedDocument:
        """In a new process that knows what is stored."""
        known = parse_document(document_state(self.stored[-1])) if self.stored else None
        documents = FeishuDocuments(
            api=self.api,
            home=self.home,
            web_domain="https://feishu.cn",
            may_publish=lambda: self.has_quota,
            sleep=self.sleep,
        )
        source = DocumentSource(path="result.md", title="Offers (t-1)", readers=self.readers)
        return await documents.publish(source, known, save=self.save)

    @property
    def document(self) -> FeishuDocument:
        (document,) = self.fs.drive.documents.values()
        return document


@pytest.fixture
def publisher(fs: FeishuEmulator, api: FeishuApi, tmp_path: Path) -> Publisher:
    (tmp_path / "result.md").write_text(_LONG)
    return Publisher(fs, tmp_path, api, (fs.user("Anna").open_id, fs.group("Team").chat_id))


def assert_complete(publisher: Publisher) -> None:
    document = publisher.document
    lines = document.text.splitlines()
    assert lines[:3] == ["All", "[a drawing](https://x.test/a.png)", "name"]
    assert [each for each in lines if each.startswith("point")] == [
        f"point {number}" for number in range(1100)
    ]
    assert {"a", "2", "code"} < set(lines)
    assert document.members == dict(zip(publisher.readers, ("full_access", "view"), strict=True))


async def test_a_long_text_becomes_a_shared_document(publisher: Publisher) -> None:
    made = await publisher.publish()

    assert made.url == f"https://feishu.cn/docx/{publisher.document.token}"
    assert_complete(publisher)
    written = [each for each in publisher.fs.api.requests if "/descendant" in each.path]
    assert [each.code for each in written] == [0, 0], "1,114 blocks take two calls"


@pytest.mark.parametrize("cut", ConnectionCut)
@pytest.mark.parametrize(
    "call", ["documents$", "convert$", "descendant$", "members$", "files$", "meta$"]
)
async def test_it_exists_once_whatever_call_is_lost(
    publisher: Publisher, call: str, cut: ConnectionCut
) -> None:
    publisher.fs.inject_fault("*", call, cut=cut)
    if call in ("files$", "meta$"):
        publisher.stored.append(PublishedDocument())
    with pytest.raises(FeishuConnectionError):
        await publisher.publish()
    publisher.fs.inject_fault("POST", "descendant$", cut=cut, times=1)
    if call != "members$":
        with pytest.raises(FeishuConnectionError):
            await publisher.publish()

    assert (await publisher.publish()).url
    assert (await publisher.publish()).url == publisher.stored[-1].url

    assert_complete(publisher)


async def test_short_limits_and_outages_are_waited_for(publisher: Publisher) -> None:
    publisher.fs.inject_fault("POST", "documents$", error=rate_limited(2.0), times=2)
    publisher.fs.inject_fault("POST", "descendant$", raw=b"<html>", times=2)

    assert (await publisher.publish()).url

    assert_complete(publisher)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("scope", "scope"),
        ("convert", "scope"),
        ("limit", "unavailable"),
        ("outage", "unavailable"),
        ("refusal", "refused"),
        ("huge", "too_long"),
        ("table", "too_long"),
        ("blank", "empty"),
        ("nothing", "empty"),
        ("nobody", "no_reader"),
        ("quota", "quota"),
    ],
)
async def test_what_cannot_be_a_document_says_why(
    publisher: Publisher, fault: str, problem: str
) -> None:
    fs, file = publisher.fs, publisher.home / "result.md"
    match fault:
        case "scope":
            fs.app.scopes[CREATE_SCOPE] = 0
        case "convert":
            fs.app.scopes[CONVERT_SCOPE] = 0
        case "limit":
            fs.inject_fault("POST", "documents$", error=rate_limited(60.0))
        case "outage":
            fs.inject_fault("POST", "convert$", raw=b"<html>", times=9)
        case "refusal":
            error = FeishuApiError(1063003, "Invalid operation")
            fs.inject_fault("POST", "members$", error=error)
        case "huge":
            file.write_text("long " * 300_000)
        case "table":
            file.write_text("| a |\n|---|\n" + "| 1 |\n" * 600)
        case "blank":
            file.write_text("\n\n")
        case "nothing":
            answer = b'{"code": 0, "data": {"first_level_block_ids": [], "blocks": []}}'
            fs.inject_fault("POST", "convert$", raw=answer)
        case "nobody":
            publisher.readers = ()
        case "quota":
            publisher.has_quota = False

    made = await publisher.publish()

    assert made == PublishedDocument(problem=f"render.feishu.document_{problem}")
    assert publisher.stored[-1] == made
    # Only the refusal to share it comes after it was made.
    assert bool(fs.drive.documents) == (fault == "refusal")
