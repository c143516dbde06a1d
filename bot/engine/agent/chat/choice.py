"""Which model answers: what was chosen, and where nothing was, what the message seems to need."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.engine.agent.desk import Desk
from bot.engine.agent.personas.persona import Persona
from bot.engine.llm.base import Chosen
from handlers.ports import Question
from storage.records.people import ChatSettings
from storage.records.status import AUTO

LONG = 150
"""A message longer than this is worth the strongest model."""


class Size(StrEnum):
    SMALL = "small"
    MIDDLE = "middle"
    LARGE = "large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """`tiers` has each backend's models by size; one that is not there has no choice to make.
    `default` is the program's own backend; `always` False leaves the choice to chats that have
    asked for it."""

    tiers: Mapping[str, Mapping[Size, str]] = field(default_factory=dict)
    default: Callable[[], str] = str
    always: bool = False

    def model(self, backend: str, size: Size) -> tuple[str, str]:
        """The model and its backend; as they were given where there is nothing to choose."""
        name = backend or self.default()
        tiers = self.tiers.get(name, {})
        model = tiers.get(size) or tiers.get(Size.MIDDLE, "")
        return (model, name) if model else ("", backend)


def size_for(text: str, *, pictures: bool = False) -> Size:
    """How strong a model a message needs, by its looks alone."""
    said = text.strip()
    if pictures:
        return Size.LARGE
    if _SMALL_TALK.fullmatch(said):
        return Size.SMALL
    if len(said) > LONG or _THINK.search(said):
        return Size.LARGE
    return Size.MIDDLE


def choose(
    desk: Desk, auto: Auto, question: Question, persona: Persona, *, pictures: bool
) -> Chosen:
    """This message's own choice before the chat's before the persona's before the program's.
    Raises BackendDenied."""
    settings = question.chat.settings
    if question.model:
        return desk.choose(question.model, question.backend)
    forced = settings.model == AUTO
    if question.backend:
        backend = question.backend
    elif settings.model and not forced:
        return desk.choose(settings.model, settings.backend)
    else:
        model, backend = _of_the_house(settings, persona, forced=forced)
        if model:
            return desk.choose(model, backend)
    if forced or auto.always:
        size = size_for(question.text, pictures=pictures)
        return desk.choose(*auto.model(backend, size))
    return desk.choose("", backend)


def _of_the_house(settings: ChatSettings, persona: Persona, *, forced: bool) -> tuple[str, str]:
    """A chat that wants its models chosen wants that more than its persona's own."""
    if settings.backend or forced:
        return "", settings.backend
    return persona.model, persona.backend


_END = r"[\s.。!！~～?？,，…]*"
_SMALL_TALK = re.compile(
    r"(?:hi|hello|hey|yo|good\s+(?:morning|afternoon|evening|night)|thanks?|thank\s+you|thx|ty"
    r"|ok(?:ay)?|yes|yep|no|nope|sure|fine|great|good|cool|nice|got\s+it|bye|goodbye|ping|test"
    r"|status|how\s+are\s+you|how'?s\s+it\s+going|what'?s\s+up|are\s+you\s+there|you\s+there"
    r"|你好|您好|嗨|哈喽|在吗|在么|早|早安|早上好|上午好|中午好|下午好|晚上好|晚安|谢谢|多谢|感谢"
    r"|好|好的|好吧|行|可以|是|是的|对|不|不用|嗯|嗯嗯|收到|明白|知道了|了解|再见|拜拜|状态|进度|测试)"
    r"(?:\s*[,，]?\s*(?:shiftboss|boss|there|all|again|a\s+lot|very\s+much|啊|呀|啦|了|吗|呢|哦|哈))?"
    + _END,
    re.IGNORECASE,
)
_THINK = re.compile(
    r"\b(?:refactor|architect|migrat|redesign|design|review|analy[sz]|debug|explain|optimi[sz]"
    r"|compar|summari[sz]|investigat|troubleshoot|diagnos|evaluat|assess|strateg|trade-?offs?"
    r"|prov(?:e|ing)\b|deriv(?:e|ing)\b|think(?:ing)?\b|reason\s+about|root\s+cause|step\s+by\s+step|why\s+(?:does|is|do|did))"
    r"|重构|架构|迁移|设计|评审|审查|分析|调试|解释|优化|比较|对比|总结|归纳|排查|诊断|评估|推导|证明|思考"
    r"|权衡|方案|策略|原因|为什么",
    re.IGNORECASE,
)
