"""The relations that a fact states, by its key or by its words."""

from __future__ import annotations

import re

from bot.engine.memory.ending_patterns import (
    FactRelation,
)
from storage.records.memory import MemoryEntry
from storage.search.chinese import simplify_han

KEY_RELATIONS = {
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
    FactRelation.LEARNS: r"\b(?:learn\w*|stud(?:y|ies|ied|ying)|degree|master's|phd|bachelor's"
    r"|mba|university|school|lessons?|courses?|class(?:es)?)\b|学"
    r"|课|读[研博]|在读|专业",
    FactRelation.OWNS: r"\b(?:has|have|had|owns?|drives?|keeps?|got|named|called|pet)\b|有|养|开",
    FactRelation.FEARS: r"\b(?:afraid|scared|terrified|fears?)\b|怕",
    FactRelation.RELATIONSHIP: r"\b(?:married|engaged|single|dating|girlfriend|boyfriend|wife"
    r"|husband|partner)\b|结婚|已婚|单身|女朋友|男朋友|女友|男友|老婆|老公|对象|订婚",
}
FACT_PATTERNS = {name: re.compile(each, re.IGNORECASE) for name, each in _FACT_WORDS.items()}


def has_relation(relation: FactRelation, entry: MemoryEntry) -> bool:
    topic = entry.key.partition(":")[2].split("@")[0]
    keyed = next(
        (
            known
            for name, known in KEY_RELATIONS.items()
            if topic == name or topic.startswith(f"{name} ")
        ),
        None,
    )
    if relation in (FactRelation.MY, FactRelation.STATE):
        return True
    return keyed is relation or FACT_PATTERNS[relation].search(simplify_han(entry.text)) is not None


def relations_in(text: str) -> frozenset[FactRelation]:
    """Relations that a text speaks of."""
    read = simplify_han(text)
    return frozenset(name for name, pattern in FACT_PATTERNS.items() if pattern.search(read))
