"""The emulated prompt caches bill as the providers' do."""

from __future__ import annotations

from typing import Any

from tests.emulators.models.cache import LOOK_BACK, PromptCache
from tests.emulators.models.script import Api, Asked

LONG = "rules and more rules " * 1_000
FLOOR = 1024


def prompt(*texts: str, api: Api = "anthropic", **more: Any) -> Asked:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
    return Asked(
        api=api,
        model="m",
        system="",
        said=texts,
        results=(),
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


def test_nothing_is_found_further_back_than_the_api_looks() -> None:
    cache = PromptCache(FLOOR)
    cache.usage(prompt(LONG, **MARKED))

    near = cache.usage(prompt(LONG, *["x"] * (LOOK_BACK - 1), **MARKED))
    other = PromptCache(FLOOR)
    other.usage(prompt(LONG, **MARKED))
    far = other.usage(prompt(LONG, *["x"] * LOOK_BACK, **MARKED))

    assert near["cache_read_input_tokens"] > FLOOR
    assert far["cache_read_input_tokens"] == 0


def test_another_choice_of_tool_or_an_unmarked_prompt_reads_nothing() -> None:
    cache = PromptCache(FLOOR)
    cache.usage(prompt(LONG, **MARKED))

    forced = cache.usage(prompt(LONG, tool_choice={"type": "any"}, **MARKED))
    unmarked = cache.usage(prompt(LONG))

    assert forced["cache_read_input_tokens"] == 0
    assert unmarked["cache_read_input_tokens"] == 0
    assert unmarked["cache_creation_input_tokens"] == 0


def test_a_short_prompt_is_not_kept() -> None:
    cache = PromptCache(FLOOR)

    for _ in range(2):
        assert cache.usage(prompt("hi", **MARKED))["cache_read_input_tokens"] == 0


def test_openai_reads_unasked_as_far_as_prompts_begin_alike() -> None:
    cache = PromptCache(FLOOR)
    first = cache.usage(prompt(LONG, "one", api="openai"))

    alike = cache.usage(prompt(LONG, "two", api="openai"))
    unlike = cache.usage(prompt("two" + LONG, api="openai"))

    assert first["cache_read_input_tokens"] == 0
    assert alike["cache_read_input_tokens"] > FLOOR
    assert alike["cache_read_input_tokens"] % 128 == 0
    assert unlike["cache_read_input_tokens"] == 0
