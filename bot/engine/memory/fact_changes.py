"""Recognises by rules what people say is no longer so of themselves ("not vegetarian any more",
不吃素了, "I switched from tea to coffee"), and which known facts that ends. The words alone end
nothing: a known fact must be about the same thing, so that the patterns may be generous."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from bot.engine.memory.ending_patterns import (
    AGAIN,
    CESSATION,
    GIVEN_UP,
    INSTEAD_OF,
    NEEDED_NO_MORE,
    NOT_SINCE,
    FactRelation,
    ending_patterns,
    switch_patterns,
)
from bot.engine.memory.fact_terms import (
    canonical_terms,
    content_terms,
    same_words,
)
from bot.engine.memory.preference_statements import named_slot, preferred_slot
from bot.engine.memory.said_clauses import (
    SaidClause,
    said_clauses,
    split_sentences,
    without_authority,
)
from bot.engine.memory.said_dates import DatedSpan
from bot.engine.memory.self_statements import is_quoted_or_fictional
from bot.engine.memory.value_changes import has_other_value, may_change_value
from storage.records.memory import MemoryCategory, MemoryEntry, MemoryKind
from storage.search.chinese import contains_han, simplify_han


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedClaim:
    """A claim that no longer holds: `relation` to `what`, empty for whatever it was.
    `is_negative`: the negation held ("I eat meat again"). `was_so` says only that it was so in the
    past."""

    relation: FactRelation
    what: str
    clause: str
    is_negative: bool = False
    was_so: bool = False
    topic: str = ""
    is_thing: bool = False
    """Whether the words give up a thing, whatever was done with it."""
    told: str = ""
    """The words that take the place of what ended."""
    around: str = ""
    """The sentence, where `what` is a clause of it."""
    leads: str = ""
    """The words before, where nothing else says that it is the speaker's: the thing alone."""
    since: DatedSpan | None = None
    """When it ended, if that was said."""


def find_endings(
    text: str, today: date | None = None, *, month_first: bool = False
) -> Sequence[EndedClaim]:
    """Claims that the text ends, in order; none in questions, quotes, fiction, plans or talk about
    others."""
    if is_quoted_or_fictional(without_authority(text)):
        return ()
    found: list[EndedClaim] = []
    for clause in said_clauses(text, today, month_first=month_first):
        if clause.holds_now:
            found += _read_clause(clause)
        if clause.is_stated:
            found += _read_cessation(clause)
        is_told = clause.is_stated or (clause.is_rescheduled and not clause.is_asked)
        if is_told and may_change_value(clause.text, clause.sentence):
            found += [
                EndedClaim(
                    relation=FactRelation.VALUE,
                    what=what,
                    around=clause.sentence,
                    clause=clause.text,
                )
                for what in dict.fromkeys((clause.text, clause.sentence))
            ]
    return [replace(each, told=_told(each, text)) for each in found]


def _told(ended: EndedClaim, text: str) -> str:
    """The sentence of the clause, which may say what is so now; the clause of a long one."""
    clause = ended.clause
    sentence = next((each for each in split_sentences(text) if clause in each), "").strip()
    return sentence.rstrip(" .。!！") if 0 < len(sentence) <= _MAX_TOLD else ended.clause


def _read_cessation(clause: SaidClause) -> Iterator[EndedClaim]:
    """Words that only say that something is over, and of which what they are about is named
    beside. Without a subject it is the speaker's own ("sold the Golf"), or the thing comes first
    ("Wednesdays on call is history")."""
    given_up = GIVEN_UP.search(clause.plain)
    over = given_up or CESSATION.search(clause.plain) or CESSATION.search(clause.text)
    is_act = over is given_up or (over is not None and over[0].startswith("stopp"))
    if over and is_act and _NOT_GIVEN_UP.search(over.string[: over.start()]):
        return
    if over is None and clause.since is not None:
        over = NOT_SINCE.search(clause.plain)
    needless = NEEDED_NO_MORE.fullmatch(clause.text)
    again = AGAIN.search(clause.text)
    if clause.is_first_person and (instead := INSTEAD_OF.search(clause.plain)):
        yield EndedClaim(
            relation=FactRelation.ANY, what=instead["what"], clause=instead["what"], is_thing=True
        )
    if over is None and needless is None and again is None:
        return
    begins = over if over and over.string == clause.plain else _DENIAL.search(clause.plain)
    before = clause.plain[: begins.start()].strip() if begins else ""
    is_own = clause.is_first_person or (
        (not clause.of_another and re.search(r"\bi\b|我|咱", before) is not None)
        or (given_up is not None and _TOLD_ME.search(clause.plain) is not None)
    )
    if not is_own and _SOMEBODY.match(before):
        return
    if _RATHER.search(clause.text) or (clause.of_another and not before and not is_own):
        return
    leads = "" if is_own or not before else before
    if leads and leads.isascii():
        leads = CESSATION.sub(" ", GIVEN_UP.sub(" ", clause.plain))
    yield EndedClaim(
        relation=FactRelation.ANY,
        what=clause.sentence,
        clause=clause.text,
        since=clause.until or clause.since,
        is_thing=given_up is not None or needless is not None,
        leads=leads,
        is_negative=over is None and needless is None,
    )


