"""Whatever the platform, or somebody in its place, sends: it is read, or dropped, never fatal."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.transports.feishu import events
from bot.transports.feishu.events import FeishuMessageInfo, parse_content
from bot.transports.feishu.incoming import FeishuEventHandler
from bot.transports.feishu.messages import FeishuMessages
from storage.records.people import Channel
from tests.fakes.inbox import FakeInbox
from tests.thoroughness import sampled

BOT = "ou_bot"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tag", "text", "content", "title", "image_key", "t", "open_id", "id", "key"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
names = st.sampled_from(
    [
        *("sender", "message", "operator", "token", "action", "context", "chat_id"),
        *("operator_id", "event_key", "message_id", "message_type", "content", "create_time"),
    ]
)


class SilentPosting:
    """Knows nobody."""

    async def fetch_chat_title(self, chat_id: str) -> str:
        return ""

    async def fetch_person_name(self, open_id: str) -> str:
        return ""

    async def is_own_message(self, message_id: str) -> bool:
        return False

    def note_incoming(self, chat_id: str, message_id: str) -> None:
        pass


def info(message_type: str, content: str, **more: Any) -> FeishuMessageInfo:
    return FeishuMessageInfo(
        message_id="om_1", chat_id="oc_1", message_type=message_type, content=content, **more
    )


@settings(max_examples=sampled(150, 70), deadline=None)
@given(
    kind=st.sampled_from(
        [
            events.MESSAGE_RECEIVED,
            events.CARD_ACTION,
            events.CHAT_ENTERED,
            events.BOT_ADDED,
            events.BOT_MENU,
            "other",
        ]
    ),
    event=st.dictionaries(names, json_values, max_size=6) | json_values,
)
async def test_no_event_whatsoever_is_fatal(kind: str, event: Any) -> None:
    arrivals = FeishuEventHandler(
        inbox=FakeInbox(Channel.FEISHU, "Paused"), messages=cast("FeishuMessages", SilentPosting())
    )
    body = {"header": {"event_type": kind, "event_id": "e"}, "event": event}

    await arrivals.handle(json.dumps(body).encode())


@settings(max_examples=sampled(150, 70), deadline=None)
@given(
    kind=st.sampled_from(["text", "post", "image", "file", "audio", "sticker"]),
    content=json_values.map(json.dumps) | st.text(max_size=20),
)
def test_no_content_whatsoever_is_fatal(kind: str, content: str) -> None:
    read = parse_content(info(kind, content), BOT)

    assert isinstance(read.text, str)


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        ("text", {"text": "@_user_1 @_user_12 hi @_user_2"}, "@Twelve hi @Bob"),
        ("text", {"text": "@_user_3 and @_all"}, "@@_user_2 and @all"),
        ("text", {"text": None}, ""),
        ("sticker", {"file_key": "x"}, "[sticker]"),
        (
            "post",
            {"zh_cn": {"title": "标题", "content": [[{"tag": "text", "text": "x"}]]}},
            "标题\nx",
        ),
        (
            "post",
            {"content": [[{"tag": "at", "user_id": "@_user_1"}, {"tag": "text", "text": "run"}]]},
            "run",
        ),
        (
            "post",
            {"content": [[{"tag": "code_block", "language": "py", "text": "x = 1"}]]},
            "```py\nx = 1\n```",
        ),
    ],
)
def test_text_is_read_with_names_in_place_of_keys(kind: str, content: Any, text: str) -> None:
    mentions = [
        {"key": "@_user_1", "id": {"open_id": BOT}, "name": "Shiftboss"},
        {"key": "@_user_2", "id": {"open_id": "ou_b"}, "name": "Bob"},
        {"key": "@_user_3", "id": {"open_id": "ou_p"}, "name": "@_user_2"},
        {"key": "", "id": {"open_id": "ou_n"}, "name": "Nobody"},
        {"key": "@_user_12", "id": {"open_id": "ou_t"}, "name": "Twelve"},
    ]

    read = parse_content(info(kind, json.dumps(content), mentions=mentions), BOT)

    assert read.text == text


def test_content_nested_without_end_is_no_error() -> None:
    assert parse_content(info("post", "[" * 100_000), BOT).text == ""


def test_sound_and_film_come_as_files() -> None:
    for kind, name in (("audio", "voice.opus"), ("media", "video.mp4")):
        (file,) = parse_content(info(kind, '{"file_key":"file_1"}'), BOT).files

        assert (file.name, file.reference["type"]) == (name, "file")
