"""Checks by code that an extracted fact rests on words that were said: a model may name a real turn
for a fact that it made up.

A paraphrase passes: `MIN_SHARE` of the fact's own words must be in the turns it names, not all.
Words that models add to any fact ("the user prefers") do not count, and common things are the same
in both languages. What cannot be put in other words must all have been said: numbers and names. The
clause that says most of it must be a plain statement: no question, supposition, jest or quote, and
of a personal fact not about somebody else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo

from bot.engine.memory.fact_changes import says_it_is_not_so
from bot.engine.memory.fact_relations import relations_in
from bot.engine.memory.fact_terms import KIN_TERMS, canonical_terms
from bot.engine.memory.said_clauses import (
    SaidClause,
    names_another,
    said_clauses,
    split_sentences,
)
from bot.engine.memory.self_statements import is_quoted_or_fictional
from storage.records.memory import PERSONAL_CATEGORIES, MemoryCategory, MemoryEntry
from storage.records.memory_evidence import GroundingDoubt
from storage.search.chinese import HAN
from storage.search.dates import find_dates

MIN_SHARE = 0.5
_MAX_QUOTE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FactGroundingResult:
    """`quote` is the sentence that the fact rests on most, in the turn `cell`."""

    doubt: GroundingDoubt | None
    quote: str = ""
    cell: MemoryEntry | None = None


def check_grounding(
    text: str,
    category: MemoryCategory,
    cells: Sequence[MemoryEntry],
    zone: tzinfo,
    *,
    of_work: bool,
) -> FactGroundingResult:
    """Whether `text` rests on the user's words in these turns; of work, also on what came of it."""
    said = [
        (cell, each)
        for cell in cells
        for each in split_sentences(cell.text if of_work else cell.user_text)
    ]
    words = _telling_terms(text, cells)
    best_cell, best = max(
        said, key=lambda pair: len(words & canonical_terms(pair[1])), default=(cells[0], "")
    )
    known = {term for _, each in said for term in _terms_with_plain_units(each)}
    shared = words & known
    doubt = _find_doubt(text, words, shared, said, zone, of_work=of_work)
    if doubt is None and not of_work:
        doubt = _doubt_of_kind(text, category, words, best_cell, best)
        if doubt is None and category in PERSONAL_CATEGORIES and _has_name_of_another(text, cells):
            doubt = GroundingDoubt.OF_ANOTHER
    return FactGroundingResult(
        doubt=doubt, quote=" ".join(best.split())[:_MAX_QUOTE], cell=best_cell
    )


def _find_doubt(
    text: str,
    words: set[str],
    shared: set[str],
    said: Sequence[tuple[MemoryEntry, str]],
    zone: tzinfo,
    *,
    of_work: bool,
) -> GroundingDoubt | None:
    if not words:
        return None
    if not shared:
        return GroundingDoubt.UNSAID
    whole = "\n".join(each for _, each in said)
    if not _numbers_were_said(text, whole, said, zone):
        return GroundingDoubt.NUMBERS
    if not all(_is_named(each, whole, said) for each in _names(text)):
        return GroundingDoubt.NAMES
    is_oftener = any(each.search(text) and not each.search(whole) for each in _FREQUENCIES)
    if is_oftener or len(shared) / len(words) < (MIN_SHARE / 2 if of_work else MIN_SHARE):
        return GroundingDoubt.WORDS
    return None


def _doubt_of_kind(
    text: str, category: MemoryCategory, words: set[str], cell: MemoryEntry, quote: str
) -> GroundingDoubt | None:
    """The doubt that the form of its clauses raises: a question, a supposition, a jest, somebody
    else. Texts with quotes and long ones are not judged."""
    is_personal = category in PERSONAL_CATEGORIES and not _names_same_person(text, quote)
    if is_personal and (_ORDERED.match(quote.strip()) or _FICTION.search(cell.user_text)):
        return GroundingDoubt.UNREAL
    if is_personal and _rests_on_quotes(words, cell.user_text):
        return GroundingDoubt.OF_ANOTHER
    is_quoted = _QUOTE_MARKS.search(cell.user_text) or (
        is_quoted_or_fictional(cell.user_text) and not _REPORTS.search(cell.user_text)
    )
    clauses = [] if is_quoted else list(said_clauses(cell.user_text))
    shared = [(len(words & canonical_terms(each.text)), each) for each in clauses]
    most = max((count for count, _ in shared), default=0)
    best = [each for count, each in shared if count == most and count]
    if not best:
        return None
    if all(each.is_asked or each.is_unreal for each in best):
        return GroundingDoubt.UNREAL
    if is_personal and all(
        _is_of_another(each) or _is_of_thing(each, text, words) for each in best
    ):
        return GroundingDoubt.OF_ANOTHER
    denied = {says_it_is_not_so(each.text) for each in best}
    # One clause may deny what another says. "Peanuts make me ill" is no denial of "cannot eat
    # peanuts", as it does not say the same of them.
    told = relations_in(text)
    alike = any(
        told & relations_in(each.text)
        if told
        else 2 * len(words & canonical_terms(each.text)) >= len(words)
        for each in best
    )
    # "Prefers texts over calls" is no denial of "hate calls".
    alike = alike and _COMPARES.search(text) is None
    is_opposite = alike and denied == {not says_it_is_not_so(text)}
    return GroundingDoubt.OPPOSITE if is_opposite else None


