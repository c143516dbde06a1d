"""What talk needs besides a model: whose turn it is, which model answers, and who looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.app.models import program_model
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.chat.choice import Auto, Size
from bot.engine.agent.chat.eyes import Eyes
from bot.engine.agent.chat.turns import Turns
from bot.engine.agent.desk import Desk
from bot.engine.llm.registry import Registry

_TIERS: Mapping[str, Mapping[Size, str]] = {
    "anthropic": {Size.SMALL: "haiku", Size.MIDDLE: "sonnet", Size.LARGE: "opus"},
    "openai": {Size.SMALL: "gpt-mini", Size.MIDDLE: "gpt", Size.LARGE: "gpt"},
}
"""By the names people use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talking:
    turns: Turns
    auto: Auto
    eyes: Eyes


def build_talking(settings: Settings, store: Store, desk: Desk, models: Registry) -> Talking:
    return Talking(
        turns=Turns(settings.queue),
        auto=Auto(
            tiers=tiers_of(settings, models),
            default=lambda: models.default.backend,
            always=program_model(settings.model) != settings.model or not settings.model,
        ),
        eyes=build_eyes(settings, store, desk),
    )


def build_eyes(settings: Settings, store: Store, desk: Desk) -> Eyes:
    blind = tuple(each.strip().casefold() for each in settings.no_vision.split(","))
    return Eyes(
        desk=desk,
        db=store.db,
        ids=store.ids,
        model=settings.vision_model,
        blind=tuple(each for each in blind if each),
    )


def tiers_of(settings: Settings, models: Registry) -> dict[str, dict[Size, str]]:
    """The sizes of each backend. A compatible service has models of its own, which only the
    settings can know."""
    known = {name: dict(sizes) for name, sizes in _TIERS.items()}
    if settings.openai_base_url:
        del known["openai"]
    tiers: dict[str, dict[Size, str]] = {}
    named = [(size, name) for sizes in known.values() for size, name in sizes.items()]
    wanted = {
        Size.SMALL: settings.model_small,
        Size.MIDDLE: settings.model_middle,
        Size.LARGE: settings.model_large,
    }
    for size, name in [*named, *wanted.items()]:
        choice = models.pick(name) if name else None
        if choice is not None and choice.model:
            tiers.setdefault(choice.backend, {})[size] = choice.model
    return tiers
