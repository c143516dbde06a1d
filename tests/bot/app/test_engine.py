"""Which models the sizes mean, by what is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from bot.config.settings import Settings
from bot.engine.agent.conversation.model_choice import AutoModelChoice, ModelSize
from bot.engine.llm.api.access import LearnedToolForms
from bot.engine.sandbox.backends import SandboxDetector
from bot.setup.live_models import LiveModels
from storage.records.system import AUTO_MODEL
from tests.agent_builders import MemoryWindowStore
from tests.engine_harness import START


def settings(**changes: Any) -> Settings:
    fields = Settings.model_fields.items()
    return Settings.model_construct(**{name: each.default for name, each in fields} | changes)


def live_models(**changes: Any) -> LiveModels:
    return LiveModels(
        settings(**changes),
        SandboxDetector(),
        LearnedToolForms(store=MemoryWindowStore(), now=lambda: START),
    )


def tiers(**changes: Any) -> Mapping[str, Mapping[ModelSize, str]]:
    return live_models(**changes).auto_choice.models_by_size


def test_each_known_service_has_its_sizes() -> None:
    assert tiers() == {
        "anthropic": {
            ModelSize.SMALL: "claude-haiku-5-5",
            ModelSize.MIDDLE: "claude-sonnet-5-5",
            ModelSize.LARGE: "claude-opus-5-5",
        },
        "openai": {
            ModelSize.SMALL: "gpt-5-mini",
            ModelSize.MIDDLE: "gpt-5.2",
            ModelSize.LARGE: "gpt-5.2",
        },
    }


def test_a_compatible_service_has_the_sizes_that_are_set_and_no_others() -> None:
    url = "http://127.0.0.1:1/v1"
    assert "openai" not in tiers(openai_base_url=url)

    named = tiers(openai_base_url=url, model_middle="openai:qwen3-32b", model_large="opus")

    assert named["openai"] == {ModelSize.MIDDLE: "qwen3-32b"}
    auto = AutoModelChoice(models_by_size=named, default_backend=str, enabled_by_default=False)
    assert auto.select("openai", ModelSize.LARGE) == ("qwen3-32b", "openai")


@pytest.mark.parametrize(
    ("setting", "program"),
    [("auto", ""), ("anthropic:auto", "anthropic"), ("openai:gpt-5.2", "openai:gpt-5.2"), ("", "")],
)
def test_auto_leaves_the_programs_own_model_to_it_or_to_the_backend(
    setting: str, program: str
) -> None:
    assert settings(model=setting).default_model == program


def test_where_nobody_can_choose_by_what_was_said_auto_is_the_backends_first_model() -> None:
    found = live_models(anthropic_api_key=SecretStr("k"), model="anthropic:auto").registry

    assert found.default.model == "claude-sonnet-5-5"
    assert found.select_backend(AUTO_MODEL, "").model == "claude-sonnet-5-5"
    assert found.select_backend(AUTO_MODEL, "anthropic").model == "claude-sonnet-5-5"
