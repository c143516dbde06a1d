"""Whether a message is worth looking something up for, unasked."""

from __future__ import annotations

import re

_SHORTEST = 5
_SHORT = 15
_SHORT_HAN = 6
_HAN = re.compile(r"[\u3400-\u9fff]")

_ALWAYS = re.compile(
    r"\b(?:remember|recall|recollect|forgot|last (?:time|week|month|night|year)|before|earlier"
    r"|previously|yesterday|\w+ ago|my name|who am i)\b"
    r"|记得|之前|上次|上回|上周|上个月|以前|还记|提到过|说过|讲过|昨天|前天|刚才|那次|我叫什么|我是谁",
    re.IGNORECASE,
)
_NEVER = re.compile(
    r"(?:(?:hi|hello|hey|yo|ok|okay|yes|yep|no|nope|sure|thanks|thank you|thx|go on|continue|please"
    r"|good (?:morning|afternoon|evening|night)|bye|ping|heartbeat|heartbeat_ok"
    r"|你好|您好|嗨|早上好|早|晚安|在吗|谢谢|多谢|好|好的|好吧|嗯|行|可以|没问题|收到|继续|对|是的"
    r"|不用|不要|再见|拜拜|老板|大家|boss|there|all|啊|呀|哦|了)[\s,，.。!！~～?？]*){1,5}",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:what|where|when|who|whose|which|how|why)\b|什么|啥|哪|谁|几|多少|怎么|怎样|如何|吗|呢",
    re.IGNORECASE,
)
_SHELL = re.compile(
    r"(?:git|npm|pnpm|yarn|pip|docker|kubectl|cd|ls|cat|rm|mkdir|curl|sudo|make|pytest|cargo) ",
)


def is_worth_looking(said: str) -> bool:
    """Not for greetings, thanks, commands and the like; always where it points back."""
    text = said.strip()
    if _ALWAYS.search(text):
        return True
    if _NEVER.fullmatch(text) or text.startswith("/") or _SHELL.match(text):
        return False
    letters = sum(map(str.isalnum, text))
    han = bool(_HAN.search(text))
    if letters < (2 if han else _SHORTEST):
        return False
    long = len(text) >= (_SHORT_HAN if han else _SHORT)
    return long or text.endswith(("?", "？")) or _ASKS.search(text) is not None