def find_told_endings(fact: str) -> Sequence[EndedClaim]:
    """The same of a fact that a model has put into words: "no longer lives in Berlin"."""
    told = _USER.sub("", fact)
    if contains_han(told):
        return find_endings(f"我{told}")
    return find_endings(_THIRD_PERSON.sub(r"\1", f"I {told}"))


_USER = re.compile(r"^(?:the user|user|boss|they|用户|他|她)\s*", re.IGNORECASE)
_THIRD_PERSON = re.compile(
    r"(?<=no longer )(live|work|drink|eat|like|love|enjoy|prefer|use|smoke|play|learn|own)s\b"
    r"|(?<=no longer )(?:is )",
    re.IGNORECASE,
)
_RATHER = re.compile(r"\brather\b|宁愿|宁可")
_DENIAL = re.compile(
    r"\b(?:do|does|did|is|are|am|was|has|have|can|will)?(?:n't|not)\b|\bno longer\b"
)
_NOT_GIVEN_UP = re.compile(
    r"\b(?:won't|not|never|didn't|haven't|hasn't|wouldn't|don't|isn't)(?: \w+)?(?: to)? $"
    r"|(?:不|没|没有|别|不会|不想|不打算|绝不|从没)$"
)
_USED_UP = re.compile(r"\b(?:is|are|was) (?:over|finished|gone|closed)\b(?! (?:for|to) me)")
_SOMEBODY = re.compile(r"(?:he|she|they)\b|[他她]")
_TOLD_ME = re.compile(r"\b(?:took|let|laid) me\b|(?:医生|大夫)让")
_STOPPED = re.compile(r"\bstopp(?:ed|ing)\b")
_MAX_TOLD = 160
_CALLED = re.compile(r"(?:\b(?:named|called)\b|名?叫)\s*([\w-]+)")
_SPEAKER = re.compile(r"\b(?:i|i'm|i've|my|me|mine|we|our|us)\b|我|咱|本人", re.IGNORECASE)
_DEICTIC = re.compile(r"(?:there|here|that|it|them|那儿|那里|那边|这儿|这里|那|这|它)")


def ends_fact(ended: EndedClaim, entry: MemoryEntry) -> bool:
    """Whether the entry states what has ended."""
    if entry.kind not in _ENDED_KINDS or entry.category in _HISTORY_CATEGORIES:
        return False
    if ended.relation is FactRelation.VALUE:
        return not is_negated_fact(entry) and has_other_value(
            ended.what, ended.around, entry.text.removeprefix(f"{entry.sender}: ")
        )
    if ended.relation is FactRelation.ANY:
        return _is_named_over(ended, entry)
    return _ends_diet(ended, entry) or _is_claimed(ended, entry)


def _is_claimed(ended: EndedClaim, entry: MemoryEntry) -> bool:
    if is_negated_fact(entry) != ended.is_negative:
        return False
    related = _COMPATIBLE.get(ended.relation, (ended.relation,))
    if not any(_relation_in(each, entry) for each in related):
        return False
    if ended.topic and not same_words(ended.topic, f"{entry.key} {entry.text}"):
        return False
    return _is_about_it(ended, entry)


