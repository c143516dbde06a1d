"""Rules that recognise texts not worth remembering. All patterns are bounded and stop at line ends,
so that no input makes them slow."""

from __future__ import annotations

import json
import re
import unicodedata
from enum import StrEnum

from cards.formats import strip_invisible
from storage.search.chinese import contains_han

_MIN_LETTERS = 5
_MIN_LETTERS_HAN = 4
_MAX_CHARS_READ = 20_000


class NoiseKind(StrEnum):
    """Reasons to discard a text. `SUSPICIOUS` texts give instructions to their reader."""

    SHORT = "short"
    GREETING = "greeting"
    META = "meta"
    DENIAL = "denial"
    COMPLAINT = "complaint"
    ARTEFACT = "artefact"
    SCAFFOLD = "scaffold"
    TRANSIENT = "transient"
    ASSISTANT = "assistant"
    STRUCTURED = "structured"
    SUSPICIOUS = "suspicious"


def classify_noise(text: str) -> NoiseKind | None:
    """Noise kind of a message; None if it may be worth remembering."""
    said = text.strip()[:_MAX_CHARS_READ]
    plain = said.rstrip("!！。.~～?？,， ")
    if _GREETING.fullmatch(plain):
        return NoiseKind.GREETING
    if is_too_short(said):
        return NoiseKind.SHORT
    return _first_match(said, _SPOKEN_RULES)


def classify_fact_noise(text: str) -> NoiseKind | None:
    """Noise kind of an extracted fact; stricter than for messages."""
    return (
        classify_noise(text)
        or (NoiseKind.STRUCTURED if _is_json(text) else None)
        or _first_match(text, _FACT_RULES)
    )


def is_denial(text: str) -> bool:
    """Whether a text says no more than that nothing is known."""
    return _first_match(text.strip(), _SPOKEN_RULES) is NoiseKind.DENIAL


def is_too_short(text: str) -> bool:
    letters = "".join(each for each in text if each.isalnum())
    return len(letters) < (_MIN_LETTERS_HAN if contains_han(letters) else _MIN_LETTERS)


def is_time_bound(text: str) -> bool:
    """Whether the text holds for a limited time only; such facts are never auto-promoted."""
    return _TIME_BOUND.search(text[:_MAX_CHARS_READ]) is not None


def strip_workflow_scaffold(text: str) -> str:
    """Remove the frame that workflows put around a message: headings, frame lines and everything
    before the last rule."""
    if _SCAFFOLD_HEADING.search(text):
        text = re.split(r"(?m)^[ \t]*-{3,}[ \t]*$", text)[-1]
    return "\n".join(line for line in text.splitlines() if not _SCAFFOLD_LINE.search(line)).strip()


def _first_match(
    text: str, rules: tuple[tuple[NoiseKind, re.Pattern[str]], ...]
) -> NoiseKind | None:
    plain = _normalised(text)
    return next((noise for noise, pattern in rules if pattern.search(plain)), None)


def _normalised(text: str) -> str:
    """Normalise Unicode, so that hidden characters cannot disguise a pattern."""
    plain = strip_invisible(text[:_MAX_CHARS_READ])
    return plain if plain.isascii() else unicodedata.normalize("NFKC", plain)[:_MAX_CHARS_READ]


def _is_json(text: str) -> bool:
    text = text.strip()
    if text[:1] not in {"{", "["}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in patterns), re.IGNORECASE | re.MULTILINE)


# Whole messages only: "Hierarchical locks are required" starts with a greeting but is none.
_GREETING = re.compile(
    r"(?:(?:hi|hello|hey|yo|hiya|howdy|greetings|good (?:morning|afternoon|evening|night)"
    r"|ok|okay|yes|yep|yeah|no|nope|sure|fine|thanks|thank you|thx|ty|please|go on|continue|bye"
    r"|test|ping|heartbeat|heartbeat_ok|new session|start"
    r"|你好|您好|嗨|哈喽|早上好|早安|早|中午好|下午好|晚上好|晚安|在吗|在不在|谢谢|多谢|感谢|谢了"
    r"|好|好的|好吧|好滴|嗯|嗯嗯|行|可以|没问题|收到|继续|对|是|是的|不|不用|不要|再见|拜拜|测试"
    r"|there|all|everyone|boss|老板|大家|各位|啊|呀|哦|了|你)[ ,，!！~～.。]*){1,4}",
    re.IGNORECASE,
)