def _rests_on_quotes(words: set[str], said: str) -> bool:
    """Whether only somebody else's words say it: what is forwarded, and what "he said"."""
    own = _FORWARDED.sub(" ", said)
    if _REPORTS.search(said) or _ASIDE.search(said):
        own = _QUOTED.sub(" ", own)
    return own != said and 2 * len(words & _terms_with_plain_units(own)) < len(words)


def _has_name_of_another(text: str, cells: Sequence[MemoryEntry]) -> bool:
    """Whether a name in the fact was only said of somebody else, of whom the fact does not tell."""
    if names_another(text):
        return False
    clauses = [each for cell in cells for each in said_clauses(cell.user_text)]
    for name in _names(text):
        naming = [each for each in clauses if name.casefold() in each.text.casefold()]
        if naming and all(_is_of_another(each) for each in naming):
            return True
    return False


def _names_same_person(text: str, quote: str) -> bool:
    kin = canonical_terms(text) & KIN_TERMS
    return kin <= canonical_terms(quote) if kin else names_another(text)


def _is_of_another(clause: SaidClause) -> bool:
    return clause.of_another and not clause.is_first_person


def _is_of_thing(clause: SaidClause, text: str, words: set[str]) -> bool:
    """Whether it says the same of another subject than the speaker, of which the fact says nothing
    ("the book's hero lives in Oslo")."""
    subject = _THIRD_PERSON.match(clause.plain) or _NAMED.match(clause.text)
    if subject is None or _SPEAKER.search(clause.text):
        return False
    if relations_in(text).isdisjoint(relations_in(clause.text)):
        return False
    return words.isdisjoint(canonical_terms(subject[1]))


def _telling_terms(text: str, cells: Sequence[MemoryEntry]) -> set[str]:
    """The fact's words without those that are said of any fact, its speaker's name and numbers.
    Chinese counts by the character: paraphrases join them otherwise."""
    speakers = {term for cell in cells for term in canonical_terms(cell.sender)}
    plain = _COMMON_WORDS.sub(" ", text)
    for mention in reversed(find_dates(plain, date.min)):
        plain = f"{plain[: mention.start]} {plain[mention.end :]}"
    terms = canonical_terms(_FREE_NUMBER.sub(" ", plain)) - speakers
    return {each for each in terms if each.isascii() or len(each) == 1}


def _terms_with_plain_units(text: str) -> frozenset[str]:
    """The words of `text`, those stuck to a number ("15km") also without it."""
    return canonical_terms(text) | canonical_terms(_FREE_NUMBER.sub(" ", text))


def _numbers_were_said(
    text: str, whole: str, said: Sequence[tuple[MemoryEntry, str]], zone: tzinfo
) -> bool:
    """Dates may be said as "yesterday", and their year not at all."""
    days = [(cell.said_at.astimezone(zone).date(), each) for cell, each in said]
    told = {part for day, each in days for part in _date_parts(each, day)}
    told |= {str(day.year) for day, _ in days}
    plain = text
    for mention in reversed(find_dates(text, days[-1][0])):
        plain = f"{plain[: mention.start]} {plain[mention.end :]}"
    known = set(_numbers(whole))
    if not set(_date_parts(text, days[-1][0], with_relative=False)) <= told | known:
        return False
    return set(_numbers(plain)) <= known


def _date_parts(text: str, day: date, *, with_relative: bool = True) -> Iterator[str]:
    for mention in find_dates(text, day):
        if mention.is_relative and not with_relative:
            continue
        for token in mention.tokens:
            yield from map(_plain_number, token.lstrip("=").split("-"))


def _numbers(text: str) -> Iterator[str]:
    for found in _NUMBER.finditer(text):
        yield _plain_number(found[0])


def _plain_number(word: str) -> str:
    word = word.casefold()
    return _NUMBER_WORDS.get(word, word.lstrip("0") or "0")


def _names(text: str) -> Iterator[str]:
    """Words that only a name is written like: with a capital inside a sentence, Latin letters
    inside Chinese, or letters with a number behind them."""
    for found in _NAME.finditer(text):
        if _NO_NAMES.fullmatch(found[0]) is None:
            yield found[0]


