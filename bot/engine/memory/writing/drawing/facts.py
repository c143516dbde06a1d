"""Facts that a model has drawn, as far as they hold up."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from bot.engine.memory.temporal import is_dynamic, valid_until
from bot.engine.memory.writing.drawing.alike import is_twin
from bot.engine.memory.writing.drawing.extraction import (
    MOST_FACTS,
    DrawnFact,
    Extraction,
    Grounding,
    Register,
    Said,
)
from bot.engine.memory.writing.noise import Noise, fact_noise
from bot.engine.memory.writing.plainly import key_for, told_in
from bot.engine.memory.writing.recorder import PROJECT, SKILL, said_in
from bot.engine.memory.writing.service import plain
from storage.memory.words import terms
from storage.records.memory.entries import Category, Entry, Scope, ScopeKind
from storage.records.people import PersonId

_LEAST_SURE = 0.5
_MOST_TEXT = 260
_MOST_DETAIL = 1_000
PERSONAL = frozenset({Category.PROFILE, Category.PREFERENCES})
KEYED = PERSONAL | {Category.ENTITIES}
_OF_WORK = frozenset(
    {Category.CASES, Category.PATTERNS, Category.LESSONS, Category.PITFALLS, Category.TOOLS}
)
_WAYS = frozenset({Category.PATTERNS, Category.LESSONS})
_PASSING = frozenset({Category.EVENTS})
_ONESELF = re.compile(
    r"(?-i:\bI\b)|\b(?:my|mine|me|myself)\b|我(?!们)"
    r"|^the user (?:is|has|was|wants?|prefers?|likes?|dislikes?|lives?|works?|needs?|uses?|said)\b"
    r"|^用户(?:是|有|对|在|住|不|想|要求|喜欢|希望|偏好|习惯|认为|需要|说)",
    re.IGNORECASE | re.MULTILINE,
)
_POLLUTION = frozenset({Noise.SUSPICIOUS, Noise.SCAFFOLD, Noise.ASSISTANT, Noise.ARTEFACT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Not stored yet. `cells` are those it was drawn from."""

    scope: Scope
    category: Category
    key: str
    text: str
    detail: str
    keywords: tuple[str, ...]
    confidence: float
    by_user: bool
    cells: Sequence[Entry]
    person: PersonId | None
    dynamic: bool
    valid_until: datetime | None
    utility: float = 0.5
    """Of what use it may be in weeks, as a model guessed."""
    offered_to: Scope | None = None
    """Whom it would serve besides whose private talk it comes from: only they may tell it."""

    @property
    def last(self) -> Entry:
        return self.cells[-1]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Those of its turns that say any word of it, the first where none does: a model that
        names many turns makes nothing surer."""
        words = _content(self.text)
        telling = [each for each in self.cells if words & _content(said_in(each))]
        return tuple(str(each.source or each.id) for each in telling or self.cells[:1])


@dataclass(slots=True)
class Tally:
    """What became of what was drawn. `suspicious` are those that would have polluted, `refused`
    those that admission let not pass: both are part of `filtered`."""

    drawn: int = 0
    filtered: int = 0
    suspicious: int = 0
    refused: int = 0
    kept: list[Fact] = field(default_factory=list)


def held_up(
    answer: Extraction,
    cells: Sequence[Entry],
    mask: Callable[[str], str],
    *,
    zone: tzinfo = UTC,
) -> Tally:
    """At most five, in their order, each only once. In `zone` the days that they name end."""
    tally = Tally()
    for drawn in answer.memories[:MOST_FACTS]:
        tally.drawn += 1
        dubious = _is_made_up(drawn, answer.conversation_register)
        fact = None if dubious else _fact(drawn, cells, mask, zone)
        # Before a group's fact is told with its name: some noise is known by how it begins.
        noise = None if fact is None else fact_noise(_line(mask(drawn.text), _MOST_TEXT))
        if fact is None or noise is not None or any(_alike(fact, each) for each in tally.kept):
            tally.filtered += 1
            tally.suspicious += dubious or noise in _POLLUTION
        else:
            tally.kept.append(fact)
    return tally


def _alike(one: Fact, other: Fact) -> bool:
    same_topic = bool(one.key) and one.key == other.key and one.scope == other.scope
    return same_topic or is_twin(one.text, other.text)


def _is_made_up(drawn: DrawnFact, register: Register) -> bool:
    """It holds only inside a game; of a conversation that is all game only events are real."""
    if drawn.grounding is Grounding.CONSTRUCTED:
        return True
    return register is Register.FICTION and Category(drawn.category.value) not in _PASSING


def _fact(
    drawn: DrawnFact, cells: Sequence[Entry], mask: Callable[[str], str], zone: tzinfo
) -> Fact | None:
    category = Category(drawn.category.value)
    rests_on = sorted({number for number in drawn.turns if 1 <= number <= len(cells)})
    if not rests_on or drawn.confidence < _LEAST_SURE:
        return None
    on = [cells[number - 1] for number in rests_on]
    by_user = drawn.source is Said.USER
    of_work = category in _OF_WORK and any(_is_work(each) for each in on)
    if not by_user and not of_work and (category in KEYED or drawn.source is Said.ASSISTANT):
        # What the assistant proposed is nobody's preference.
        return None
    last = on[-1]
    people = {each.person for each in on}
    person = last.person if len(people) == 1 else None
    text = _line(mask(drawn.text), _MOST_TEXT)
    if category in PERSONAL and (person is None or _is_of_another(text, on, cells)):
        # Whose taste it is cannot be told.
        return None
    key = _key(category, drawn.topic)
    detail = mask(plain(drawn.detail))[:_MOST_DETAIL]
    whole = f"{text}\n{detail}"
    shared = of_work and not _is_of_people(whole, cells)
    serves = _scope(last, category, whole) if shared else last.scope
    private = last.scope.kind is ScopeKind.PERSON
    return Fact(
        scope=last.scope if private else serves,
        category=category,
        key=key_for(last, key) if category in PERSONAL else key,
        text=told_in(last, text) if category in PERSONAL else text,
        detail="" if fact_noise(detail) in _POLLUTION else detail,
        keywords=tuple(_line(mask(each), 40) for each in drawn.keywords if each.strip()),
        confidence=min(1.0, max(_LEAST_SURE, drawn.confidence)),
        by_user=by_user,
        cells=on,
        person=person,
        dynamic=is_dynamic(text, category),
        valid_until=valid_until(text, category, last.said_at, zone),
        utility=drawn.utility,
        offered_to=serves if private and serves != last.scope else None,
    )


def _is_of_another(text: str, on: Sequence[Entry], cells: Sequence[Entry]) -> bool:
    """In a group: whether it begins with somebody else's name, or only somebody else said it."""
    person = on[-1].person
    others = [each for each in cells if each.person != person]
    if any(_names(each.sender, text[: len(each.sender) + 1]) for each in others):
        return True
    words = _content(text)
    if any(words & _content(said_in(each)) for each in on):
        return False
    return any(words & _content(said_in(each)) for each in others)