_SPOKEN_RULES = (
    (
        NoiseKind.META,
        _any_of(
            r"\b(?:do|can|could) you (?:still )?(?:remember|recall)\b",
            r"\bdid (?:i|we) (?:ever )?(?:tell|mention|say)\b",
            r"\bwhat (?:did|have) i (?:told?|said?|say|mention)",
            r"你还?记不?记?得",
            r"还记得.{0,40}[吗嘛么?？]",
            r"你(?:知道|晓得)我.{0,20}[吗嘛么]",
            r"我(?:之前|上次|以前)(?:说|提|讲)(?:过)?.{0,20}[吗嘛么什]",
        ),
    ),
    (
        NoiseKind.DENIAL,
        _any_of(
            r"\bi (?:do not|don['’]t) have any (?:information|memory|memories|record)",
            r"\bno (?:relevant )?memor(?:y|ies) (?:was|were)? ?found",
            r"\bi (?:do not|don['’]t|can['’]?t) (?:recall|remember) (?:any|that|you)",
            r"(?:我)?没有(?:找到)?(?:任何)?(?:相关|关于.{0,20}的)(?:的)?(?:记忆|信息|记录)",
        ),
    ),
    (
        NoiseKind.COMPLAINT,
        _any_of(
            r"\bwhy (?:do|did|are|can['’]?t) you (?:keep |always |still )?"
            r"(?:forget|so (?:stupid|dumb|slow)|not (?:remember|listen))",
            r"\byou (?:always|keep) (?:forget|getting it wrong)",
            r"你(?:怎么|为什么|为啥)(?:又|老是|总是|一直)?(?:忘|这么(?:笨|蠢|慢)|不听)",
            r"(?:气死我了|烦死了|你太(?:笨|蠢|慢)了)",
        ),
    ),
    (
        NoiseKind.ARTEFACT,
        _any_of(
            r"(?:query|memory|memories|fact|facts) ?-> ?none",
            r"^[^\S\n]*HEARTBEAT(?:_OK)?\s*$",
            r"^[^\S\n]*\(?(?:null|none|n/a|无|空)\)?\s*$",
            r"\bou_[0-9a-f]{16,64}\b",
            r"\bom_[0-9a-f]{16,64}\b",
        ),
    ),
)

