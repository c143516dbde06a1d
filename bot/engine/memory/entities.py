"""People, projects and places by their names: which texts name them, and by which words two of one
name are kept apart ("my sister Anna", "Anna from accounting")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from bot.engine.memory.statement_words import SURNAMES_ZH
from storage.records.memory import MemoryEntry
from storage.records.memory_evidence import EntityEntries
from storage.search.chinese import HAN, contains_han

MAX_NAME = 60


def names_in(text: str) -> frozenset[str]:
    """Names by the way they are written: capitals inside a sentence, Latin words inside Chinese,
    Chinese surnames in front of one or two characters where a name stands."""
    return frozenset(each.casefold() for each in _names(text[:_MAX_TEXT]))


def mentions_name(name: str, text: str) -> bool:
    return bool(name) and _name_pattern(name.casefold()).search(text) is not None


def group_by_entity(name: str, entries: Sequence[MemoryEntry]) -> Sequence[EntityEntries]:
    """Entries on each of those called so, the most often mentioned first. What does not say whom it
    is about belongs to the only one, else to nobody known (an empty description)."""
    told = {each.id: describe(name, each.text) for each in entries}
    by_source = {each.source: told[each.id] for each in entries if each.source and told[each.id]}
    for each in entries:
        sources = {by_source[source] for source in each.evidence if source in by_source}
        if not told[each.id] and len(sources) == 1:
            [told[each.id]] = sources
    counts = Counter(each for each in told.values() if each)
    only = next(iter(counts)) if len(counts) == 1 else ""
    names = [each for each, _ in counts.most_common()] if len(counts) > 1 else [only]
    groups = [
        EntityEntries(
            description=each,
            entries=tuple(e for e in entries if (told[e.id] or only) == each),
        )
        for each in names
    ]
    unclear = tuple(e for e in entries if not told[e.id]) if len(counts) > 1 else ()
    return [*groups, *([EntityEntries(description="", entries=unclear)] if unclear else [])]


def describe(name: str, text: str) -> str:
    """Who of that name is meant: a relation, surname or place; empty if the text does not say."""
    for pattern in _descriptions(name.casefold()):
        found = pattern.search(text)
        if found is not None:
            said = " ".join(found["who"].casefold().split()).removeprefix("the ")
            return _SAME_WORDS.get(said, said)
    return ""


@lru_cache(maxsize=50)
def _name_pattern(name: str) -> re.Pattern[str]:
    escaped = re.escape(name)
    if contains_han(name):
        return re.compile(escaped)
    return re.compile(rf"(?<![a-z0-9_]){escaped}(?![a-z0-9_])", re.IGNORECASE)


@lru_cache(maxsize=50)
def _descriptions(name: str) -> Sequence[re.Pattern[str]]:
    n = f"(?i:{re.escape(name)})"
    patterns = (
        rf"(?i:\b(?:my|our|user's|his|her|boss's)) (?:[a-z]+ )?(?P<who>(?i:{_ROLES})),? {n}\b",
        (
            rf"\b{n}\b(?:,| is| was|, who is)? (?i:my|our|the|a|an|the user's|user's) (?:[a-z]+ )?"
            rf"(?P<who>(?i:{_ROLES}))\b"
        ),
        rf"\b{n} (?P<who>[A-Z][a-z]+)\b",
        rf"\b{n} (?i:from|of|at) (?P<who>(?:the )?[\w-]+(?: [A-Z][\w-]+)?)",
        rf"(?P<who>{_ROLES_ZH})(?:叫|是|，)?{n}",
        rf"{n}(?:是|，)?(?:我|我们|用户|咱)(?:家|们)?的?(?P<who>{_ROLES_ZH})",
        rf"(?P<who>[\u4e00-\u9fff]{{2,5}})的{n}",
    )
    return [re.compile(each) for each in patterns]


def _names(text: str) -> Iterator[str]:
    for found in _WRITTEN.finditer(text):
        word = found[0].strip()
        if word.casefold() not in _NO_NAMES and len(word) > 1:
            yield word
    for found in _CALLED_ZH.finditer(text):
        yield found["name"]


_MAX_TEXT = 2_000
_ROLES = (
    "wife|husband|partner|mother|mom|mum|father|dad|sister|brother|son|daughter|cousin|uncle|aunt"
    "|niece|nephew|grandmother|grandfather|friend|girlfriend|boyfriend|boss|manager|colleague"
    "|coworker|co-worker|neighbou?r|landlord|landlady|dentist|doctor|lawyer|accountant|teacher"
    "|client|customer|intern|assistant|designer|developer|engineer|trainer|tutor|roommate|flatmate"
    "|dog|cat|server|project|team|supplier"
)
_ROLES_ZH = (
    "妈妈|爸爸|姐姐|妹妹|哥哥|弟弟|老婆|老公|妻子|丈夫|儿子|女儿|表哥|表姐|表弟|表妹|堂哥|堂弟|叔叔|阿姨|舅舅|姑姑"
    "|朋友|同事|同学|室友|邻居|房东|老板|经理|领导|客户|医生|牙医|律师|会计|老师|实习生|设计师|助理|教练|女朋友|男朋友"
    "|狗|猫|服务器|项目"
)
_SAME_WORDS = {
    "mom": "mother",
    "mum": "mother",
    "dad": "father",
    "coworker": "colleague",
    "co-worker": "colleague",
    "neighbor": "neighbour",
}
_WRITTEN = re.compile(
    r"(?<=[\w,;:’'] )[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)?"
    r"|^[A-Z][a-z]+(?= (?:is|was|has|lives|works|likes|prefers|moved|wants|leads|runs)\b)"
    rf"|(?<=[{HAN}])[A-Za-z][\w.+-]{{1,20}}|^[A-Z][\w.+-]{{1,20}}(?=[{HAN}])"
)
_CALLED_ZH = re.compile(
    rf"(?:(?:{_ROLES_ZH})(?:叫|是)?|叫做?|^)(?P<name>[小老阿]{SURNAMES_ZH}"
    rf"|{SURNAMES_ZH}[\u4e00-\u9fff]{{1,2}})"
    r"(?=是|在|住|喜|说|的|，|。|负|当|有|叫|和|去|会|$)"
)
_NO_NAMES = frozenset(
    str.split(
        "i the a an monday tuesday wednesday thursday friday saturday sunday january february march"
        " april may june july august september october november december boss user english chinese"
        " correction diet birthday this that it he she they we you my our please ok"
    )
)