def _is_named_over(ended: EndedClaim, entry: MemoryEntry) -> bool:
    """Of words that only say that something is over: whether the sentence names all that the fact
    is about, and the clause speaks of nothing else than the fact does."""
    about = _value_terms(entry)
    if ended.leads and _USED_UP.search(ended.clause) and _is_of_taste(entry):
        return False  # "winter is over" says nothing of who likes it
    if is_negated_fact(entry) != ended.is_negative or not _names_it(about, entry, ended.what):
        return False
    known = about | content_terms(entry.text)
    if any(
        not each[0].isdigit() and not each.endswith("ly") and each not in known
        for each in content_terms(ended.leads)
    ):
        return False
    # "Got tired of it" is about no thing that one has.
    rest = AGAIN.sub(" ", GIVEN_UP.sub(" ", ended.clause))
    spoken = relations_in(rest) - {FactRelation.OWNS}
    if not about:
        return any(each in _SINGLE_RELATIONS and _relation_in(each, entry) for each in spoken)
    related = {near for each in spoken for near in _COMPATIBLE.get(each, (each,))}
    if not spoken:
        return ended.is_thing or content_terms(_STOPPED.sub(" ", rest)) <= known
    return any(_relation_in(each, entry) for each in related)


def _is_of_taste(entry: MemoryEntry) -> bool:
    return any(_relation_in(each, entry) for each in _TASTES)


def _names_it(about: frozenset[str], entry: MemoryEntry, said: str) -> bool:
    """Whether the words name what the fact is about, or the one that it calls by name. What is done
    with it need not be named: it is the first word of an English fact, and of a Chinese one what
    comes before the last two characters."""
    told = content_terms(said)
    named = _CALLED.search(entry.text)
    if about <= told or (named is not None and content_terms(named[1]) <= told):
        return True
    text = entry.text.removeprefix(f"{entry.sender}: ").rstrip("了啦的 。.")
    if contains_han(text):
        tail = content_terms(text[-2:])
        return len(tail) > 1 and tail <= told and 2 * len(about & told) >= len(about)
    begins = _VERB.match(text)
    verb = content_terms(begins[0] if begins else "")
    return bool(about - verb) and about - verb <= told


def _value_terms(entry: MemoryEntry) -> frozenset[str]:
    """The subject of a fact, without the words that say how."""
    topic = entry.key.partition(":")[2].split("@")[0]
    for name in _KEY_RELATIONS:
        if topic.startswith(f"{name} ") and name not in {"prefers", "favourite"}:
            return content_terms(topic.removeprefix(name))
    text = simplify_han(entry.text.removeprefix(f"{entry.sender}: "))
    text = _OFFICE.sub(r"\1", _ROLE.sub(" ", text))
    for pattern in _FACT_PATTERNS.values():
        text = pattern.sub(" ", text)
    if not (about := content_terms(text)) and _SINGLE_RELATIONS.isdisjoint(
        relations_in(entry.text)
    ):
        return content_terms(entry.text)
    return about


def _is_about_it(ended: EndedClaim, entry: MemoryEntry) -> bool:
    if not ended.what:
        return ended.relation in _SINGLE_RELATIONS
    if ended.relation is FactRelation.DIET:
        return bool(canonical_terms(ended.what) & canonical_terms(entry.text))
    return same_words(ended.what, entry.text)


def excludes(key: str, text: str, entry: MemoryEntry, *, is_switch: bool = False) -> bool:
    """Whether a new statement with this key replaces the entry, which has another key: only one
    home, diet, or preferred thing of its kind is true at a time. `is_switch`: of what was used,
    this is used instead."""
    if entry.kind not in _ENDED_KINDS or entry.category in _HISTORY_CATEGORIES:
        return False
    topic = key.partition(":")[2].split("@")[0]
    relation = _SINGLE_BY_TOPIC.get(topic)
    if relation is not None:
        return not is_negated_fact(entry) and _relation_in(relation, entry)
    if is_switch and (slot := named_slot(text)) and _relation_in(FactRelation.USES, entry):
        return named_slot(entry.text) == slot
    slot = preferred_slot(text)
    return bool(slot) and topic.startswith("prefers") and preferred_slot(entry.text) == slot


def denied_by(key: str) -> EndedClaim | None:
    """The opposite claim, which a new statement with this key ends."""
    topic = key.partition(":")[2].split("@")[0]
    for name, relation in _KEY_RELATIONS.items():
        if name not in {"not eaten", "prefers"} and (topic == name or topic.startswith(f"{name} ")):
            what = topic.removeprefix(name).strip()
            return EndedClaim(relation=relation, what=what, clause="", is_negative=True)
    return None


def is_negated_fact(entry: MemoryEntry) -> bool:
    """Whether the entry says that something is not so, or no longer."""
    return says_it_is_not_so(entry.text)


def says_it_is_not_so(text: str) -> bool:
    return _NEGATED_FACT.search(simplify_han(text)) is not None


