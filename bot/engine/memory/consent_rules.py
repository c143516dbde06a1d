"""Recognises by rules that a person does not want something remembered, in English, Chinese and
mixed. Whole clauses count; what is quoted, asked or in code does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from storage.records.memory import ConsentRequest, ConsentWish

_MAX_CHARS_READ = 8000
_MAX_CLAUSE = 200


def find_consent_request(text: str) -> ConsentWish | None:
    """Without `says_more` the message needs no answer of a model."""
    wanted, besides = _read(text)
    if wanted is None:
        return None
    return ConsentWish(wanted=wanted, says_more=bool(besides))


def _read(text: str) -> tuple[ConsentRequest | None, str]:
    """The request, and what the message says besides."""
    found: set[ConsentRequest] = set()
    rest: list[str] = []
    for clause, asked in _clauses(text[:_MAX_CHARS_READ]):
        wanted, about = _match(clause, asked=asked)
        if wanted is None and _FILLER.fullmatch(clause):
            continue
        if wanted is not None:
            found.add(wanted)
        if about:
            rest.append(about)
    besides = " ".join(rest)
    if ConsentRequest.CHAT in found:
        return ConsentRequest.CHAT, besides
    if ConsentRequest.BEFORE in found:
        return ConsentRequest.BEFORE, besides
    if ConsentRequest.THIS in found:
        # Said alone, "don't remember this" is about what was said before.
        has_content = besides or _NOT_SPOKEN.search(text)
        return (ConsentRequest.THIS if has_content else ConsentRequest.BEFORE), besides
    return None, besides or text


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    spoken = _NOT_SPOKEN.sub(" … ", text.replace("’", "'").replace("‘", "'"))
    for found in _CLAUSE.finditer(spoken):
        asked = found[2].strip() in {"?", "？"}
        whole = found[1].strip()
        is_request = len(whole) <= _MAX_CLAUSE and _match(whole, asked=asked)[0] is not None
        for clause in (whole,) if is_request else _JOINED.split(whole):
            if clause.strip():
                yield clause.strip(), asked


def _match(clause: str, *, asked: bool) -> tuple[ConsentRequest | None, str]:
    """The request in a clause, and what else the clause says."""
    if len(clause) > _MAX_CLAUSE:
        return None, clause
    if _HAN.search(clause):
        whole = _without_spaces(clause)
        for kind, pattern in _CHINESE:
            if pattern.fullmatch(whole) and not (asked and not _POLITE_ZH.search(whole)):
                return kind, ""
        parts = re.split(r"(?<=[\u3400-\u9fff])\s+(?=[\u3400-\u9fff])", clause)
        if len(parts) > 1:
            return _match_parts(parts, asked=asked)
        if found := _TELLING_ZH.fullmatch(whole):
            return ConsentRequest.THIS, found["what"]
    return _match_english(clause, asked=asked)


def _match_english(clause: str, *, asked: bool) -> tuple[ConsentRequest | None, str]:
    if not asked or _POLITE_EN.match(clause):
        for kind, pattern in _ENGLISH:
            if found := pattern.fullmatch(clause):
                return kind, next(filter(None, found.groupdict().values()), "")
    return None, clause


def _match_parts(parts: list[str], *, asked: bool) -> tuple[ConsentRequest | None, str]:
    matches = [_match(each, asked=asked) for each in parts]
    kind = next((each for each, _ in matches if each is not None), None)
    return kind, " ".join(filter(None, (about for _, about in matches)))


def _without_spaces(clause: str) -> str:
    """For mixed clauses: everyday English words become Chinese, and spaces go."""
    for pattern, word in _MIXED:
        clause = pattern.sub(word, clause)
    return re.sub(r"\s+", "", clause)


_HAN = re.compile(r"[\u3400-\u9fff]")
_NOT_SPOKEN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|“[^”]*”|\"[^\"\n]*\"|「[^」]*」|『[^』]*』|《[^》]*》"
    r"|(?<!\w)'[^'\n]{3,}'(?!\w)|^[ \t]*>[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_CLAUSE = re.compile(r"([^,;:.!?，。；：！？、\n…()（）—~～]{1,400})([^\w\s]?)")
_NEG_START = r"(?:please |just |kindly )*(?:don't|do not|dont|never|forget|keep|off the record)\b"
_JOINED = re.compile(
    rf"\s+(?:but|and|so|though|yet|-+)\s+(?={_NEG_START})|\s+-+\s+|(?<=[\u3400-\u9fff])\s+"
    r"(?=off the record|don't|dont|do not|please|forget)"
    r"|(?<=off the record)\s+(?=[\u3400-\u9fff]{4})",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:ok(?:ay)?|thanks?|thank you|please|pls|hey|hi|oh|well|so|wait|sorry|actually|btw|cheers|ta"
    r"|by the way|for now|boss|got it|just|and|but|no|yes|谢谢你?|多谢|拜托了?|麻烦了?|好吗|好不好"
    r"|行吗|可以吗|哈+|啊|吧|哦|嗯+|对了|等等|等一下|那个|喂|抱歉|不好意思|算了|是的|好的?"
    r"|ok啊?|🙏|…|\W)"
    r"(?:\s+(?:thanks|please|you))?",
    re.IGNORECASE,
)
_POLITE_ZH = re.compile(
    r"^(?:你?(?:能|可以|可不可以|能不能|可否|麻烦)|请)|(?:好吗|好不好|行吗|可以吗|行不行)$"
)
_POLITE_EN = re.compile(
    r"(?:(?:please|hey|and|so|ok|okay) )*(?:can|could|would|will) (?:you|we|i)\b", re.IGNORECASE
)

_LEAD = (
    r"(?:(?:please|pls|kindly|just|also|and|but|so|ok|okay|hey|oh|well|actually|now|btw|by the way"
    r"|for now|again|really|seriously|wait|no|sorry|though|maybe|better|boss|shiftboss|bot) )*"
)
_TAIL = (
    r"(?: (?:please|pls|thanks|thank you|ok|okay|though|for now|either|at all|anywhere|ever|again"
    r"|now|just now|right now|in any way|for me|too|then|by the way|anymore|any more|would you"
    r"|will you|forever|permanently|from your memory|in your memory|in memory|to memory"
    r"|for later|for future chats|for the future|long[- ]term|in your notes|in the notes"
    r"|on file|as a memory|in any file|after this|beyond this chat|beyond this session))*"
)
_NOT = (
    r"(?:don't you dare(?: to)?|don't ever|don't|do not|dont|never|no need to|needn't"
    r"|you (?:don't|do not|needn't|need not) (?:have to|need to)|you need not"
    r"|you (?:must|should|may|shall) not|you (?:mustn't|shouldn't|can't|cannot)"
    r"|i (?:don't|do not|dont) want you to|i (?:wouldn't|would not) (?:like|want) you to"
    r"|(?:i'd|i would) (?:rather|prefer(?: (?:it )?if)?|like it if) you (?:not|didn't|don't|do not)"
    r"|(?:can|could|will|would) you (?:please )?(?:not|avoid|refrain from|stop)|try not to"
    r"|make sure (?:you don't|not to|you do not)|be sure not to|better not(?: to)?|let's not"
    r"|i(?:'d)? prefer you not to|avoid|refrain from|please not|not to|you're not to"
    r"|would you mind not|i ask you not to|i beg you not to)"
)
_KEEP = (
    r"(?:remember(?:ing)?|memori[sz](?:e|ing)|retain(?:ing)?|commit(?:ting)?"
    r"|keep(?:ing)?(?: (?:a|any) (?:record|note|copy|log|memory|trace) of)?"
    r"|stor(?:e|ing)|sav(?:e|ing)|record(?:ing)?|log(?:ging)?|archiv(?:e|ing)|persist(?:ing)?"
    r"|not(?:e|ing)(?: down)?|writ(?:e|ing) down|tak(?:e|ing) down|jot(?:ting)? down"
    r"|mak(?:e|ing) (?:a|any) (?:note|record|memory|memo) of|tak(?:e|ing) (?:a )?notes? of"
    r"|hold(?:ing)? on ?to|hang(?:ing)? on ?to|back(?:ing)? up|put(?:ting)?|add(?:ing)?)"
)
_SAY = (
    r"(?:say|said|tell(?: you)?|told(?: you)?|wrote|write|typed?|sent|send|mention(?:ed)?"
    r"|shared?|posted)"
)
_THIS = (
    r"(?:(?:any (?:part )?of |all of |a word of )?(?:this|that|these|those|the following|the above"
    r"|what follows|what comes next)(?: (?:one|part|bit|message|line|detail|info|information|fact"
    r"|number|conversation bit|stuff|thing|sentence|chat message))?(?: down)?"
    rf"|(?:anything (?:of )?|any of )?what (?:i|i've|i'm|i am|we)(?: am| have| had|'ve)?"
    rf"(?: just| about to| going to| now| ever)*(?: {_SAY}| saying| telling you)?"
    rf"(?: {_SAY})?(?: you)?(?: next| now| just now| before| here| above| earlier)?"
    r"|my (?:last|previous|next) (?:message|sentence|remark|line|words|question))"
)
_THAT_CLAUSE = r"(?:that (?:i|i'm|i've|my|we|our|he|she|they|the)\b|my )"
_HERE = r"(?:here|in here|in this (?:chat|conversation|session|thread|group|talk|room|channel))"
_TALK = r"(?:chat|conversation|session|thread|talk|discussion|exchange)"
_BETWEEN = (
    r"(?:strictly |just |only |all )?(?:between (?:us|you and me|me and you|ourselves|the two of us"
    r"|you and i)|to yourself|entre nous)"
)
_RECORD = r"off[- ]the[- ]record"


def _english(*patterns: str) -> re.Pattern[str]:
    joined = "|".join(f"(?:{each})" for each in patterns)
    return re.compile(rf"{_LEAD}(?:{joined}){_TAIL}", re.IGNORECASE)


_ENGLISH = (
    (
        ConsentRequest.CHAT,
        _english(
            rf"{_NOT} {_KEEP} (?:anything|everything|any of it|a thing|stuff|things|what i say"
            rf"|what we say|any of this)(?: (?:that )?(?:i|we|is|gets?)(?: ?'?(?:m|re|ve))? ?"
            rf"(?:{_SAY}|said|talk about|discuss|saying)?)? (?:{_HERE}|from (?:here|this {_TALK})"
            r"|from now on|today)",
            rf"{_NOT} (?:remember|memori[sz]e|retain|store|record|log|keep|save)(?:ing)? "
            rf"(?:anything|this (?:whole |entire )?{_TALK}"
            rf"|(?:anything|everything) (?:i|we) (?:say|tell you|said))",
            rf"(?:from now on|starting now) {_NOT} {_KEEP} (?:anything|everything|things)",
            rf"(?:nothing|none of what) (?:{_HERE} |(?:that )?(?:i|we) (?:say|said|write|discuss)"
            rf" (?:{_HERE} )?|from this {_TALK} |said {_HERE} |in this {_TALK} )"
            r"(?:should|must|is to|may|can|shall) be (?:remembered|stored|saved|kept|recorded"
            r"|logged)",
            rf"(?:keep )?(?:this|the) (?:whole |entire )?{_TALK} (?:is |stays |should (?:be|stay) "
            rf"|must (?:be|stay) )?(?:completely |strictly |entirely )?(?:{_RECORD}"
            rf"|{_BETWEEN}|incognito)",
            rf"everything (?:i say |we say |said )?(?:{_HERE}|from now on|in this {_TALK})? ?"
            rf"(?:is|stays|must stay) (?:{_RECORD}|{_BETWEEN})",
            rf"forget (?:everything|all|anything)(?: of)? (?:{_HERE}|from this {_TALK}"
            rf"|in this {_TALK}|(?:that )?(?:i|we)(?:'ve| have)? (?:said|told you"
            rf"|discussed) {_HERE})",
            rf"forget this (?:whole |entire )?{_TALK}",
            r"(?:turn|switch) (?:your |the )?memory off(?: here| in this chat)?",
            r"(?:turn|switch) off (?:your |the )?memory(?: here| in this chat)?",
            r"stop (?:remembering|recording|memori[sz]ing)(?: (?:things|stuff|anything"
            r"|what i say))?"
            rf"(?: {_HERE})?",
        ),
    ),
    (
        ConsentRequest.BEFORE,
        _english(
            rf"(?:(?:can|could|would|will) (?:you )?)?(?:please )?(?:forget|delete|erase|wipe"
            rf"|unremember"
            rf"|remove|drop|scrap|purge)(?: about)? (?:what|everything|all|anything|the thing"
            rf"|whatever)"
            rf"(?: that)? (?:i|we|i've)(?: have|'ve)?(?: just| only)? {_SAY}(?: to you)?"
            r"(?: just now| now| just| before| earlier| a (?:moment|minute|second) ago| above|"
            r" in my last message| last)?",
            r"(?:(?:can|could|would|will) (?:you )?)?(?:please )?(?:forget|delete|erase|wipe"
            r"|unremember"
            r"|remove|drop|scrap|purge) (?:about )?(?:my|the|that) (?:last|previous|preceding|above"
            r"|earlier|two last|last two)(?: (?:message|sentence|remark|line|comment|thing|bit|part"
            r"|messages|words))(?: (?:of mine|i (?:sent|wrote)))?",
            r"(?:(?:can|could|would|will) you )?(?:please )?forget (?:that )?i (?:ever |just "
            r"|even )*"
            rf"{_SAY}(?: you)?(?: (?:that|it|this|anything|so|about (?:it|that|this)))?",
            r"(?:(?:can|could|would|will) you )?(?:please )?(?:erase|delete|wipe|remove|strike"
            r"|scrub"
            r"|scratch|clear|purge|drop) (?:that|this|it)(?: (?:message|one|part|bit|again))? from "
            r"(?:your |the )?(?:memory|memories|record|records|notes|history)",
            r"forget (?:this|that) (?:message|sentence|remark|one|part|bit)",
            r"forget this",
            rf"(?:pretend|act (?:as if|like)) i (?:never|didn't|hadn't|did not) (?:ever )?{_SAY}"
            r"(?: you)?(?: (?:that|it|this|anything))?",
            rf"(?:that|what i (?:just )?said|what i said before)(?: just now)? (?:was"
            rf"|is) {_RECORD}",
            r"(?:that|my last message) (?:was|is) not for (?:the|your) (?:record|records"
            r"|memory|notes)",
            r"(?:that|my last message|what i (?:just )?said) (?:should|must|was) not (?:to )?be"
            r" (?:remembered|kept|stored|saved|recorded)",
        ),
    ),
    (
        ConsentRequest.THIS,
        _english(
            rf"{_NOT} (?:remember|memori[sz]e|retain|keep|store|save|record|log|archive|persist"
            r"|remembering|memori[sz]ing|retaining|keeping|storing|saving|recording|logging"
            r"|archiving)"
            rf" {_THIS}",
            rf"{_NOT} (?:remember|memori[sz]e|retain|remembering|memori[sz]ing|keep in mind) "
            r"(?:it|them|anything|(?P<what>" + _THAT_CLAUSE + r".+))",
            rf"{_NOT} {_KEEP} (?:{_THIS}|it|anything about (?:this|that|it))(?: (?:down"
            r"|(?:to|in|into|on|from) (?:your |any |the )?(?:long[- ]term )?(?:memory|memories"
            r"|notes?"
            r"|files?|records?|archive|mind|diary)))",
            rf"{_NOT} (?:write|note|jot|take)(?:ing)? (?:this|that|these|it|any of (?:this"
            rf"|that)) down",
            rf"{_NOT} (?:note|write|jot|take) (?:this|that|it)(?: down)?",
            rf"{_NOT} (?:keep|make|take|leave)(?:ing)? (?:a |any )?(?:record|note|notes|copy|log"
            r"|memory|memo|trace|records)(?: (?:of|about|on) (?:this|that|it|what i (?:say|said)))",
            rf"{_NOT} hold(?:ing)? on ?to (?:this|that|it)",
            rf"(?:this|that|what follows|the following|the next (?:part|bit|message|thing))"
            rf"(?: (?:one|part|bit|message|info|detail))?"
            rf"(?:'s| is| stays| stay| remains| must stay| must remain| should stay| has to stay"
            rf"| needs to stay| must be| should be| will be| goes)?"
            rf" (?:strictly |completely |totally |purely |just |all |entirely )*(?:{_RECORD}"
            rf"|{_BETWEEN})",
            rf"(?:it's |it is )?(?:strictly |completely |totally |purely |just |all |entirely "
            rf"|a bit |speaking |talking |going |we're |we are |let's go |let me go |let's talk "
            rf"|let me speak |let's speak |can i speak |can i go |can we go |can we talk "
            rf"|i'm |i am )*{_RECORD}"
            r"(?: (?P<said>(?:i|i'm|i've|my|we|we're|our|he|she|they|there|the|between|though"
            r"|but)\b.*))?",
            rf"(?:i'm |i am |i'll |i |let me )?(?:tell(?:ing)?|say(?:ing)?|said|told) (?:you )?"
            rf"(?:this|that|it|you) {_RECORD}",
            rf"(?:let's |let us |can you |could you |would you |can we |we should )?(?:please )?"
            rf"keep (?:this|that|it|what i say|what i said|what i(?:'m| am) (?:telling you"
            rf"|saying)|these|the following)"
            rf"(?: one| part| bit| message)? (?:{_BETWEEN}|{_RECORD}"
            r"|out of (?:your |the )?(?:long[- ]term )?(?:memory|memories|notes|files|records?)"
            r"|out of it)",
            r"keep (?:this|that) (?:strictly |completely )?(?:confidential|a secret|secret)",
            r"(?:just |strictly |only )between (?:us|you and me|ourselves|you and i)",
            r"between (?:us|you and me|you and i|ourselves)",
            r"(?:this|that|the following)(?: (?:one|part|bit|message|info))? (?:should|must|is|are"
            r"|needs|shall|may)(?:n't| not)?(?: not)?(?: to)? (?:be )?(?:never )?(?:be )?(?:not )?"
            r"(?:to be )?(?:forgotten afterwards|forgotten after this)",
            r"(?:this|that|the following)(?: (?:one|part|bit|message|info))? (?:should never"
            r"|must never"
            r"|should not|shouldn't|must not|mustn't|is not to|isn't to|may not|needn't|need not"
            r"|doesn't (?:need|have) to|does not (?:need|have) to) be (?:remembered|kept"
            r"|stored|saved"
            r"|recorded|logged|noted|written down|memori[sz]ed|archived)",
            r"(?:this|the following|that)(?: (?:one|part|bit|message))?(?:'s| is"
            r"| isn't)?(?: not)? for "
            r"(?:the|your) (?:record|records|memory|notes|archive)",
            r"not (?:for|to go on|on) (?:the|your) (?:record|records|memory|notes)",
            r"not to be (?:remembered|kept|stored|saved|recorded|noted)",
            r"no (?:record|records|memory|notes|note|trace|traces|log) (?:of|about|on) (?:this"
            r"|that)",
            r"leave no (?:record|trace|note)s?(?: of (?:this|that))?",
            r"no need to (?:remember|keep|store|save|note) (?:this|that|it)",
            r"(?:you (?:can|may|should) )?forget (?:this|it|that|what i (?:say"
            r"|tell you)(?: now| next)?) (?:right )?(?:afterwards"
            r"|after this"
            r"|after(?:ward)?|when we're done|once (?:we're done|you've answered"
            r"|you have answered))",
        ),
    ),
)

_MIXED = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\bwhat i (?:just )?said\b", "我刚才说的话"),
        (r"\b(?:please|pls)\b", "请"),
        (r"\b(?:don't|dont|do not|no need to)\b", "别"),
        (r"\b(?:remember|memori[sz]e|record|save|store|keep|log|note)\b", "记住"),
        (r"\b(?:this|it)\b(?: one| message| chat)?", "这个"),
        (r"\bthat\b", "那个"),
        (r"\b(?:forget|delete)\b(?:\s*掉)?", "忘掉"),
        (r"\b(?:memory|memories)\b", "记忆"),
        (r"\bjust said\b", "刚才说的话"),
        (r"\boff[- ]the[- ]record\b", "不作记录"),
        (r"\b(?:chat|session|conversation)\b", "对话"),
        (r"\b(?:ok|okay|thanks|thx)\b", ""),
        (r"\b(?:anything|everything)\b", "任何东西"),
        (r"\bhere\b", "这里"),
    )
)
_ZH_LEAD = (
    r"(?:请|麻烦|拜托|千万|一定|务必|你|您|你们|那|那么|就|也|还|还是|先|暂时|另外|而且|但"
    r"|但是|不过|所以|对了|顺便"
    r"|老板|帮我|给我|求你|求求你|最好|希望|我希望|记得|嗯|哎|喂|好|可以|能|能不能|可不可以"
    r"|可否|都|绝对|以后)*"
)
_ZH_TAIL = (
    r"(?:了|请|啊|呀|哦|喔|哈|吧|呢|啦|嘛|好吗|好不好|行吗|可以吗|行不行|谢谢|拜托|谢谢你|就行"
    r"|就好|就可以|即可|可以吗"
    r"|到记忆里?|进记忆里?|在记忆里?|到长期记忆里?|到档案里?|为记忆|下|的|哈哈|一下)*"
)
_ZH_NOT = (
    r"(?:别再|别给我|别|不要再|不要|不用|不必|不需要|无需|不许|不准|请勿|切勿|勿|莫|甭|不能"
    r"|不可以|不可|不该|不应该"
    r"|不得|(?:我)?不想(?:让|要)?你|我不要你|不希望你|不愿意你|不想被|不会想让你|少)(?:去|帮我"
    r"|给我|替我|把它|把这个|来|全部|全)?"
)
_ZH_KEEP = (
    r"(?:记(?:住|下来|下|录下来|录在案|录|到心里|在(?:你的?)?(?:心里|心上|记忆里|脑子里"
    r"|小本本上|本子上)"
    r"|进(?:你的?)?(?:记忆|脑子)里?|到(?:你的?)?(?:记忆|脑子|笔记|小本本|本子)(?:里|上)?|档|忆)?"
    r"|存(?:下来|起来|档|储|进(?:你的?)?(?:记忆|数据库|档案)里?|到(?:你的?)?(?:记忆|档案"
    r"|数据库)里?|着|入记忆)?"
    r"|保存(?:下来|到记忆里?|进记忆里?|起来)?|保留(?:下来)?"
    r"|留(?:下来|下|档|存|记录|底|着|下记录|下痕迹|痕迹|案)|写(?:下来|进(?:你的?)?(?:记忆|档案"
    r"|笔记)里?"
    r"|到(?:你的?)?(?:记忆|档案|笔记)里?)|归档|入档|入库|收录|备案|放进(?:你的?)?(?:记忆"
    r"|档案)里?|做(?:任何)?记录|作(?:任何)?记录"
    r"|做笔记|备份)"
)
_ZH_WORDS = r"(?:话|消息|信息|事情|事儿|事|内容|东西|部分|细节|秘密|数字|号码)"
_ZH_JUST = r"(?:刚才|刚刚|刚|方才|之前|前面|上面|先前|上一?句|上一?条|最后)"
_ZH_SAID = r"(?:说|讲|发|写|提|告诉你|跟你说|透露|聊)(?:过|到|了)?(?:给你)?"
_ZH_BEFORE = (
    rf"(?:(?:我|咱|我们)?{_ZH_JUST}(?:我)?(?:{_ZH_SAID})?(?:的)?(?:所有|全部)?(?:那|这)?(?:一"
    rf"|几|两)?(?:句|条|段|些|件|个)?"
    rf"{_ZH_WORDS}?|上一?(?:条|句|段)(?:{_ZH_WORDS})?(?:的话)?|以上(?:的)?{_ZH_WORDS}?"
    rf"|我{_ZH_SAID}的(?:这些|那些)?{_ZH_WORDS}?)"
)
_ZH_THIS = (
    rf"(?:(?:我)?(?:这|那|此|以下|下面|接下来)(?:里|边)?(?:这|那)?(?:一|几|两)?(?:句|条|段|些"
    rf"|件|个|点|番|部分)?(?:我)?(?:{_ZH_SAID}的)?"
    rf"(?:的)?{_ZH_WORDS}?|它|我(?:接下来|下面|现在|要|马上)(?:要)?{_ZH_SAID}的{_ZH_WORDS}?"
    rf"|{_ZH_BEFORE})"
)
_ZH_TALK = r"(?:聊天|对话|会话|谈话|群聊|群|聊的|讨论|话题|窗口)"
_ZH_HERE = (
    rf"(?:(?:在)?(?:这里|这儿|这边|此处)|(?:在)?(?:这|本)(?:次|个|场|段|轮"
    rf"|回)?{_ZH_TALK}(?:记录)?(?:里面?|中|内)?)"
)
_ZH_ALL = r"(?:任何|所有|一切|全部|每一?句|什么|半个字)(?:的)?(?:东西|内容|事情?|话|信息|消息|字)?"


def _chinese(*patterns: str) -> re.Pattern[str]:
    joined = "|".join(f"(?:{each})" for each in patterns)
    return re.compile(rf"{_ZH_LEAD}(?:{joined}){_ZH_TAIL}", re.IGNORECASE)


_CHINESE = (
    (
        ConsentRequest.CHAT,
        _chinese(
            rf"{_ZH_HERE}(?:{_ZH_SAID}的?)?(?:的)?(?:{_ZH_ALL}|{_ZH_WORDS})?(?:你|我们"
            rf"|咱们|请|麻烦)*(?:都|一概|一律|全)?"
            rf"{_ZH_NOT}{_ZH_KEEP}(?:{_ZH_ALL})?",
            rf"{_ZH_HERE}(?:你)?(?:什么|啥)(?:都|也){_ZH_NOT}{_ZH_KEEP}",
            rf"{_ZH_NOT}(?:把|将)?{_ZH_HERE}(?:{_ZH_SAID})?(?:的)?(?:{_ZH_ALL}"
            rf"|{_ZH_WORDS})?(?:都)?{_ZH_KEEP}",
            rf"{_ZH_NOT}{_ZH_KEEP}{_ZH_HERE}(?:{_ZH_SAID})?(?:的)?(?:{_ZH_ALL}|{_ZH_WORDS})?",
            rf"{_ZH_NOT}{_ZH_KEEP}{_ZH_ALL}(?:了)?",
            r"(?:从现在(?:起|开始))?(?:什么|啥)(?:都|也)(?:别|不要|不用|不许)记(?:住|下来?|录)?",
            rf"从现在(?:起|开始)(?:你)?(?:都)?{_ZH_NOT}{_ZH_KEEP}(?:{_ZH_ALL})?",
            rf"接下来(?:{_ZH_SAID})?(?:的)?(?:{_ZH_ALL}|{_ZH_WORDS})?都{_ZH_NOT}{_ZH_KEEP}",
            rf"(?:忘掉|忘记|忘了|清除|删掉|删除){_ZH_HERE}(?:{_ZH_SAID})?(?:的)?(?:{_ZH_ALL}"
            rf"|{_ZH_WORDS})?",
            rf"(?:把|将){_ZH_HERE}(?:{_ZH_SAID})?(?:的)?(?:{_ZH_ALL}|{_ZH_WORDS})?(?:都|全"
            rf"|全部)?(?:忘掉|忘记|忘了|清除|删掉|删除)",
            rf"{_ZH_HERE}不(?:作|做|留)(?:任何)?(?:记录|记忆|痕迹)",
            r"(?:关掉|关闭|停用)(?:你的|这里的)?记忆(?:功能)?",
        ),
    ),
    (
        ConsentRequest.BEFORE,
        _chinese(
            rf"(?:把|将)?{_ZH_BEFORE}(?:你)?(?:从(?:你的?)?(?:记忆|记录)(?:里|中)?)?(?:都|全"
            rf"|全部|给我|统统|通通)?(?:忘掉|忘记|忘了|忘"
            rf"|删掉|删除|删了|抹掉|清除|清掉|擦掉|撤回)",
            rf"(?:忘掉|忘记|忘了|删掉|删除|抹掉|清除|擦掉)(?:掉)?{_ZH_BEFORE}",
            rf"(?:把|将)(?:这|那)(?:一|几|两)?(?:句|条|段|些|件"
            rf"|个)?{_ZH_WORDS}?(?:从(?:你的?)?(?:记忆|记录)(?:里|中)?)?"
            r"(?:都|全|给我)?(?:忘掉|忘记|忘了|删掉|删除|抹掉|清除|清掉|擦掉)",
            r"(?:这|那)(?:个|句|条|些|件事)(?:给我|请)?(?:忘掉|忘记|忘了)",
            r"(?:忘掉|忘记)(?:这|那)(?:个|句|条|段|些|件)(?:话|消息|事|事情)?",
            r"(?:就)?(?:当|假装)我(?:刚才|刚刚)?(?:从?没|没有|从来没)(?:说|讲|提|发)过(?:这"
            r"|那)?(?:句|件)?(?:话|事)?",
            rf"{_ZH_BEFORE}(?:你|请|麻烦|千万)*(?:都|就|也|全|可)?{_ZH_NOT}{_ZH_KEEP}",
            rf"{_ZH_NOT}(?:把|将)?{_ZH_BEFORE}{_ZH_KEEP}",
            rf"{_ZH_NOT}{_ZH_KEEP}{_ZH_BEFORE}",
            rf"{_ZH_BEFORE}(?:是)?(?:不作|不做|不留)(?:任何)?(?:记录|记忆)",
        ),
    ),
    (
        ConsentRequest.THIS,
        _chinese(
            rf"{_ZH_NOT}{_ZH_KEEP}(?:{_ZH_THIS})?",
            rf"(?:把|将)?{_ZH_THIS}(?:你|咱们|我们|请|麻烦|千万)*(?:都|就|也|全|可"
            rf"|一律)?{_ZH_NOT}{_ZH_KEEP}",
            rf"{_ZH_NOT}(?:把|将){_ZH_THIS}(?:给|都)?{_ZH_KEEP}",
            rf"(?:{_ZH_THIS})?(?:是|都|就)?(?:不作|不做|不留|不入|不予|不进)(?:任何)?(?:记录"
            rf"|记忆|痕迹|档|底|档案|存档)",
            rf"(?:{_ZH_THIS})?(?:是|就|只)*(?:能|让)?(?:咱们俩?|我们俩?|你我|咱俩|我俩"
            rf"|你知我知)(?:两个?人?)?(?:之间)?(?:的)?"
            r"(?:知道|的?秘密|说说|私下说)",
            rf"(?:{_ZH_THIS})?(?:只|就)(?:有)?(?:你我|咱俩|我俩|我们俩?|咱们俩?"
            rf"|你)(?:两个?)?(?:人)?知道",
            rf"(?:{_ZH_THIS})?(?:天知地知)?你知我知",
            r"(?:私下|悄悄|偷偷)(?:里)?(?:跟|和|对|告诉)你(?:说|讲)?(?:个|件|一?句)?(?:事|秘密"
            r"|话)?",
            rf"(?:{_ZH_THIS})?(?:听|看|说|用|聊|答)(?:过|完)(?:了|之后|以后|后)?(?:就"
            rf"|请)?(?:忘了|忘掉|忘|删掉|删了|算了)",
            rf"{_ZH_THIS}(?:只|仅)(?:限|在)(?:这|本)次(?:对话|会话|聊天)(?:里|中)?(?:用|使用"
            rf"|有效)?",
        ),
    ),
)
_TELLING_ZH = re.compile(
    rf"{_ZH_LEAD}(?:别|不要|不用|请勿)记(?:住|得|下|录)(?P<what>我(?:的|是|在|有|怀|得|家|老婆"
    rf"|老公|妈|爸|要|喜欢|讨厌).{{1,60}})"
)
