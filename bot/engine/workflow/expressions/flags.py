"""Reading of words as true or false, where a model wrote a word instead of a boolean."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum

_MAX_TEXT = 300
_MARKUP = " \t\r\n*_`\"'“”‘’.!。！,，;；:：()（）[]【】\ufe0f"

_TRUE = {
    "true", "yes", "y", "ok", "okay", "on", "approved", "approve", "accepted", "accept", "pass",
    "passed", "lgtm", "是", "是的", "对", "真", "通过", "已通过", "审核通过", "评审通过", "批准",
    "已批准", "同意", "可以", "✅", "✔", "☑", "👍",
}  # fmt: skip
_FALSE = {
    "false", "no", "n", "nope", "off", "not approved", "unapproved", "rejected", "reject", "denied",
    "declined", "fail", "failed", "not yet", "none", "null", "nil", "n/a", "否", "不", "不是", "假",
    "错", "无", "没有", "不通过", "未通过", "没有通过", "没通过", "不批准", "未批准", "不同意",
    "驳回", "拒绝", "不可以", "❌", "✘", "✗", "👎",
}  # fmt: skip
_UNSURE = {
    "maybe", "perhaps", "probably", "possibly", "partially", "partly", "partial", "mostly",
    "unknown", "unsure", "uncertain", "unclear", "undecided", "pending", "conditional",
    "conditionally", "mixed", "depends", "it depends", "tbd", "?", "true/false", "yes/no",
    "true|false", "yes|no", "是/否", "待定", "未定", "部分", "部分通过", "不确定", "可能", "也许",
    "有条件", "有条件通过", "基本通过", "原则上通过", "原则通过",
}  # fmt: skip

_HEDGE = re.compile(
    r"\b(?:but|if|once|provided|providing|pending|unless|assuming|subject to|after|except|although"
    r"|though|conditional(?:ly)?|conditions?|only|mostly|partial(?:ly)?|maybe|perhaps|however|until"
    r"|as long as|as soon as|when|in principle|would"
    r"|i (?:think|guess|suppose)|probably|likely|not sure)\b"
    r"|但|不过|如果|前提|除非|待|需要先|先.{0,12}再|条件|只要|然而|暂时|之后|以后|后再|原则上|基本上",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(
    r"[\s*_`\"'“”)）]*(?:or\b|/|\||或者?|还是)\s*(?:\w+\s*[:=]\s*)?[*_`\"'“”]*"
    r"(?:true|false|yes|no|是|否|不通过|通过)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.。!！;；\n](?:\s|$)|[。！；\n]")
_LEADING_FLAG = re.compile(
    r"(yes|no|nope|true|false|approved|rejected|passed|failed|lgtm|是的?|否|不通过|未通过|通过|不同意"
    r"|同意|✅|❌)[*_`\s]*((?:[,.;:!](?=\s|[\u4e00-\u9fff]|$)|[(。]|\s[-—–]\s).*)",
    re.DOTALL,
)


class Flag(Enum):
    """The meaning of a text where true or false is asked for."""

    YES = True
    NO = False
    UNSURE = None


def read_flag(text: str) -> Flag | None:
    """Read `yes`, `否`, `"false"` and the like, in any case and with any marks around it; None if
    the text is about something else. A yes with a condition behind it is unsure."""
    if len(text) > _MAX_TEXT:
        return None
    plain = unicodedata.normalize("NFKC", text).strip(_MARKUP).casefold() or text.strip()
    for words, flag in ((_TRUE, Flag.YES), (_FALSE, Flag.NO), (_UNSURE, Flag.UNSURE)):
        if " ".join(plain.split()) in words:
            return flag
    found = _LEADING_FLAG.fullmatch(plain)
    if found is None:
        return None
    return qualify(Flag.NO if found[1] in _FALSE else Flag.YES, found[2])


def qualify(flag: Flag, rest: str) -> Flag:
    """The flag, given the rest of its line: a yes is unsure with a condition behind it, and either
    is where the other is offered beside it, as in `true or false`."""
    if _ALTERNATIVE.match(rest):
        return Flag.UNSURE
    return Flag.UNSURE if flag is Flag.YES and is_hedged(rest) else flag


def is_hedged(text: str) -> bool:
    """Whether the first sentence of the text makes a reservation."""
    end = _SENTENCE_END.search(text)
    return _HEDGE.search(text[: end.start()] if end else text) is not None