_FACT_RULES = (
    (
        NoiseKind.SUSPICIOUS,
        _any_of(
            r"\b(?:ignore|disregard|forget|override) (?:\w+ ){0,3}"
            r"(?:previous|prior|above|earlier|all|your|system) (?:\w+ ){0,2}"
            r"(?:instruction|prompt|rule|message|polic|guideline)",
            r"\bsystem prompt\b",
            r"\byou (?:are now|must (?:now )?(?:always )?(?:obey|comply|execute|run|send))\b",
            r"\b(?:developer|god|dan|jailbreak) mode\b",
            r"<\s*/?\s*(?:system|assistant|instruction|tool)",
            r"\b(?:curl|wget)\b.{0,80}\|\s*(?:ba|z)?sh\b",
            r"\brm -rf\b",
            r"\bwithout (?:asking|approval|confirmation|telling)\b",
            r"(?:忽略|无视|忘记|绕过)(?:之前|以上|上面|所有|全部|你的|系统)+的?(?:所有|全部)?"
            r"(?:指令|提示|规则|设定|限制)",
            r"系统提示词?",
            r"(?:不用|无需|不必|不要)(?:再)?(?:询问|确认|审批|批准|告诉).{0,12}(?:直接|就)",
        ),
    ),
    (
        NoiseKind.SCAFFOLD,
        _any_of(
            r"工作流执行上下文|当前步骤|前序步骤|输入参数",
            r"\b(?:execution context|current step|previous results?|input param(?:eter)?s?)\s*:",
            r"\{\{\s*(?:input|outputs?|variables?|item)\b",
            r"\*\*(?:step|步骤) ?\d+",
            r"\[(?:system|tool|assistant)\]",
        ),
    ),
    (
        NoiseKind.TRANSIENT,
        _any_of(
            r"尚未(?:确认|指定|决定|确定|提供)|待(?:确认|定|补充)|稍后(?:决定|再说)|等待.{0,20}(?:确认|回复)",
            r"\b(?:unconfirmed|to be (?:confirmed|decided|determined)|tbd|decide later"
            r"|need(?:s)? to confirm|not (?:yet )?(?:confirmed|specified|decided)|waiting for)\b",
        ),
    ),
    (
        NoiseKind.ASSISTANT,
        _any_of(
            r"^[^\S\n]*(?:让我|我先|我来|我将|我会|接下来我|好的[，,]我)(?!们)",
            r"^[^\S\n]*(?:已完成|已生成|已收集|任务已)",
            r"^[^\S\n]*(?:let me|i(?:['’]ll| will| am going to)) "
            r"(?:now |first )?(?:continue|start|check|look|read|search|create|generate|run|begin)",
            r"^[^\S\n]*(?:i have |successfully )(?:finished|completed|generated|collected|created)",
            r"\b(?:tool[_ -]call|function[_ -]call|tool_use|action)\s*[:：]",
            r"SHIFTBOSS_ACTION|LABORANY_ACTION",
            r"\b(?:assistant|shiftboss|ai) (?:said|suggested|recommended|answered|offered)\b",
            r"(?:助手|机器人|AI)(?:建议|回答|推荐|表示|说)",
        ),
    ),
    (
        NoiseKind.STRUCTURED,
        _any_of(
            r"```",
            r"\{\{.{0,80}\}\}|\$\{.{0,80}\}",
            r"\b(?:https?|ftp)://",
            r"</?[a-z][a-z0-9]{0,15}(?:\s[^<>]{0,200})?/?>",
            r"^[^\S\n]*\|.{1,400}\|[^\S\n]*$",
        ),
    ),
)

_SCAFFOLD_HEADING = _any_of(
    r"^[^\S\n]{0,3}#{0,6}[^\S\n]*(?:工作流执行上下文|workflow execution context)"
)
_SCAFFOLD_LINE = _any_of(
    r"^[^\S\n]*(?:\*\*)?(?:当前步骤|前序步骤(?:结果)?|输入参数|current step"
    r"|previous (?:step )?results?|input param(?:eter)?s?)(?:\*\*)?\s*[:：]",
    r"\{\{\s*(?:input|outputs?|variables?|item)\b",
)

_TIME_BOUND = _any_of(
    r"\b(?:today|tonight|tomorrow|yesterday|now|right now|just now|currently|this (?:time|once|week"
    r"|month|morning|afternoon|evening|session|task)|next week|last week|later|recently"
    r"|for the moment|temporarily)\b",
    r"今天|今日|今晚|今早|明天|昨天|后天|本次|这次|当前|目前|现在|刚刚|刚才|稍后|待会|这周|本周|下周"
    r"|上周|这个月|下个月|最近|暂时|临时",
    r"\b20\d\d[-/年.]\d{1,2}",
)


MEMORY_OPEN_TAG, MEMORY_CLOSE_TAG = "<memory>", "</memory>"
"""Tags around injected memory. Other tags belong to the user's text."""
_BLANK = re.compile(r"\s*")


def strip_memory_blocks(text: str, *, cut_marker: str = "") -> str:
    """Remove injected memory, in one pass even with many unclosed tags. `cut_marker` stands where
    the middle of the text was removed, perhaps with a closing tag."""
    kept, at = list[str](), 0
    while (begins := text.find(MEMORY_OPEN_TAG, at)) >= 0:
        ends, closed = text.find(MEMORY_CLOSE_TAG, begins), MEMORY_CLOSE_TAG
        if ends < 0 and cut_marker:
            ends, closed, cut_marker = text.find(cut_marker, begins), cut_marker, ""
        if ends < 0:
            break
        kept.append(text[at:begins])
        after = _BLANK.match(text, ends + len(closed))
        at = len(text) if after is None else after.end()
    return "".join((*kept, text[at:]))


def to_storable_text(text: str) -> str:
    """Remove characters that a store cannot hold."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
