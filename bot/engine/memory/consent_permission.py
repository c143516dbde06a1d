"""Recognises by rules that a person allows remembering again, in English and Chinese."""

from __future__ import annotations

import re
import unicodedata

from storage.search.chinese import simplify_han

_MAX_CHARS_READ = 300


def find_permission(text: str) -> str | None:
    """Return the rest of a message that begins with a permission; None if it gives none. What
    is asked, reported or limited gives none."""
    spoken = simplify_han(unicodedata.normalize("NFKC", text)).replace("’", "'").strip()
    found = _PERMISSION.match(spoken[:_MAX_CHARS_READ])
    if found is None:
        return None
    # Only their beginning is read, and its length may differ from the text's.
    more = spoken[found.end() :].strip()
    return None if _LIMITS.match(more) else more


_SOFTLY = (
    r"(?:(?:ok(?:ay)?|alright|all right|right|now|please|so|well|fine|thanks|thank you|hey|hi|boss"
    r"|and|actually|great|good|done|that's it|from now on|hm+|oh|yes|yeah)[\s,.!:-]+)*"
)
_THINGS = (
    r"(?: (?:things?|stuff|everything|it all|all|notes|messages|what i (?:say|tell you|write)"
    r"|what(?:'s| is| we) sa(?:id|y)(?: here)?|our (?:chats?|conversations?)|me|us))?"
)
_HERE = r"(?: (?:here|in this chat|in here|in this group))?"
_WHEN = (
    r"(?:(?: (?:again|now|once more|once again|as usual|as before|from now on|from here on)){1,2})"
)
_KEEP = r"(?:remember|memori[sz]e|record|save|store|keep)"
_KEEPING = r"(?:remembering|memori[sz]ing|recording|saving|storing|keeping)"
_NOTES = r"(?:keep|take|make|write) (?:your )?(?:notes|records|memories)"
_NOTING = r"(?:keeping|taking|making|writing) (?:your )?(?:notes|records|memories)"
_MAY = (
    r"(?:you|u) (?:can|may|could|are (?:allowed|free|welcome) to|have my permission to)"
    r"(?: now)?(?: go ahead and)?"
    r"|you're (?:allowed|free|welcome) to|feel free to"
    r"|it'?s (?:ok(?:ay)?|fine|alright) (?:for you )?to"
    r"|it is (?:ok(?:ay)?|fine) to|i(?:'m| am) (?:ok(?:ay)?|fine) with you"
)
_ASK = r"(?:(?:can|could|would|will) you (?:please )?)"
_MEMORY = r"(?:the |your |my )?memory"
_SWITCH = (
    rf"(?:(?:turn|switch) {_MEMORY} (?:back )?on|(?:turn|switch) (?:back )?on {_MEMORY}"
    rf"|(?:(?:re-?)?enable|restore|resume|unpause|reactivate) {_MEMORY})"
)
_START = rf"(?:start|resume|begin|go back to|get back to) (?:{_KEEPING}{_THINGS}|{_NOTING})"
_ENGLISH = (
    rf"(?:(?:{_MAY}) (?:{_KEEP}{_THINGS}{_HERE}{_WHEN}{_HERE}|(?:{_NOTES}|{_START}|{_SWITCH})"
    rf"{_HERE}{_WHEN}?{_HERE})"
    rf"|{_ASK}?(?:{_START}|{_SWITCH}|remember{_THINGS} (?:again|as before)|{_NOTES} again)"
    rf"{_HERE}{_WHEN}?{_HERE}"
    rf"|(?:we're|we are|i'm|i am|this is)? ?(?:back on the record|on the record again)"
    rf"|(?:you )?(?:don't (?:have|need) to|no need to) forget{_THINGS} (?:any ?more|any longer))"
    rf"(?: please| thanks| thank you)?"
)
_CHINESE = (
    r"(?:(?:好了?|好的|行了?|现在|从现在(?:起|开始)|以后|那|嗯|可以了|请|麻烦)[\s,.!:、。]*)*"
    r"(?:(?:你|您|老板)?(?:现在|又|以后)?"
    r"(?:(?:可以|能|可)(?:继续|重新|接着|恢复|开始|再次|再)?(?:帮我|替我)?(?:记(?:录|忆|笔记|东西|事儿?|住)?"
    r"|做笔记|保存)(?:我说的话?|东西|内容)?(?:了|啦|咯)"
    r"|(?:可以|能|可)?(?:继续|恢复|重新(?:开始)?|接着|开始)(?:帮我|替我)?(?:记(?:录|忆|笔记|东西|事儿?|住)?|做笔记)"
    r"(?:我说的话?|东西|内容|功能)?(?:了|啦|吧)?)"
    r"|(?:可以)?(?:把)?(?:重新)?(?:打开|开启|启用|恢复)(?:你的|本会话的?|这里的?)?记忆(?:功能)?(?:了|啦|吧)?"
    r"|(?:把)?(?:你的)?记忆(?:功能)?(?:可以)?(?:重新)?(?:打开|恢复|开启|开)(?:了|啦|吧)"
    r"|不用再?忘(?:记|掉)?(?:我说的话?)?了)"
    r"(?:谢谢|哈|哦|啊)?"
)
_PERMISSION = re.compile(
    rf"{_SOFTLY}(?:(?P<asked>(?=(?:can|could|would|will) you\b))?(?:{_ENGLISH})\s*"
    rf"(?(asked)[.!?,;\n]|[.!,;\n])|(?:{_ENGLISH})\s*\Z|(?:{_CHINESE})\s*(?:[.!,;。、\n~]|\Z))"
    r"[\s.!~]*",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"(?:but|except|unless|only|just not|though|if|when|once|after|until|later|tomorrow|not"
    r"|she|he|they|said|但|除|不过|只|等|要是|如果|吗|是不是|对吗|行吗)(?![a-z])|[?？]",
    re.IGNORECASE,
)
