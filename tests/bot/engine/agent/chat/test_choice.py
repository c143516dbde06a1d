"""The model that a message seems to need, and whose choice goes before whose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from bot.engine.agent.chat.choice import Auto, Size, choose, size_for
from bot.engine.agent.desk import Desk
from bot.engine.agent.personas.builtin import PRAGMATIST
from handlers.ports import Question
from storage.records.people import ChatSettings, Language
from tests.engine_world import BOSS, CHAT

TIERS = {"anthropic": {Size.SMALL: "haiku", Size.MIDDLE: "sonnet", Size.LARGE: "opus"}}
AUTO = Auto(tiers=TIERS, default=lambda: "anthropic", always=True)


@dataclass
class FakeDesk:
    """Remembers who was chosen."""

    chosen: list[tuple[str, str]] = field(default_factory=list)

    def choose(self, model: str, backend: str) -> Any:
        self.chosen.append((model, backend))
        return None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("hello", Size.SMALL),
        ("Good morning!", Size.SMALL),
        ("ok", Size.SMALL),
        ("thanks a lot!", Size.SMALL),
        ("你好呀", Size.SMALL),
        ("好的。", Size.SMALL),
        ("在吗？", Size.SMALL),
        ("hello, what is the capital of Peru?", Size.MIDDLE),
        ("ok let us start", Size.MIDDLE),
        ("今天星期几", Size.MIDDLE),
        ("please refactor this function", Size.LARGE),
        ("帮我分析一下这两个版本", Size.LARGE),
        ("x" * 150, Size.MIDDLE),
        ("x" * 151, Size.LARGE),
        ("my redesigned room", Size.LARGE),
        ("a new assessment", Size.LARGE),
        ("the proverb", Size.MIDDLE),
    ],
)
def test_a_message_tells_by_its_looks_how_strong_a_model_it_needs(text: str, size: Size) -> None:
    assert size_for(text) is size


def test_a_picture_needs_the_strongest_whatever_is_said_with_it() -> None:
    assert size_for("hello", pictures=True) is Size.LARGE


def asked(text: str = "hello", auto: Auto = AUTO, **changes: Any) -> tuple[str, str]:
    settings = changes.pop("settings", ChatSettings())
    persona = changes.pop("persona", PRAGMATIST)
    chat = replace(CHAT, settings=settings)
    question = Question(
        person=BOSS, chat=chat, text=text, language=Language.ENGLISH, source="inbox:1", **changes
    )
    desk = FakeDesk()
    choose(cast("Desk", desk), auto, question, persona, pictures=False)
    return desk.chosen[0]


def test_the_messages_own_choice_goes_before_the_chats_and_that_before_any_other() -> None:
    opus = ChatSettings(model="opus", backend="anthropic")
    local = replace(PRAGMATIST, model="own", backend="openai")

    assert asked(settings=opus, persona=local, model="haiku", backend="anthropic")[0] == "haiku"
    assert asked("why?", settings=opus, backend="openai") == ("", "openai")
    assert asked(settings=opus, persona=local) == ("opus", "anthropic")
    assert asked(persona=local) == ("own", "openai")
    assert asked() == ("haiku", "anthropic")


def test_where_the_program_has_a_model_of_its_own_only_chats_that_want_it_get_another() -> None:
    fixed = replace(AUTO, always=False)

    assert asked(auto=fixed) == ("", "")
    assert asked(auto=fixed, settings=ChatSettings(model="auto")) == ("haiku", "anthropic")


def test_a_backend_without_sizes_takes_its_own_model() -> None:
    assert asked(settings=ChatSettings(backend="codex")) == ("", "codex")
    assert asked(auto=Auto(always=True, default=lambda: "offline")) == ("", "")