def _is_named(name: str, whole: str, said: Sequence[tuple[MemoryEntry, str]]) -> bool:
    sources = [whole, *(cell.sender for cell, _ in said)]
    joined = [each.casefold().translate(_NAME_JOINTS) for each in (name, *sources)]
    if any(joined[0] in each for each in joined[1:]):
        return True
    terms = canonical_terms(name)
    return bool(terms) and terms <= canonical_terms(whole)


_ENGLISH_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty"
)
_FREQUENCIES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bevery (?:day|morning|evening|night)\b|每天|天天|每日|每晚|每早",
        r"\bevery week\b|每周|每星期",
        r"\b(?:weekends?|saturdays?|sundays?)\b|周末|周六|周日",
    )
)
"""How often something is, which is not added in other words."""
_QUOTE_MARKS = re.compile(r"[“”\"「」『』《》`]|(?:^|\s)>", re.MULTILINE)
_FORWARDED = re.compile(r"^>.*$", re.MULTILINE)
_QUOTED = re.compile(r"[\"“「『][^\"”」』]{2,300}[\"”」』]")
_ASIDE = re.compile(r"[\"”」』] (?:is|was|she|he|they)\b", re.IGNORECASE)
_REPORTS = re.compile(r"\b(?:asked|said|says|told)\b|[他她们人]说|问", re.IGNORECASE)
_THIRD_PERSON = re.compile(
    r"(?:the|a|an|this|that|some|another) ((?:[\w'-]+ ){1,3})",
    re.IGNORECASE,
)
# A list of verbs, because a plural looks the same: "Use tabs", "Prefers tables".
_NAMED = re.compile(
    r"([A-Z][a-z]+) (?:lives|works|likes|loves|hates|enjoys|prefers|wants|needs|leads|runs|owns"
    r"|drinks|eats|plays|uses|studies|speaks|teaches|drives|rents|keeps|cooks|takes|goes|comes)\b"
)
_SPEAKER = re.compile(r"\b(?:i|i'm|me|my|mine|we|us|our)\b|我|咱", re.IGNORECASE)
_COMPARES = re.compile(r"\b(?:over|rather than|instead of|more than)\b|而不是?|而非|胜过|多过|比")
_ORDERED = re.compile(
    r"(?:(?:please|pls|can you|could you|help me|hey|hi)[ ,]+)*(?:write|draft|translate|rewrite"
    r"|rephrase"
    r"|proofread|compose|polish)\b|(?:请|麻烦|帮我|帮忙|给我|能不能|可以|你)*(?:写|起草|翻译|润色"
    r"|改写|拟)",
    re.IGNORECASE,
)
"""Texts that somebody is to write: they are no words of the person's own."""
_FICTION = re.compile(
    r"\b(?:pretend|role[- ]?play|imagine|suppose|make believe)\b|假如|假装|扮演|假设|演一个",
    re.IGNORECASE,
)
_NUMBER_WORDS = {
    **{word: str(n) for n, word in enumerate(_ENGLISH_NUMBERS.split())},
    **{word: str(n) for n, word in enumerate("零一二三四五六七八九十")},
    "两": "2",
    "俩": "2",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "hundred": "100",
}
_NUMBER = re.compile(
    r"\d+|\b(?:zero|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty"
    r"|fifty|hundred)\b"
    r"|[两俩二三四五六七八九十](?=[娃孩家个只位年月岁天周小条口本辆间套点号楼层万千百块元斤米次倍级])",
    re.IGNORECASE,
)
# Digits behind a letter belong to a name: "web01", "iPhone15".
_FREE_NUMBER = re.compile(rf"(?<![A-Za-z\d])(?:{_NUMBER.pattern})", re.IGNORECASE)
_NAME = re.compile(
    rf"(?<=[\w,;] )[A-Z][\w'’-]+|(?<=[{HAN}])[A-Za-z][\w.+-]{{2,}}|\b[A-Za-z]+\d[\w.+-]*"
)
_NAME_JOINTS = str.maketrans("", "", " -")
_NO_NAMES = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july|august"
    r"|september|october|november|december|boss|user|english|chinese|i",
    re.IGNORECASE,
)
_COMMON_WORDS = re.compile(
    r"\b(?:the user|user|users|person|people|boss|prefers?|preference|likes?|wants?|needs?|enjoys?"
    r"|loves?|is|has|have|uses?|works?|lives?|does|regularly|currently|always|usually|often"
    r"|favou?rite|dislikes?|hates?|avoids?|called|named|name|not|never|no|longer|their|his|her|they"
    r"|he|she|who|that|this|which|because|when|from|by|about|says?|said|told|mentioned|it|diet)\b"
    r"|用户|老板|本人|他|她|喜欢|偏好|偏爱|希望|需要|想要|习惯|使用|经常|通常|目前|现在|一直|不"
    r"|没有"
    r"|表示|提到|认为|自己|这个|那个|一个|有|名叫|叫做|叫|饮食",
    re.IGNORECASE,
)
