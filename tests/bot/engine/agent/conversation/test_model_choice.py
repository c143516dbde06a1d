"""The model that a message seems to need, and whose choice goes before whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from bot.engine.agent.conversation.model_choice import (
    AutoModelChoice,
    ModelSize,
    choose_model,
    estimate_size,
)
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.workers.personas import PRAGMATIST_PERSONA
from handlers.ports import ChatQuestion
from storage.records.people import ChatSettings, Language
from tests.engine_harness import BOSS, CHAT

TIERS = {
    "anthropic": {ModelSize.SMALL: "haiku", ModelSize.MIDDLE: "sonnet", ModelSize.LARGE: "opus"}
}
AUTO = AutoModelChoice(
    models_by_size=TIERS, default_backend=lambda: "anthropic", enabled_by_default=True
)


@dataclass
class FakeDesk:
    """Remembers who was chosen."""

    chosen: list[tuple[str, str]] = field(default_factory=list)

    def select_backend(self, model: str, backend: str, fallbacks: Sequence[str] = ()) -> Any:
        self.chosen.append((model, backend))
        return None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("hello", ModelSize.SMALL),
        ("Good morning!", ModelSize.SMALL),
        ("ok", ModelSize.SMALL),
        ("thanks a lot!", ModelSize.SMALL),
        ("你好呀", ModelSize.SMALL),
        ("好的。", ModelSize.SMALL),
        ("在吗？", ModelSize.SMALL),
        ("hello, what is the capital of Peru?", ModelSize.MIDDLE),
        ("ok let us start", ModelSize.MIDDLE),
        ("今天星期几", ModelSize.MIDDLE),
        ("please refactor this function", ModelSize.LARGE),
        ("帮我分析一下这两个版本", ModelSize.LARGE),
        ("x" * 150, ModelSize.MIDDLE),
        ("x" * 151, ModelSize.LARGE),
        ("my redesigned room", ModelSize.LARGE),
        ("a new assessment", ModelSize.LARGE),
        ("the proverb", ModelSize.MIDDLE),
    ],
)
def test_a_message_tells_by_its_looks_how_strong_a_model_it_needs(
    text: str, size: ModelSize
) -> None:
    assert estimate_size(text) is size


def test_a_picture_needs_the_strongest_whatever_is_said_with_it() -> None:
    assert estimate_size("hello", pictures=True) is ModelSize.LARGE


def asked(text: str = "hello", auto: AutoModelChoice = AUTO, **changes: Any) -> tuple[str, str]:
    settings = changes.pop("settings", ChatSettings())
    persona = changes.pop("persona", PRAGMATIST_PERSONA)
    chat = replace(CHAT, settings=settings)
    question = ChatQuestion(
        person=BOSS, chat=chat, text=text, language=Language.ENGLISH, source="inbox:1", **changes
    )
    desk = FakeDesk()
    choose_model(cast("ModelGateway", desk), auto, question, persona, pictures=False)
    return desk.chosen[0]


def test_the_messages_own_choice_goes_before_the_chats_and_that_before_any_other() -> None:
    opus = ChatSettings(model="opus", backend="anthropic")
    local = replace(PRAGMATIST_PERSONA, model="own", backend="openai")

    assert asked(settings=opus, persona=local, model="haiku", backend="anthropic")[0] == "haiku"
    assert asked("why?", settings=opus, backend="openai") == ("", "openai")
    assert asked(settings=opus, persona=local) == ("opus", "anthropic")
    assert asked(persona=local) == ("own", "openai")
    assert asked() == ("haiku", "anthropic")


def test_where_the_program_has_a_model_of_its_own_only_chats_that_want_it_get_another() -> None:
    fixed = replace(AUTO, enabled_by_default=False)

    assert asked(auto=fixed) == ("", "")
    assert asked(auto=fixed, settings=ChatSettings(model="auto")) == ("haiku", "anthropic")


def test_a_backend_without_sizes_takes_its_own_model() -> None:
    assert asked(settings=ChatSettings(backend="codex")) == ("", "codex")
    assert asked(auto=replace(AUTO, models_by_size={}, default_backend=lambda: "offline")) == (
        "",
        "",
    )
