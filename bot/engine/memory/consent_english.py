"""Recognises clauses that forbid remembering, in English.

`_NEUTRAL` lists the words that such a clause may have besides its act."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from functools import cache
from typing import TypeAlias

from storage.records.memory_consent import ConsentRequest

ConsentMatch: TypeAlias = tuple[ConsentRequest | None, str]
"""The request in a clause, and what else the clause says."""


def match_english(clause: str, *, asked: bool) -> ConsentMatch:
    said = spell_out(clause)
    if _MY_OWN_MEMORY.search(said):
        return None, clause
    if asked and not _POLITE.search(said):
        return None, clause
    for pattern in _ACTS:
        if not (act := pattern.search(said)):
            continue
        groups = act.groupdict()
        about = groups.get("about") or groups.get("about2") or ""
        about = about or _about_me(pattern, said[act.start() :])
        end = said[act.end() :].removesuffix(about)
        if pattern in {_FORGET_ACT, _KEEP_ACT}:
            end = _FACT_THAT.sub("", _SAID_ABOUT.sub(r"\1", end))
        around = f"{said[: act.start()]} {groups.get('midst') or ''}"
        around += f" {groups.get('midst2') or ''} {end}"
        is_sure = _is_neutral(around) or _is_plain_order(said, act)
        if is_sure and _is_meant_for_us(said.removesuffix(about), act):
            return _kind_of(said.removesuffix(about), pattern), about
    return None, clause


def is_english_aside(clause: str) -> bool:
    """Whether the clause only says of what was said that it was private or a slip."""
    said = spell_out(clause)
    if not any(each.search(said) for each in (_ASIDE, _SAID_BEFORE, _ONE_BEFORE, _TOPIC)):
        return False
    return _is_neutral(_ASIDE.sub(" ", _SAID_OF_TOPIC.sub(r"\1", said)))


def _about_me(pattern: re.Pattern[str], said: str) -> str:
    """The text without the wish: "my PIN is 1" of "don't remember this my PIN is 1"."""
    if pattern is not _KEEP_ACT or not (found := _RUN_ON.match(said)):
        return ""
    return found["about"]


def _is_plain_order(said: str, act: re.Match[str]) -> bool:
    """Whether the act is followed by words of mine or by this conversation and nothing else, so
    that a few other words before it do not matter."""
    before = re.findall(r"[^\W_]+(?:'\w+)?", said[: act.start()])
    unknown = [each for each in before if each not in _neutral_words()]
    if len(unknown) > _MAX_UNKNOWN or _OTHER_SUBJECT.search(said[: act.start()]):
        return False
    return _MY_WORDS.match(said, act.end()) is not None


def _is_meant_for_us(said: str, act: re.Match[str]) -> bool:
    """Not "I don't remember this", "you don't remember this" or "don't forget"."""
    before, core = said[: act.start()], said[act.start() : act.end()]
    is_supposed = re.search(r"\bif\b", before) and not _WOULD_LIKE.search(before)
    if is_supposed or _STATEMENT.search(f"{before}{core}"):
        return False
    if act.re is _FORGET_ACT and _EDITS.search(said):
        return False
    if act.re is _FORGET_ACT:
        return not re.search(r"\b(?:not|never)\b", before) or "should not have" in before
    if act.re is _KEEP_ACT:
        if _UNWANTED.search(f"{before}{core}"):
            return True
        subjects = re.findall(r"\b(?:i|we|you)\b", _SAID_CLAUSE.sub(" ", f"{before}{core}"))
        is_ours = not subjects or subjects[-1] == "you" or bool(_WE_MAY.search(before))
        return is_ours and not _FORGET_WORD.search(core)
    return True


def _kind_of(said: str, pattern: re.Pattern[str]) -> ConsentRequest:
    if pattern is _MEMORY_OFF:
        is_once = _ONE_MESSAGE.search(said) is not None
        return ConsentRequest.THIS if is_once else ConsentRequest.CHAT
    for sign, kind in _SIGNS:
        if sign.search(said):
            return kind
    return ConsentRequest.BEFORE if pattern in _BACKWARD else ConsentRequest.THIS


def _is_neutral(text: str) -> bool:
    words = re.findall(r"[^\W_]+(?:'\w+)?", text)
    return _neutral_words().issuperset(each.removesuffix("'s") for each in words)


def spell_out(clause: str) -> str:
    """Lower case, without contractions and the commonest slips."""
    said = clause.lower()
    for pattern, plain in _CONTRACTIONS:
        said = pattern.sub(plain, said)
    return " ".join(_correct(each) for each in said.split())


@cache
def _correct(word: str) -> str:
    if not _LONG_WORD.fullmatch(word) or word in _neutral_words() | _NO_SLIPS:
        return word
    near = difflib.get_close_matches(word, _OFTEN_MISSPELT, 1, 0.82) or [
        each for each in _OFTEN_MISSPELT if _is_scrambled(word, each)
    ]
    is_longer = near and len(word) > len(near[0]) and word.startswith(near[0][:-1])
    is_slip = near and near[0][0] == word[0] and not is_longer
    return near[0] if is_slip else word


_MY_OWN_MEMORY = re.compile(r"\b(?:in|from|out of|on|to) my (?:own )?(?:head|mind|brain|memory)\b")


def _is_scrambled(word: str, plain: str) -> bool:
    """Whether letters of a longer word changed places, and one at most is missing."""
    if len(word) < _MIN_SCRAMBLED or (word[0], word[-1]) != (plain[0], plain[-1]):
        return False
    missing, added = Counter(plain) - Counter(word), Counter(word) - Counter(plain)
    return not added and missing.total() <= 1


_MIN_SCRAMBLED = 6
_NAMED = (
    r"\b(?:the|that|those|these|my)(?: (?!last|previous|very)[a-z]+){1,4}?(?: that| which)? i"
    r"(?: have| had)?(?: just)? (said|mentioned|told you|gave you"
    r"|(?<!file i )(?<!doc i )sent you)\b"
)
_CONTRACTIONS = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\bdont'(?= )|\b(?:d0n'?t|dont|dnt|donot|don t|do n't|don;t|dun)\b", "do not"),
        (r"\bcan(?:no|')?t\b", "can not"),
        (r"\bwo(?:n't|nt)\b", "will not"),
        (r"\b(should|would|could|must|need|did|does|was|is|are|have|has|had)nt\b", r"\1 not"),
        (r"\b(\w+)n't\b", r"\1 not"),
        (r"\b(i|you|we|he|she|they|it|that)'d\b", r"\1 would"),
        (r"\bi'm\b|\bim\b", "i am"),
        (r"'ve\b", " have"),
        (r"'ll\b", " will"),
        (r"'re\b", " are"),
        (r"\b(it|that|this|what|there)'s\b|\b(that|what)s\b", r"\1\2 is"),
        (r"\blet'?s\b", "let us"),
        (r"\bhere(?:'s| is)\b", "this is"),
        (r"\b(?:off|of)[- ]the[- ](?:record|books)\b|\boff[- ]record\b", "offrecord"),
        (r"^otr$", "offrecord"),
        (r" (?:lah|lor|leh|hor|sia)\b|(?: (?:ah|eh|innit|bruv|fam))+$", ""),
        (r"\bun-?(remember|say|hear|see)\b", r"un\1"),
        (r"\bor (?:whatever|something|anything)$", ""),
        (r"\bhold(ing)? onto\b", r"hold\1 on to"),
        (r"\b(?:pls|plz|plse)\b", "please"),
        (r"\b(?:nvm|nm)\b", "never mind"),
        (r"\bu\b", "you"),
        (r"\b(?:wat|wut)\b", "what"),
        (r"\babt\b", "about"),
        (r"\btho\b", "though"),
        (r"\bdis\b", "this"),
        (r"\bdat\b", "that"),
        (r"\s*&\s*", " and "),
        (r"\bur\b", "your"),
        (r"\b(?:on file|in (?:any|my|your) files?|long[- ]term)\b", "in memory"),
        (r"\bheads[- ]up\b", "fyi"),
        (_NAMED, r"what i \1"),
    )
)  # fmt: skip
_LONG_WORD = re.compile("[a-z]{5,14}")
_OFTEN_MISSPELT = (
    *("remember", "remembered", "memory", "record", "forget", "please", "anything", "everything"),
    *("conversation", "message", "memorize", "between", "archive", "delete"),
)
_NO_SLIPS = {"forgot", "forged", "massage"}


_NEUTRAL = """
reply replied answering reading read came regret sending unsend recall asked rant rants vent
venting gossip confession tidbit paragraph paragraphs passage passages request ideally
preferably hush paste nvm amnesiac forgetful cut
know banks zero overshare overshared joke taste poor
quick vanish disappear evaporate future ignore
disregard ugh argh eek omg oops whoops wow yikes damn shit crap lol haha hehe gosh man dude
something someone trust allowed permitted
circumstances case condition place places point means account clear copy
writing typing sending promise swear love god sake supposed see heard bother
please kindly just also and but so or ok okay k hey hi oh well actually now btw way for again
really seriously wait no sorry though maybe perhaps better boss shiftboss bot hm hmm um uh ah
look listen yeah yep thanks thank thx ty cheers ta fyi either at all anywhere ever any anymore
more then too me us you your yourself i we my our mine ourselves would will could can should
shall must may might do does did be is are am was were been have had has want wanted like need
needs prefer rather appreciate appreciated grateful glad happy wish hope ask asking beg let make
sure certain try mind possible if once when dare to of in on into onto from with by about over
up out off down away around as than this that these those it its one ones part parts bit bits
piece message messages msg text line lines sentence sentences remark comment comments statement
thing things stuff info information detail details fact word words question story number name
everything anything nothing something none whatever what whole entire every some both few couple
two three last previous preceding prior earlier before above following follows next latest
recent current moment minute second ago today tonight happened came comes come said say saying
says tell telling told wrote written typed type sent send share shared sharing posted mention
mentioned mentioning talk talked talking discuss discussed discussing speak speaking spoke
confided confide revealed chat chats conversation convo session thread discussion exchange room
channel group dialog dialogue memory memories notes note record records history log logs archive
head brain here between a an the unsaved unrecorded unstored forgotten hour hours day days
yesterday morning afternoon evening while week without build building storage knowledge profile
diary other others elsewhere carry use used using reuse repeat bring brought go rest mode answer
answers reply questions hate dislike honestly frankly simply literally truly kinda sort sorta
somewhat little lot because since cause cuz during until till through within inside outside
under else another such own hear heard removed deleted erased wiped cleared mean accidentally
pasted meant far get rid only strictly completely totally purely entirely absolutely private
privately personal confidential secret sensitive future later permanently forever term beyond
after afterwards afterward done finished answered not never necessary going starting gonna gave
remember memorize memorise retain store save keep keeping stay stays remain remains treat
consider regard thought thoughts anyway track nah pssst psst otherwise further notice unlogged
ephemeral unsaid throwaway disposable temporary goldfish sieve mark rule find gone switch
thought yet around deal toss bin useful helpful pretty very super quite good great nice fine
instead time same immediately
goes
"""


@cache
def _neutral_words() -> frozenset[str]:
    return frozenset(_NEUTRAL.split())


_TALK = r"(?:chat|conversation|convo|session|thread|talk|discussion|exchange|dialog(?:ue)?)"
_SAY = (
    r"(?:say|said|tell|told|wrote|write|typed?|sent|send|mention(?:ed)?|shared?|posted|confided"
    r"|revealed|gave(?= you)|asked|brought up|let slip|talk(?:ed)? about|discuss(?:ed)?)"
)
_MEMORY = (
    r"(?:what(?:ever)? (?:(?:file|record|profile|notes) )?you (?:know|have|keep|remember)"
    r" (?:about|on|of) me\b|(?:the )?memory banks?\b"
    r"|(?:(?:your|the|any|my|our|in|long) ){0,2}(?:memory|memories|mind|head|brain|notes?|records?"
    r"|archives?|history|logs?|storage|knowledge|profile|diary|database))"
)
_OBJECT = (
    r"(?:(?:any|all|some|none|a word|anything|part) (?:of )?)?(?:this|that|these|those|it|them"
    r"|what (?:i|we|follows|comes next)|whatever|anything|everything|things|stuff"
    r"|the (?:following|above|next|last|previous)|my (?:last|previous|next)|a thing"
    r"|(?:our|the) (?:chat|conversation|session|discussion))\b"
)
_BETWEEN = (
    r"(?:between (?:us(?: two| both)?|you and me|me and you|ourselves|the two of us|you and i)"
    r"|entre nous"
    r"|to yourself|for your (?:eyes|ears)(?: only)?|under wraps|in (?:strict(?:est)? |full "
    r"|total )?"
    r"confidence)"
)
_NOT = (
    r"\b(?:not|never|no need|needless|avoid|refrain from|abstain from|stop|quit|without"
    r"|no(?= [a-z]+ing\b))"
)
_MIDST = r"(?: [a-z]+){0,6}?"
_STRONG = r"(?:remember(?:ing)?|memori[sz](?:e|ing)|retain(?:ing)?|keep(?:ing)? in mind)"
_KEEP = (
    r"(?:keep(?:ing)?|stor(?:e|ing)|sav(?:e|ing)|record(?:ing)?|log(?:ging)?(?! (?:in|out|on"
    r"|off)\b)|archiv(?:e|ing)"
    r"|persist(?:ing)?|not(?:e|ing)(?: down)?|writ(?:e|ing) down|tak(?:e|ing) down|stash(?:ing)?"
    r"|hoard(?:ing)?|carry(?:ing)?(?= .*\baround\b)"
    r"|jot(?:ting)? down|h[ao](?:ld|ng)(?:ing)? on ?to|captur(?:e|ing)|bookmark(?:ing)?"
    r"|fil(?:e|ing)(?= (?:this|that|it|these|them)\b)|regist(?:er|ering)|document(?:ing)?"
    r"|preserv(?:e|ing)"
    r"|keep(?:ing)? track of"
    r"|(?:mak|tak|keep|leav)(?:e|ing)? (?:a |any |an )?(?:notes?|records?|memory|memo|copy|log"
    r"|trace|traces|copies|memories) (?:of|about|on))"
)
_PUT = (
    r"(?:us(?:e|ing)|put(?:ting)?|add(?:ing)?|writ(?:e|ing)|commit(?:ting)?|enter(?:ing)?|plac"
    r"(?:e|ing)"
    r"|fil(?:e|ing)|back(?:ing)? up|mov(?:e|ing)|mak(?:e|ing)(?= (?:this|that|it) part of)"
    r"|transfer(?:ring)?|includ(?:e|ing)|sav(?:e|ing)"
    r"|stor(?:e|ing)|keep(?:ing)?|tak(?:e|ing)|hold(?:ing)?|leav(?:e|ing)|let(?:ting)?)"
)
_KEPT = (
    r"(?:remembered|memori[sz]ed|retained|kept|stored|saved|recorded|logged|archived|persisted"
    r"|noted(?: down)?|written down|taken down|jotted down|committed|preserved|documented"
    r"|held on to|filed(?: away)?|captured|put|added)"
)
_PERSONAL = (
    r"(?:name|address|birthday|birthdate|phone|mobile|email|password|pin|passcode|passport|salary"
    r"|income|wage|age|weight|diagnosis|illness|disease|religion|orientation|ssn|iban|account|card)"
)
_KEEP_ACT = re.compile(
    rf"{_NOT}(?: to)? (?:store|save|record|log|keep|note|persist|retain|archive"
    rf"|memori[sz]e)(?: (?:please|ok|okay|thanks))*$"
    rf"|{_NOT}(?: to)?(?P<midst>{_MIDST}) (?:{_STRONG}(?! to\b)"
    r"(?: (?:(?:the fact )?that (?=(?:i|my|we|our|he|she|they|the)\b)|(?=my\b))"
    r"(?P<about>(?!my (?:last|previous|next)\b|i (?:just )?(?:said|told)).+)"
    r"|(?: (?:anything|something|things|stuff|details))? (?:about|of|on) my (?!last|previous"
    r"|next).+"
    rf")?|{_KEEP}(?: (?:the fact )?that (?=(?:i|my|we|our)\b)(?P<about2>.+)|(?= .*{_OBJECT})"
    rf"| my (?:[a-z]+ ){{0,2}}{_PERSONAL}(?: number)?$)"
    r"|(?:make|making|take|taking|keep|keeping|leave|want|wanting|need|build|build up|form|create"
    r"|have|retain)(?: "
    r"(?:a|any|an))? (?:notes?|records?|memory|memo"
    r"|copy|log|trace|traces|copies|memories)(?: out)? (?:of|about|on|from)"
    rf"(?: (?:anything|something))?(?: my (?!last|previous).+|(?= .*{_OBJECT}))"
    rf"|{_PUT}(?= .*\b(?:to|in|into|on|for|from|of) {_MEMORY})|fil(?:e|ing)(?= .*\baway)"
    r"|(?:writ|tak|jot|not)(?:e|t?ing)(?= .*\bdown)|learn(?:ing)?(?= .*\bfrom\b| (?:this|that"
    r"|it)\b))"
    rf"|{_NOT}(?: to)? (?:ever )?(?:bring (?:this|that|it) up|(?:mention|repeat|use|reuse|bring up)"
    r" (?:this|that|it))(?= .*\b(?:later|again|in (?:the )?future|elsewhere|in (?:any )?other))"
    rf"|{_NOT}(?: to)? (?:take|taking|keep|keeping|make|making) (?:any |more |your )?(?:notes"
    rf"|records)"
    r"\b(?= (?:while|when|as|during|in|here|on me|of|about|from)\b|$)"
    rf"|{_NOT}(?: to)? use (?:this|our|the|my) (?:{_TALK}|messages?|words) (?:to|for) (?:learn"
    rf"|train).*"
    rf"|{_NOT}(?: to)?{_MIDST} (?:follow(?:ing)? me|haunt(?:ing)? me|linger|sink in|leave (?:a"
    rf"|any) mark"
    r"|resurface|pop up (?:later|again))\b"
    rf"|{_NOT}(?: to)?(?: ever)? (?:write|put|note|post|leave) (?:this|that|it|these"
    rf"|any of (?:this|it))"
    r"(?: down)? (?:anywhere|somewhere|any place)"
    rf"|{_NOT}(?: to)? (?:{_STRONG}|{_KEEP})(?= (?:that )?i(?: ever| just| even)? (?:asked|said"
    rf"|told you"
    r"|mentioned|wrote)(?: (?:you|this|that|it|about (?:this|that|it)))?$)"
    rf"|{_NOT}(?: to)? carry (?:this|that|it|anything) over"
    rf"|^(?=.*{_OBJECT}).*{_NOT}(?: to)?(?P<midst2>{_MIDST}) {_KEEP}$"
)
_RUN_ON = re.compile(
    rf".*?\b(?:{_STRONG}|save|store|record) (?:this|that|it)(?: please)? (?P<about>(?:i|my|we|our"
    rf"|he|she|they|his|her) \w+ .+)"
)
_SAID_BY_ME = (
    rf"(?:(?:i|we)(?: [a-z]+){{0,3}}? {_SAY}\b|(?:my|the|that|those|these)(?: very)?"
    r"(?: (?:two|three|few|couple of))? (?:last|previous|preceding|earlier|prior|latest|above)"
    r"(?: (?:two|three|four|few|couple|of))* (?:messages?|msgs?|remarks?|words|things?|bits?|parts?"
    r"|sentences?|lines?|comments?|statements?|questions?|texts?|paragraphs?)"
    r"|my messages?\b)"
)
_SAID_REFERENCE = (
    rf"(?:{_SAID_BY_ME}|these|those|all of (?:this|that)|(?:this|that|the|the last|the previous)"
    rf" (?:whole |entire |last )?(?:message|messages|sentence|remark|part|bit|thing|things|info"
    rf"|information|detail|details|{_TALK})|that one from|the above|all (?:this|that|of it)|it "
    rf"(?:ever|was)|that ever"
    rf"|(?:this|it|that|we) (?:ever )?(?:happened|talked|spoke)|(?:everything|all|anything|it all)"
    rf"(?: (?:from|in|of|about))? (?:here|this (?:whole |entire )?{_TALK})|this\b|that (?=please)"
    rf"|{_OBJECT}.* (?:from|in|out of) {_MEMORY})"
)
_MAX_UNKNOWN = 3
_OTHER_SUBJECT = re.compile(
    r"\b(?:he|she|they|his|her|their|someone|who|how|why|where|when|what|which|if|whether|to|we|let"
    r"|said|says|told|asked|wants?|wanted|file|files|table|page|folder|script|button)\b"
)
_MY_WORDS = re.compile(
    rf"(?: (?:about|of|on|any|all|anything|everything|and|or|delete|remove|erase|the))*"
    rf" (?:what (?:i|we)(?: have| had)?(?: just| have)? {_SAY}(?: to)?(?: you)?"
    r"|my (?:last|previous)(?: (?:two|three|few|couple|of))* (?:messages?|msgs?|sentences?|lines?"
    r"|words"
    r"|remarks?|statements?)|that i(?: ever)? (?:said|told you|mentioned) (?:that|this|anything|it)"
    r"|i(?: ever)? (?:said|told you|mentioned)(?: (?:that|this|anything|it|so|a word))?"
    rf"|this (?:whole |entire )?{_TALK})"
    r"(?: (?:please|now|again|ok|thanks|just now|a (?:minute|second|moment) ago|entirely"
    r"|completely))*$"
)
_FORGET_WORD = re.compile(r"\b(?:forget|forgetting|unremember)\b")
_FORGET_ACT = re.compile(
    r"\b(?:throw away|toss|bin|shred|nuke|let go of|unsay|unhear)(?= .*?what (?:i|we)\b)"
    r"|\b(?:undo|reverse|take back|cancel) (?:remembering|saving|storing|noting|recording"
    r"|memori[sz]ing)"
    rf"|\b(?:ignore|disregard|skip) {_SAID_BY_ME} and (?:please )?(?:wipe|delete|forget|erase"
    rf"|remove)"
    r" (?:it|that|them)\b"
    rf"|^(?=.*{_SAID_BY_ME}).*\b(?:forget|erase|delete|lose|drop|get rid of|wipe|scrap) (?:it|that"
    rf"|them)\b"
    r"|\b(?:be|act|play) (?:amnesiac|forgetful)(?= about)"
    rf"|\b(?:forget|forgot|forgetting|unremember)(?= .*?{_SAID_REFERENCE})"
    rf"|\b(?:delete|(?<=you )(?:removed|deleted|erased|wiped|dropped|cleared)|deleting|erase"
    rf"|erasing"
    rf"|wipe|remove|drop|scrap|purge|discard|clear|expunge|get rid of|strike|scratch|scrub|redact"
    rf"|retract|trash|unsend)(?= .*?{_SAID_BY_ME})"
    rf"|\b(?:delete|deleting|erase|erasing|wipe|remove|drop|scrap|purge|discard|clear|expunge"
    rf"|get rid of|scrub|scratch|strike|redact|retract|trash|take)(?= .*?{_OBJECT}.* (?:from|off"
    rf"|out of) {_MEMORY})"
)
_EDITS = re.compile(
    r"\b(?:delete|erase|wipe|remove|drop|scrap|clear|strike|cut|scratch) (?:out )?(?:the"
    r"|this) (?:very )?"
    r"(?:last|previous|latest|above)(?: (?:two|three|few))? (?:lines?|paragraphs?|parts?|sentences?"
    r"|words?|comments?|questions?)\b(?! (?:that )?i\b)"
)
_FACT_THAT = re.compile(r" the fact that (?:i|my|we|our|he|she|they)\b.*")
_SAID_ABOUT = re.compile(
    rf"((?:(?:just|ever|even) {_SAY}|am (?:telling|saying|writing))(?: to)?(?: you)?(?: just now"
    rf"| here)?|\bi (?:ever|even) {_SAY}) (?:about|my|our|the)\b.*"
)
_SAID_OF_TOPIC = re.compile(rf"(\bi(?: have| just)? {_SAY}(?: you)?) about .*")
_POLITE_FORGET = re.compile(
    r"\b(?:please|(?:can|could|would|will) you)(?: please| just)* (?:forget|unremember)"
    r" (?:about )?(?:that|it)(?: one)?(?: please)?$"
    r"|\bplease forget$|\b(?:unlearn|unremember|unhear|unsee) (?:that|it|this|what i said)\b"
)
_PASSIVE_ACT = re.compile(
    rf"\b(?:(?:not|never|nothing|none|no part|without|hate|dislike)\b{_MIDST}(?: (?:be|gets?|being"
    rf"|have"
    rf"|having|want"
    rf"|this|that|it|these)){_MIDST} {_KEPT}"
    rf"|not (?:want|like|need) (?:this|that|it|any of (?:this|that)) (?:in|on) {_MEMORY}"
    rf"|(?:not|never|nothing|none|hate|dislike)(?: [a-z]+){{0,8}}? (?:to be|be) {_KEPT}"
    rf"|(?:not|never|nothing|none|no need)\b(?: [a-z]+){{0,9}}? (?:(?:ends? up|lands?|stays?"
    rf"|go(?:es)?"
    rf"|sticks?|appears?|lives?|finds?(?: [a-z]+){{0,3}}|be"
    rf"|makes? it|remains?|belongs?|stored|kept|shows? up)(?: [a-z]+)?) (?:in|into|on|to"
    rf"|for) {_MEMORY}"
    rf"|(?:like|want|have|get|need)\b(?=.*{_SAID_BY_ME}|.* {_MEMORY})(?: [a-z]+){{1,9}} (?:removed"
    r"|deleted|erased|wiped|forgotten|cleared|gone)"
    r"|(?:can|could|may) (?:this|that|our|the)(?: [a-z]+){0,2} be (?:forgotten|deleted|erased"
    r"|wiped)"
    r"|(?:must|should|shall|needs? to|have to|has to|can|may|to) be"
    r" (?:forgotten|deleted|erased|wiped|unremembered|discarded))"
)
_OFF_RECORD = re.compile(
    r"\boffrecord\b(?: (?:that )?(?P<about>(?:i|my|we|our|he|she|they|there|the|between)\b.*))?"
)
_NO_KEEPING = (
    r"(?:memory|memories|notes?|records?|traces?|logs?|logging|recordings?|recording|saving|storing"
    r"|storage|remembering|memori[sz]ing|note[- ]taking|retention|retaining|archiving|keeping)"
)
_SECRET_ACT = re.compile(
    rf"\b(?:{_BETWEEN}|(?:keep|keeping|treat|consider) (?:this|that|these|what i)(?: "
    rf"[a-z]+){{0,6}}?"
    r" (?:confidential|a secret|secret|private|incognito|unsaved|unrecorded|unstored)"
    r"|(?:keep|leave|hold|kept|left|stay(?:s|ed)?|remain(?:s|ed)?)(?: [a-z]+){0,9}? (?:out of|off"
    r"|away from|from)"
    rf" (?:{_MEMORY}|it)"
    rf"|(?:no|zero) {_NO_KEEPING}(?: (?:of|for|on|about|from) {_OBJECT})"
    rf"|^(?:please )?no {_NO_KEEPING}(?:(?: and| or)? no {_NO_KEEPING})*(?: please| here| now"
    rf"| today| tonight| ok| okay| at all"
    rf"|(?: (?:for|in|of|from|on))? (?:this|the)(?: whole| entire)?(?: {_TALK}| one| message| msg)?"
    r")*$"
    rf"|(?:keep|save|store|remember|retain|record|log) (?:nothing|none)\b"
    rf"|\bnot (?:for|in|into) (?:your|the) (?:{_MEMORY}|files?)"
    r"|\bnot (?:\w+ )?take (?:this|it|that)(?: message)? into account"
    r"(?= .*\b(?:later|future|again|next|other)\b)"
    r"|\bnever (?:leaves?|to leave) (?:this|the) (?:chat|room|conversation)\b"
    r"|^(?:this is )?to be (?:forgotten|discarded|erased|unremembered)\b"
    r"|burn (?:this )?after reading|under (?:your|my) hat\b|\bbe (?:like )?an? (?:goldfish|sieve)\b"
    r"|(?:treat|consider|regard|mark|count)(?: [a-z]+){0,5}? (?:ephemeral|unlogged|unrecorded"
    r"|unsaid|throwaway|disposable"
    r"|do[- ]not[- ]remember)\b|\bnot (?:something|a thing|anything) to (?:keep|store|save|remember"
    r"|record)\b"
    r"|\b(?:one[- ]time|single) use(?: only)?\b|\bnot for (?:keeping|storing|saving|the record)\b"
    r"|\bwhatever (?:happens|is said|we say|i say)(?: [a-z]+){0,3} stays\b"
    r"|(?:only|just) for (?:this|the current) (?:answer|reply|question"
    r"|session|chat|conversation)(?= only|$)"
    r"|leav(?:e|ing) no (?:traces?|records?|notes?)"
    rf"|not (?:meant |intended )?(?:for|to go on|on|to go into) {_MEMORY}"
    r"|you (?:did not|never) (?:heard?|saw|see|read) (?:this|that|it|any of (?:this|that)|a thing)"
    r"|(?:this|that|it|what (?:i|we) (?:say|said))(?: [a-z]+){0,2}? (?:goes no further"
    rf"|(?:stays?|remains?) (?:here|in here|in this (?:{_TALK}|room))))"
)
_PRETEND = re.compile(
    r"\b(?:pretend|act (?:as if|like)|as (?:if|though)|like)"
    rf"(?: that)? (?:i|we) (?:never|did not|had not|have not)(?: ever)? {_SAY}"
    r"|\b(?:pretend|act (?:as if|like))(?: that)? you (?:never|did not)(?: ever)? (?:hear|heard|see"
    r"|saw|read) (?:this|that|it|any)"
    r"|\b(?:pretend|act (?:as if|like)) (?:this|that|it|(?:the|my) (?:last|previous) (?:message|one"
    r"|bit)) (?:never|did not)"
    r" (?:happen(?:ed)?|came? up|exist(?:ed)?|took place|take place)"
)
_FORGET_LATER = re.compile(
    r"\b(?:use|read|see) (?:it|this|that) once(?: and)?(?: then)? (?:forget|delete|drop)(?: it)?$"
    r"|\brather (?:this|it|that) (?:be|was|were) gone\b"
    r"|\blet (?:this|it|that)(?: one)? go (?:after|once|when|as soon as)\b.*"
    r"|\b(?:answer|reply|help)(?: me)? and (?:then )?(?:wipe|forget|erase|delete)(?: it| this)?$"
    r"|\b(?:forget|delete|erase|wipe|discard|drop|remove)(?: about)? (?:this|it|that|what i (?:say"
    r"|tell"
    r"|told)|everything|all of (?:this|it)|this (?:message|one))(?P<midst>(?: [a-z]+){0,3}?)"
    r" (?:afterwards?|after|once|when|as soon as|right after|immediately|later)\b"
    r"(?P<midst2>(?: [a-z]+){0,6})$"
    r"|\b(?:let|make|have) (?:it|this|that) (?:vanish|disappear|go away|evaporate|be gone)\b"
    r"|\b(?:want|need|like) (?:this|it) (?:to be )?gone\b"
)
_ONE_MESSAGE = re.compile(r"\b(?:for|in|on|with) (?:this|the) (?:message|msg|one|question|line)\b")
_MEMORY_OFF = re.compile(
    r"\b(?:(?:turn|switch|shut) (?:your |the |my )?memory off|(?:turn|switch|shut) off (?:your "
    r"|the |my )?memory|(?:disable|pause|deactivate) (?:your |the |my )?memory|memory off"
    r"|not remembering (?:for|while|from)|go(?:ing)? incognito|incognito (?:mode|chat|please|now)"
    r"|stop (?:remembering|recording|memori[sz]ing)(?: (?:things|stuff|anything|everything|me"
    r"|what i say|here))*)\b"
)
_ACTS = (
    _MEMORY_OFF,
    _PRETEND,
    _FORGET_LATER,
    _FORGET_ACT,
    _POLITE_FORGET,
    _PASSIVE_ACT,
    _KEEP_ACT,
    _OFF_RECORD,
    _SECRET_ACT,
)
_BACKWARD = (_PRETEND, _FORGET_ACT, _POLITE_FORGET)
_SAID_CLAUSE = re.compile(
    r"\b(?:what|whatever|everything|anything|all|nothing|bit|part|thing|that|message) (?:that )?"
    r"(?:i|we)\b(?! (?:do|can|did|could|will) not)"
)
_UNWANTED = re.compile(
    r"\bi (?:do|would) not (?:really )?(?:want|like|need) (?:a|any|the|this|that)\b"
)
_WE_MAY = re.compile(r"\b(?:can|could|may|should|might) we\b|\blet us\b")
_STATEMENT = re.compile(
    r"^(?:[a-z]+ )?can not remember\b|(?<!wish )(?<!rather )(?<!if )(?<!prefer )\byou forgot\b|"
    r"^(?:[a-z]+ )?do not (?:quite|really|exactly|fully|clearly|even) remember\b|"
    r"^(?:(?:and|but|so|well|oh|no|ok|okay|hey|now) )*do not you (?!dare)"
    r"|\bmy boss\b|(?<!i )\b(?:said|says|told me|tells me|asked me|wants me)(?: to)? not to\b"
    r"|\bremember (?:if|whether|where|when|who|why|how|which)\b"
    r"|(?<!sure )(?<!if )(?<!that )(?<!hope )(?<!want )(?<!rather )(?<!prefer )\byou (?:do not"
    r"|never|can not|did not|could not) remember"
    r"|\b(?:was|were|is|are|have|has|had|been) (?:not|never) (?!to\b|be\b|want\b)(?:\w+ )?"
    rf"{_KEPT}"
    r"|\b(?:i|we) (?:have|had|got) no\b|(?<!can )(?<!could )(?<!should )(?<!may )(?<!that )"
    r"\b(?:i|we)(?: just| always| often| might| will| would)*"
    r" (?:forget|forgot|delete|erase|wipe|remove|drop|keep)\b|(?<!can )(?<!could )(?<!may )"
    r"(?<!should )"
    r"(?<!will )(?<!would )(?<!must )\byou (?:forget|delete)\b|\bto forget\b(?<!you to forget)"
)
_WOULD_LIKE = re.compile(
    r"\b(?:would|could|appreciate|prefer|better|grateful|glad|happy|mind|rather|like|please)\b"
)
_POLITE = re.compile(
    r"^(?:(?:please|hey|and|so|ok|okay|hi|oh|well|hmm?|but|actually|boss|sorry) )*"
    r"(?:(?:can|could|would|will|may|might) (?:you|we|this|that|it|what|my|all|everything|i ask"
    r"|the)|do you mind|is it possible|would it be|any chance|mind)\b"
    r"|\b(?:ok|okay|k|please|alright|right|yeah)$"
)
_ONE_BEFORE = re.compile(
    r"\b(?:my|the|that|those|these)(?: very)? (?:(?:two|three|few|couple of) )?(?:last|previous"
    r"|preceding|prior|latest)\b"
)
_PERIOD = (
    r"for (?:the )?(?:rest of (?:the |this )?(?:day|today|evening|night|week|morning|afternoon)"
    r"|next (?:[a-z0-9]+ ){0,2}?(?:minutes?|mins?|hours?|days?|weeks?)|today|tonight)"
    r"|un?til (?:tomorrow|tonight|midnight|noon|[a-z]+day)"
)
_WHOLE_CHAT = re.compile(
    rf"\b(?:{_PERIOD})\b|(?<!leaves )(?<!leave )\b(?:this|the|our|a|whole|entire|from"
    rf"|in)\b(?: (?:whole|entire|very|current|present))?"
    rf" {_TALK}\b|\bso far\b|\ban? offrecord {_TALK}|\b(?:talk|chat|speak) without\b|(?<!stays )"
    rf"(?<!stay )(?<!remains )\bhere\b(?! (?:above|before|about))|\bfrom"
    rf" (?:now|here) on\b|\bhenceforth\b"
    r"|\b(?:while|when|as) we (?:talk|chat|speak)\b|\bon me\b|\b(?:stop|quit"
    r"|no more)\b.*\babout me\b|\bin this chat stays\b"
    r"|\buntil (?:i say|further notice)\b|\boffrecord (?:for|from)\b"
    r"|\b(?:what|whatever|things|anything|everything) we (?:talk|discuss|say|chat)"
)
_STILL_TO_COME = re.compile(
    r"\b(?:about to|going to|gonna|next|following|follows|what i (?:say|tell)|what i am|afterwards?"
    r"|once|as soon as|comes next|when (?:you|we) (?:finish|are (?:done|finished|through)))\b"
)
_SAID_BEFORE = re.compile(
    r"\b(?:just (?:said|told|wrote|typed|sent|mentioned|shared|posted|now)|(?:i|we)(?: have|"
    r" had)?(?: not)?"
    r" (?:said|told|wrote|typed|sent|mentioned|shared|posted|gave)|earlier|above|ago|was)\b"
)
_ANYTHING = re.compile(
    r"\b(?:anything|everything|nothing|whatever(?! file| notes)|things|today|tonight)\b(?! you\b"
    r"| (?:of|about|in"
    r"|on)"
    r" (?:this|that|it|my)\b)"
)
_SIGNS = (
    (_ONE_BEFORE, ConsentRequest.BEFORE),
    (_WHOLE_CHAT, ConsentRequest.CHAT),
    (_STILL_TO_COME, ConsentRequest.THIS),
    (_SAID_BEFORE, ConsentRequest.BEFORE),
    (_ANYTHING, ConsentRequest.CHAT),
)
_TOPIC = re.compile(r"^(?:what(?:ever)?|everything|anything|all|nothing) (?:that )?(?:i|we)\b")
_ASIDE = re.compile(
    r"\b(?:overshar(?:e|ed|ing)|poor taste|should not have|(?:came|come) out wrong|regret(?:s"
    r"|ted)? (?:sending|saying|telling"
    r"|writing"
    r"|that|this|it)|(?:can not|could not) (?:unsend|delete|recall) (?:it|that)"
    r"|slip(?:ped)?(?: of the tongue)?|by mistake|by accident|accidental"
    r"(?:ly)?(?: paste)?|pasted"
    r"|(?:ignore|disregard|never mind) (?:it|that|this)|a mistake"
    r"|wrong (?:chat|window|person|number|group)|(?:was|is|very|too|bit) (?:private|personal"
    r"|confidential|sensitive"
    r"|secret)|only (?:venting|thinking aloud)|just venting|tmi|too much|did not mean to|not "
    r"(?:supposed|meant) (?:to|for)|take "
    r"(?:that|it|this) back)\b"
)
