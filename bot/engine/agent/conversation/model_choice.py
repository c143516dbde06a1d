"""Selects the model that answers a chat message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.llm.backend import SelectedBackend
from bot.engine.llm.backend_registry import BackendRegistry
from bot.engine.workers.personas import Persona
from handlers.ports import ChatQuestion
from storage.records.system import AUTO_MODEL

LONG_MESSAGE = 150
"""Characters; longer messages get the strongest model."""


class ModelSize(StrEnum):
    SMALL = "small"
    MIDDLE = "middle"
    LARGE = "large"


_DEFAULT_TIERS: Mapping[str, Mapping[ModelSize, str]] = {
    "anthropic": {ModelSize.SMALL: "haiku", ModelSize.MIDDLE: "sonnet", ModelSize.LARGE: "opus"},
    "openai": {ModelSize.SMALL: "gpt-mini", ModelSize.MIDDLE: "gpt", ModelSize.LARGE: "gpt"},
}
"""By public model name."""


def list_models_by_size(
    models: BackendRegistry, configured: Mapping[ModelSize, str], *, openai_is_compatible: bool
) -> dict[str, dict[ModelSize, str]]:
    """Models by size for each backend. A service that is only compatible with OpenAI has the
    configured models and no others."""
    named = [
        each
        for backend, sizes in _DEFAULT_TIERS.items()
        if backend != "openai" or not openai_is_compatible
        for each in sizes.items()
    ]
    tiers: dict[str, dict[ModelSize, str]] = {}
    for size, name in [*named, *configured.items()]:
        choice = models.resolve_choice(name) if name else None
        if choice is not None and choice.model:
            tiers.setdefault(choice.backend, {})[size] = choice.model
    return tiers


@dataclass(slots=True, kw_only=True)
class AutoModelChoice:
    """Selects models by size. Its fields change with the settings of models.

    `models_by_size` lists models for each backend; backends not listed offer no choice. If
    `enabled_by_default` is False, only chats that chose automatic selection use it."""

    models_by_size: Mapping[str, Mapping[ModelSize, str]]
    default_backend: Callable[[], str]
    enabled_by_default: bool

    def select(self, backend: str, size: ModelSize) -> tuple[str, str]:
        """Return the model and its backend; unchanged if the backend offers no choice."""
        name = backend or self.default_backend()
        tiers = self.models_by_size.get(name, {})
        model = tiers.get(size) or tiers.get(ModelSize.MIDDLE, "")
        return (model, name) if model else ("", backend)


def estimate_size(text: str, *, pictures: bool = False) -> ModelSize:
    """Estimate the model size that a message needs from its text."""
    said = text.strip()
    if pictures:
        return ModelSize.LARGE
    if _SMALL_TALK.fullmatch(said):
        return ModelSize.SMALL
    if len(said) > LONG_MESSAGE or _HARD_WORDS.search(said):
        return ModelSize.LARGE
    return ModelSize.MIDDLE


def choose_model(
    gateway: ModelGateway,
    auto: AutoModelChoice,
    question: ChatQuestion,
    persona: Persona,
    *,
    pictures: bool,
) -> SelectedBackend:
    """Select by precedence: the message's choice, the chat's, the persona's, then the default.

    Raises BackendDenied."""
    settings, chain = question.chat.settings, persona.fallbacks
    if question.model:
        return gateway.select_backend(question.model, question.backend, chain)
    forced = settings.model == AUTO_MODEL
    if question.backend:
        backend = question.backend
    elif settings.model and not forced:
        return gateway.select_backend(settings.model, settings.backend, chain)
    elif settings.backend or forced:
        backend = settings.backend
    elif persona.model:
        return gateway.select_backend(persona.model, persona.backend, chain)
    else:
        backend = persona.backend
    if forced or auto.enabled_by_default:
        size = estimate_size(question.text, pictures=pictures)
        return gateway.select_backend(*auto.select(backend, size), chain)
    return gateway.select_backend("", backend, chain)


_TRAILING_MARKS = r"[\s.。!！~～?？,，…]*"
_SMALL_TALK = re.compile(
    r"(?:hi|hello|hey|yo|good\s+(?:morning|afternoon|evening|night)|thanks?|thank\s+you|thx|ty"
    r"|ok(?:ay)?|yes|yep|no|nope|sure|fine|great|good|cool|nice|got\s+it|bye|goodbye|ping|test"
    r"|status|how\s+are\s+you|how'?s\s+it\s+going|what'?s\s+up|are\s+you\s+there|you\s+there"
    r"|你好|您好|嗨|哈喽|在吗|在么|早|早安|早上好|上午好|中午好|下午好|晚上好|晚安|谢谢|多谢|感谢"
    r"|好|好的|好吧|行|可以|是|是的|对|不|不用|嗯|嗯嗯|收到|明白|知道了|了解|再见|拜拜|状态|进度|测试)"
    r"(?:\s*[,，]?\s*(?:shiftboss|boss|there|all|again|a\s+lot|very\s+much|啊|呀|啦|了|吗|呢|哦|哈))?"
    + _TRAILING_MARKS,
    re.IGNORECASE,
)
_HARD_WORDS = re.compile(
    r"\b(?:refactor|architect|migrat|redesign|design|review|analy[sz]|debug|explain|optimi[sz]"
    r"|compar|summari[sz]|investigat|troubleshoot|diagnos|evaluat|assess|strateg|trade-?offs?"
    r"|prov(?:e|ing)\b|deriv(?:e|ing)\b|think(?:ing)?\b|reason\s+about|root\s+cause|step\s+by\s+step|why\s+(?:does|is|do|did))"
    r"|重构|架构|迁移|设计|评审|审查|分析|调试|解释|优化|比较|对比|总结|归纳|排查|诊断|评估|推导|证明|思考"
    r"|权衡|方案|策略|原因|为什么",
    re.IGNORECASE,
)
