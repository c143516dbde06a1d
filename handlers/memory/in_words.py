"""What is asked of memory in plain words: what is known, and what is to be forgotten."""

from __future__ import annotations

import re

from handlers.memory.commands import known, which_to_forget
from handlers.request import Reply, Request

_LONGEST = 120
_MOST_WORDS = 12


async def answer(request: Request) -> Reply | None:
    """The answer, where the whole message asks for one of these and, to forget something, where
    it is remembered. A model would only say that it has forgotten. None for all else."""
    text = request.args.strip()
    if len(text) > _LONGEST or request.files:
        return None
    if asks_what_is_known(text):
        return await known(request)
    topic = to_forget(text)
    if not topic:
        return None
    return await which_to_forget(request, topic)


def asks_what_is_known(text: str) -> bool:
    """Of whoever asks: “what do you remember about me?”, “你记得我什么”."""
    return any(pattern.fullmatch(text.strip()) for pattern in _KNOWN)


def to_forget(text: str) -> str:
    """What “forget what I said about my cat” is about; empty for what asks for nothing such."""
    found = next((hit for each in _FORGET if (hit := each.fullmatch(text.strip()))), None)
    if found is None or _ASKS.search(text):
        return ""
    topic = found["what"].strip(" \t“”\"'‘’「」")
    if topic.casefold() in _NOTHING or len(topic.split()) > _MOST_WORDS:
        return ""
    return topic


def _each(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each, re.IGNORECASE) for each in patterns)


_PLEASE = r"(?:(?:please|now|ok|okay|hey|so|and|can you|could you|would you)[, ]+)*"
_END = r"[\s.!?。！？]*"
_KNOWN = _each(
    rf"{_PLEASE}what (?:do|did) you (?:still |already |actually )?"
    rf"(?:(?:remember|have noted)(?: (?:about|of|on) me)?|know about me){_END}",
    rf"{_PLEASE}what (?:have you|did you) (?:remember|note|learn|store|save|memori[sz]e)"
    rf"(?:e?d|nt|t)?(?: (?:about|of|on) me)?{_END}",
    rf"{_PLEASE}(?:show|tell|list)(?: me)? (?:all |everything )?(?:what |that )?you"
    rf" (?:remember|know) about me{_END}",
    rf"{_PLEASE}(?:show|list)(?: me)?(?: all)?(?: of)? (?:my|your) memories{_END}",
    rf"(?:请|那|现在)?你(?:都|还|现在)*(?:记得|记住了?|知道|了解)(?:了)?(?:关于)?我的?"
    rf"(?:些|哪些|什么|多少)+(?:事情|事|信息|内容)?(?:呢|呀|啊|吗)?{_END}",
    rf"你(?:都|还)*对我(?:还)?(?:了解|知道|记得)(?:多少|哪些|些?什么)(?:呢|呀|啊)?{_END}",
    rf"你(?:都|还|现在)*(?:记得|记住)了?(?:些|哪些|什么)+(?:事情|事|内容)?(?:呢|呀|啊)?{_END}",
)
_FORGET = _each(
    rf"{_PLEASE}(?:forget|delete|erase)(?: again)? (?:what|everything|all|anything)(?: that)?"
    r" (?:i|we|i['’]ve|you)(?: have| had)? (?:ever |just )?"
    r"(?:said|told you|mentioned|wrote|know|remember|noted)(?: to you)? (?:about|of|on)"
    rf" (?P<what>.+?){_END}",
    rf"{_PLEASE}(?:forget|delete|erase) (?:the |your |all |any )*(?:memor(?:y|ies)|notes?)"
    rf" (?:about|of|on) (?P<what>.+?){_END}",
    rf"{_PLEASE}forget (?:that|about) (?P<what>[^,;]+?){_END}",
    rf"(?:请|帮我|麻烦)*把(?:关于)?(?P<what>[^，,。]+?)(?:的(?:事情|事|记忆|内容))?(?:都|给)*"
    rf"(?:忘掉|忘记|忘了)(?:吧|了)?{_END}",
    rf"(?:请|帮我|麻烦)*(?:忘掉|忘记|忘了)(?:我)?(?:说过|告诉过你|讲过)?(?:的)?(?:所有)?关于"
    rf"(?P<what>[^，,。]+?)(?:的(?:事情|事|话|记忆|内容))?(?:吧)?{_END}",
    rf"(?:请|帮我|麻烦)*删(?:除|掉)(?:所有)?关于(?P<what>[^，,。]+?)的(?:记忆|记录){_END}",
    rf"(?:请|帮我|麻烦)*(?:忘掉|忘记)(?P<what>[^，,。]+?)(?:的(?:事情|事|话|记忆|内容))?(?:吧)?{_END}",
)
_ASKS = re.compile(r"吗|怎么|如何|为什么|是不是")
_NOTHING = frozenset(
    word
    for words in (
        "it that this these those everything all me him her them",
        "它 这个 那个 这件 这 那 他 她 我 掉 吧 了",
    )
    for word in words.split()
)
