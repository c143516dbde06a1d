"""Which models the sizes mean, by what is set."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from bot.app.models import build_models, program_model
from bot.app.workers.talking import tiers_of
from bot.config.settings import Settings
from bot.engine.agent.chat.choice import Auto, Size
from storage.records.status import AUTO


def settings(**changes: Any) -> Settings:
    fields = Settings.model_fields.items()
    return Settings.model_construct(**{name: each.default for name, each in fields} | changes)


def tiers(**changes: Any) -> dict[str, dict[Size, str]]:
    made = settings(**changes)
    return tiers_of(made, build_models(made))


def test_each_known_service_has_its_sizes() -> None:
    assert tiers() == {
        "anthropic": {
            Size.SMALL: "claude-haiku-5-5",
            Size.MIDDLE: "claude-sonnet-5-5",
            Size.LARGE: "claude-opus-5-5",
        },
        "openai": {Size.SMALL: "gpt-5-mini", Size.MIDDLE: "gpt-5.2", Size.LARGE: "gpt-5.2"},
    }


def test_a_compatible_service_has_the_sizes_that_are_set_and_no_others() -> None:
    url = "http://127.0.0.1:1/v1"
    assert "openai" not in tiers(openai_base_url=url)

    named = tiers(openai_base_url=url, model_middle="openai:qwen3-32b", model_large="opus")

    assert named["openai"] == {Size.MIDDLE: "qwen3-32b"}
    assert Auto(tiers=named).model("openai", Size.LARGE) == ("qwen3-32b", "openai")


@pytest.mark.parametrize(
    ("setting", "program"),
    [("auto", ""), ("anthropic:auto", "anthropic"), ("openai:gpt-5.2", "openai:gpt-5.2"), ("", "")],
)
def test_auto_leaves_the_programs_own_model_to_it_or_to_the_backend(
    setting: str, program: str
) -> None:
    assert program_model(setting) == program


def test_where_nobody_can_choose_by_what_was_said_auto_is_the_backends_first_model() -> None:
    models = build_models(settings(anthropic_api_key=SecretStr("k"), model="anthropic:auto"))

    assert models.default.model == "claude-sonnet-5-5"
    assert models.choose(AUTO, "").model == "claude-sonnet-5-5"
    assert models.choose(AUTO, "anthropic").model == "claude-sonnet-5-5"
