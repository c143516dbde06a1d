"""History survives the store: what is dumped as JSON loads as the same messages."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from bot.engine.llm.api.metered_model import dump_history, load_history

_text = st.text(st.characters(codec="utf-8"), max_size=40)
_arguments = st.dictionaries(_text, st.one_of(_text, st.integers(-9, 9), st.none()), max_size=3)
_asked: st.SearchStrategy[Any] = st.one_of(
    st.builds(UserPromptPart, content=_text),
    st.builds(
        UserPromptPart,
        content=st.lists(
            st.one_of(
                _text,
                st.builds(
                    BinaryImage, data=st.binary(max_size=20), media_type=st.just("image/png")
                ),
            ),
            max_size=3,
        ),
    ),
    st.builds(ToolReturnPart, tool_name=_text, content=_text, tool_call_id=_text),
)
_answered: st.SearchStrategy[Any] = st.one_of(
    st.builds(TextPart, content=_text),
    st.builds(ThinkingPart, content=_text, signature=_text),
    st.builds(ToolCallPart, tool_name=_text, args=_arguments, tool_call_id=_text),
)
_messages = st.lists(
    st.one_of(
        st.builds(ModelRequest, parts=st.lists(_asked, max_size=3), instructions=_text),
        st.builds(ModelResponse, parts=st.lists(_answered, max_size=3), model_name=_text),
    ),
    max_size=4,
)


@given(_messages)
def test_messages_come_back_as_they_were_but_for_the_system_text(
    messages: list[ModelMessage],
) -> None:
    stored = json.loads(json.dumps(dump_history(messages)))

    again = load_history(stored)

    assert [type(one) for one in again] == [type(one) for one in messages]
    assert [one.parts for one in again] == [one.parts for one in messages]
    assert all(one.instructions is None for one in again if isinstance(one, ModelRequest))
    assert dump_history(again) == dump_history(messages)


@given(st.lists(st.one_of(st.none(), st.integers(), _text, st.dictionaries(_text, _text))))
def test_anything_else_is_no_history(junk: list[object]) -> None:
    assert load_history(junk) == []