_ROLE = re.compile(
    r"\b(?:a )?(?:member|part|fan|subscriber|customer) of\b|\b(?:subscriber|customer|member)\b"
    r"|的(?:会员|成员)"
    r"|\b(?:on (?:mon|tues|wednes|thurs|fri|satur|sun)days|every \w+|daily)\b"
    r"|每(?:天|周末|周|个?月|年|晚)"
)
_VERB = re.compile(r"(?:is \w+ing(?= )|\S*)", re.IGNORECASE)
_OFFICE = re.compile(r"^((?:Is )?(?:the|a|an) \w+) of .*")
_ENDED_KINDS = frozenset({MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM})
_HISTORY_CATEGORIES = frozenset(
    {MemoryCategory.EVENTS, MemoryCategory.CASES, MemoryCategory.LESSONS, MemoryCategory.PITFALLS}
)
_SINGLE_RELATIONS = frozenset(
    {
        FactRelation.HOME,
        FactRelation.WORK,
        FactRelation.JOB,
        FactRelation.DIET,
        FactRelation.SMOKES,
        FactRelation.RELATIONSHIP,
    }
)
_SINGLE_BY_TOPIC = {
    "home": FactRelation.HOME,
    "work": FactRelation.WORK,
    "diet": FactRelation.DIET,
}
_TASTES = (FactRelation.LIKES, FactRelation.EATS, FactRelation.DRINKS)
_COMPATIBLE = {
    FactRelation.EATS: (FactRelation.EATS, FactRelation.LIKES),
    FactRelation.DRINKS: (FactRelation.DRINKS, FactRelation.LIKES),
    FactRelation.LIKES: (FactRelation.LIKES,),
    FactRelation.USES: (FactRelation.USES, FactRelation.LIKES),
    FactRelation.PLAYS: (FactRelation.PLAYS, FactRelation.LIKES, FactRelation.LEARNS),
    FactRelation.LEARNS: (FactRelation.LEARNS, FactRelation.PLAYS),
    FactRelation.STATE: (FactRelation.JOB, FactRelation.DIET, FactRelation.STATE),
    FactRelation.DIET: (FactRelation.DIET,),
    FactRelation.WORK: (FactRelation.WORK, FactRelation.JOB),
}
_MEAT = re.compile(
    r"\b(?:meat|chicken|beef|pork|steaks?|burgers?|lamb|bacon|sausages?|fish)\b|肉|荤|鱼|鸡"
)


def _ends_diet(ended: EndedClaim, entry: MemoryEntry) -> bool:
    """Who eats meat again is no vegetarian, but may like it without eating it."""
    eats = ended.is_negative and ended.relation is FactRelation.EATS
    if not eats or _MEAT.search(ended.what) is None or is_negated_fact(entry):
        return False
    return {"=vegetarian", "=vegan"} & canonical_terms(entry.text) != set()


_NEGATED_FACT = re.compile(
    r"\b(?:no longer|not|never|n['’]t|cannot|stopped|quit|gave up|given up|dislikes?|hates?|avoids?"
    r"|used to|left|sold|gone off|former(?:ly)?|ex)\b|n['’]t\b"
    r"|(?<!从)不(?!过敏原|断|同|错|锈)|没(?!有关系)|戒|讨厌|已离|离开|离职|辞职|放弃|停止|再也",
    re.IGNORECASE,
)

