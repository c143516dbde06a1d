"""The emulated prompt caches bill as the providers' do."""

from __future__ import annotations

from typing import Any

from tests.emulators.models.prompt_cache import LOOK_BACK_BLOCKS, PromptCache
from tests.emulators.models.script import ApiKind, ReceivedRequest

LONG = "rules and more rules " * 1_000
FLOOR = 1024


def prompt(*texts: str, api: ApiKind = "anthropic", **more: Any) -> ReceivedRequest:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
    return ReceivedRequest(
        api=api,
        model="m",
        system="",
        user_texts=texts,
        tool_results=(),
        tools={},
        must_call="",
        schema=None,
        stream=False,
        headers={},
        body={"messages": messages, **more},
    )


MARKED: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}


def test_a_longer_prompt_reads_what_a_shorter_one_wrote() -> None:
    cache = PromptCache(FLOOR)

    first = cache.usage(prompt(LONG, **MARKED))
    second = cache.usage(prompt(LONG, "go on", **MARKED))

    assert first["cache_creation_input_tokens"] > FLOOR
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert 0 < second["cache_creation_input_tokens"] < 50


def test_cache_entries_beyond_the_lookback_are_not_found() -> None:
    cache = PromptCache(FLOOR)
    cache.usage(prompt(LONG, **MARKED))

    near = cache.usage(prompt(LONG, *["x"] * (LOOK_BACK_BLOCKS - 1), **MARKED))
    other = PromptCache(FLOOR)
    other.usage(prompt(LONG, **MARKED))
    far = other.usage(prompt(LONG, *["x"] * LOOK_BACK_BLOCKS, **MARKED))

    assert near["cache_read_input_tokens"] > FLOOR
    assert far["cache_read_input_tokens"] == 0


def test_a_changed_tool_choice_or_an_unmarked_prompt_reads_no_cache() -> None:
    cache = PromptCache(FLOOR)
    cache.usage(prompt(LONG, **MARKED))

    forced = cache.usage(prompt(LONG, tool_choice={"type": "any"}, **MARKED))
    unmarked = cache.usage(prompt(LONG))

    assert forced["cache_read_input_tokens"] == 0
    assert unmarked["cache_read_input_tokens"] == 0
    assert unmarked["cache_creation_input_tokens"] == 0


def test_a_short_prompt_is_not_cached() -> None:
    cache = PromptCache(FLOOR)

    for _ in range(2):
        assert cache.usage(prompt("hi", **MARKED))["cache_read_input_tokens"] == 0


def test_openai_caches_common_prefixes_automatically() -> None:
    cache = PromptCache(FLOOR)
    first = cache.usage(prompt(LONG, "one", api="openai"))

    alike = cache.usage(prompt(LONG, "two", api="openai"))
    unlike = cache.usage(prompt("two" + LONG, api="openai"))

    assert first["cache_read_input_tokens"] == 0
    assert alike["cache_read_input_tokens"] > FLOOR
    assert alike["cache_read_input_tokens"] % 128 == 0
    assert unlike["cache_read_input_tokens"] == 0