def _is_of_people(text: str, cells: Sequence[Entry]) -> bool:
    """Whether it tells of who was there: that is not for all who do the same work."""
    if _ONESELF.search(text):
        return True
    return any(_names(each.sender, text) for each in cells)


def _names(sender: str, text: str) -> bool:
    name, told = sender.casefold(), text.casefold()
    if not name.isascii():
        return name in told
    return bool(name) and re.search(rf"\b{re.escape(name)}\b", told) is not None


def _content(text: str) -> set[str]:
    """Words, and pairs of characters in Chinese."""
    return {term for term in terms(text) if len(term) > 1}


def _scope(cell: Entry, category: Category, text: str) -> Scope:
    """What was learned at a project is the project's, and with a skill the skill's. With a skill
    at a project ways of working are the skill's, unless they tell of the project."""
    skill, project = (_named(cell, name) for name in (SKILL, PROJECT))
    if skill and project:
        folder = project.rstrip("/").rpartition("/")[2].casefold()
        skill = skill if category in _WAYS and folder not in text.casefold() else ""
    for kind, whose in ((ScopeKind.SKILL, skill), (ScopeKind.PROJECT, project)):
        if whose:
            return Scope(kind, whose)
    return cell.scope


def _named(cell: Entry, name: str) -> str:
    whose = cell.extra.get(name)
    return whose if isinstance(whose, str) else ""


def _is_work(cell: Entry) -> bool:
    return cell.task is not None or bool(cell.extra.get(SKILL))


def _key(category: Category, topic: str) -> str:
    if category not in KEYED:
        return ""
    topic = " ".join(plain(topic).casefold().split()).strip(" 。.!?！？:：")
    return f"{category}:{topic}" if topic else ""


def _line(text: str, most: int) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