_KEY_RELATIONS = {
    "home": FactRelation.HOME,
    "work": FactRelation.WORK,
    "job": FactRelation.JOB,
    "diet": FactRelation.DIET,
    "not eaten": FactRelation.EATS,
    "allergy": FactRelation.ALLERGY,
    "afraid of": FactRelation.FEARS,
    "likes": FactRelation.LIKES,
    "prefers": FactRelation.LIKES,
    "favourite": FactRelation.LIKES,
    "drinks": FactRelation.DRINKS,
    "uses": FactRelation.USES,
    "smokes": FactRelation.SMOKES,
    "plays": FactRelation.PLAYS,
    "learns": FactRelation.LEARNS,
    "owns": FactRelation.OWNS,
}
_FACT_WORDS = {
    FactRelation.HOME: r"\b(?:liv(?:es?|ing)|based|resid(?:es?|ing|ence)|moved|settled|home)\b"
    r"|住|居住|定居|搬|家在",
    FactRelation.WORK: r"\b(?:works?|working|worked|employed|job|joined)\b|工作|上班|就职|任职"
    r"|入职|供职",
    FactRelation.JOB: r"\b(?:works? as|job|profession|occupation|is an?|am an?)\b|职业|是一?名|当",
    FactRelation.DIET: r"\b(?:diet|vegetarian|vegan|pescatarian|keto|halal|kosher|gluten|lactose)\b"
    r"|素|清真|饮食|生酮|乳糖|麸质",
    FactRelation.EATS: r"\b(?:eats?|ate|eaten|eating|food|meals?)\b|吃",
    FactRelation.DRINKS: r"\b(?:drinks?|drank|drunk|drinking|cups?)\b|喝",
    FactRelation.ALLERGY: r"\ballerg\w+\b|过敏",
    FactRelation.LIKES: r"\b(?:likes?|liked|loves?|loved|enjoys?|prefers?|preferred|fond|fan"
    r"|favou?rite|adores?"
    r"|preference|wants?|keen|into|dislikes?|hates?)\b|喜欢|爱|偏好|偏爱|习惯|讨厌|迷",
    FactRelation.USES: r"\b(?:uses?|used(?! to)|using|editor|runs?|works? with)\b|用",
    FactRelation.SMOKES: r"\b(?:smok\w+|cigarettes?|vap\w+)\b|[抽吸]?烟",
    FactRelation.PLAYS: r"\b(?:plays?|played|playing|practis\w+|practic\w+|goes?|does|runs?"
    r"|running|swims?"
    r"|trains?|gym|yoga)\b|打|踢|弹|玩|跑|游泳|健身|练|拉|吹",
    FactRelation.LEARNS: r"\b(?:learn\w*|stud(?:y|ies|ying)|lessons?|courses?|class(?:es)?)\b|学"
    r"|课",
    FactRelation.OWNS: r"\b(?:has|have|had|owns?|drives?|keeps?|got|named|called|pet)\b|有|养|开",
    FactRelation.FEARS: r"\b(?:afraid|scared|terrified|fears?)\b|怕",
    FactRelation.RELATIONSHIP: r"\b(?:married|engaged|single|dating|girlfriend|boyfriend|wife"
    r"|husband|partner)\b|结婚|已婚|单身|女朋友|男朋友|女友|男友|老婆|老公|对象|订婚",
}
_FACT_PATTERNS = {name: re.compile(each, re.IGNORECASE) for name, each in _FACT_WORDS.items()}


def _relation_in(relation: FactRelation, entry: MemoryEntry) -> bool:
    topic = entry.key.partition(":")[2].split("@")[0]
    keyed = next(
        (
            known
            for name, known in _KEY_RELATIONS.items()
            if topic == name or topic.startswith(f"{name} ")
        ),
        None,
    )
    if relation in (FactRelation.MY, FactRelation.STATE):
        return True
    return (
        keyed is relation or _FACT_PATTERNS[relation].search(simplify_han(entry.text)) is not None
    )


def relations_in(text: str) -> frozenset[FactRelation]:
    """Relations that a text speaks of."""
    read = simplify_han(text)
    return frozenset(name for name, pattern in _FACT_PATTERNS.items() if pattern.search(read))


_SWITCH_RELATIONS = (
    FactRelation.LIKES,
    FactRelation.USES,
    FactRelation.DRINKS,
    FactRelation.EATS,
    FactRelation.HOME,
    FactRelation.WORK,
    FactRelation.OWNS,
)


def _read_clause(clause: SaidClause) -> Iterator[EndedClaim]:
    han = contains_han(clause.plain)
    for switch in switch_patterns(han=han):
        found = switch.fullmatch(clause.plain)
        if found is not None:
            for relation in _SWITCH_RELATIONS:
                yield EndedClaim(
                    relation=relation,
                    what=found["what"],
                    clause=clause.text,
                    since=clause.until or clause.since,
                )
            return
    for relation, pattern, flags in ending_patterns(han=han):
        found = pattern.fullmatch(clause.plain)
        if found is None:
            continue
        groups = found.groupdict()
        what = groups.get("what") or groups.get("what2") or groups.get("what3") or ""
        topic = groups.get("topic") or ""
        yield EndedClaim(
            relation=relation,
            what="" if _DEICTIC.fullmatch(what.strip()) else what.strip(),
            clause=clause.text,
            topic=topic.strip(),
            since=clause.until or clause.since,
            is_negative=flags.get("is_negative", False),
            was_so=flags.get("was_so", False),
        )
