"""English words cut down to what their forms share: `went`, `going` and `goes` are all `go`."""

from __future__ import annotations

from functools import lru_cache

_VOWELS = frozenset("aeiouy")
_IRREGULAR = {
    form: word
    for word, forms in {
        "be": "been",
        "become": "became",
        "begin": "began begun",
        "bite": "bit bitten",
        "blow": "blew blown",
        "break": "broke broken",
        "bring": "brought",
        "build": "built",
        "burn": "burnt",
        "buy": "bought",
        "catch": "caught",
        "child": "children",
        "choose": "chose chosen",
        "come": "came",
        "deal": "dealt",
        "dig": "dug",
        "draw": "drew drawn",
        "dream": "dreamt",
        "drink": "drank drunk",
        "drive": "drove driven",
        "eat": "ate eaten",
        "fall": "fell fallen",
        "feed": "fed",
        "feel": "felt",
        "fight": "fought",
        "find": "found",
        "fly": "flew flown",
        "foot": "feet",
        "forget": "forgot forgotten",
        "freeze": "froze frozen",
        "get": "got gotten",
        "give": "gave given",
        "go": "went gone goes going",
        "grow": "grew grown",
        "hang": "hung",
        "hear": "heard",
        "hide": "hid hidden",
        "hold": "held",
        "keep": "kept",
        "knife": "knives",
        "know": "knew known",
        "lead": "led",
        "learn": "learnt",
        "leave": "left",
        "lend": "lent",
        "life": "lives",
        "lose": "lost",
        "make": "made",
        "man": "men",
        "marry": "married marriage",
        "mean": "meant",
        "meet": "met",
        "mouse": "mice",
        "pay": "paid",
        "person": "people persons",
        "ride": "rode ridden",
        "ring": "rang rung",
        "rise": "rose risen",
        "run": "ran",
        "see": "saw seen",
        "sell": "sold",
        "send": "sent",
        "shake": "shook shaken",
        "shine": "shone",
        "shoot": "shot",
        "show": "shown",
        "sing": "sang sung",
        "sink": "sank sunk",
        "sit": "sat",
        "sleep": "slept",
        "speak": "spoke spoken",
        "spend": "spent",
        "stand": "stood",
        "steal": "stole stolen",
        "stick": "stuck",
        "swim": "swam swum",
        "take": "took taken",
        "teach": "taught",
        "tear": "tore torn",
        "think": "thought",
        "throw": "threw thrown",
        "tooth": "teeth",
        "understand": "understood",
        "wake": "woke woken",
        "wear": "wore worn",
        "wife": "wives",
        "win": "won",
        "woman": "women",
        "write": "wrote written",
        "bigger": "biggest",
        "husband": "hubby",
        "mother": "mom mum mommy mama",
        "father": "dad daddy papa",
        "kid": "kiddo kiddos",
        "photo": "photograph pic pics photography",
        "bicycle": "bike bikes",
    }.items()
    for form in forms.split()
}

_FILLERS = """
a about above after again against ain all also although always am an and any are aren as at be
because been before being below between both but by can cannot cant could couldn couldnt d did
didn didnt do does doesn doesnt doing don done dont down during each either else etc ever every
few for from further had hadn has hasn hasnt have haven havent having he hed her here hers herself
hes hi him himself his how however i id if ill im in into is isn isnt it itd its itself ive just
ll m ma may me might more most much must my myself need no nor not now o of off oh ok okay on once
one only or other our ours ourselves out over own per please quite re really s said same say says
shall shan she shes should shouldn shouldnt since so some still such t tell than thanks that thats
the their theirs them themselves then there theres these they theyre theyve this those though
through to told too under until up upon us ve very was wasn wasnt we well were weren werent weve
what whats when where whether which while who whom whose why will with within without wont would
wouldn wouldnt yeah yes yet you youd youll your youre yours yourself yourselves youve
"""
STOP = frozenset(_FILLERS.split())
"""Words that stand in every other sentence."""

_ASKING = """
according anything certain currently describe different discuss exact exactly kind many
mention often particular recently regarding remember something sort specific thing things type types
various way ways
"""

_SHORT = 3
"""Letters: a word is not cut down any further."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """For a word in lower case. What it gives need not be a word, only the same for all forms."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= _SHORT or not word.isascii() or not word.isalpha():
        return word
    word = _plural(word)
    word = _tense(word)
    word = _derived(word)
    if word.endswith("e") and len(word) > _SHORT:
        word = word[:-1]
    if word.endswith("i") and len(word) > _SHORT:
        word = word[:-1] + "y"
    return word


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > _SHORT + 1 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _tense(word: str) -> str:
    if word.endswith("ied"):
        return word[:-3] + "y" if len(word) > _SHORT + 1 else word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 3 - (ending == "ed") and not _VOWELS.isdisjoint(rest):
            return _single(rest)
    return word


def _single(rest: str) -> str:
    if len(rest) > _SHORT and rest[-1] == rest[-2] and rest[-1] not in "lsz":
        return rest[:-1]
    return rest


_ENDINGS = (
    ("fulness", "", 3),
    ("iness", "y", 3),
    ("ness", "", 3),
    ("fully", "", 3),
    ("ment", "", 4),
    ("ation", "at", 3),
    ("tion", "t", 3),
    ("ssion", "ss", 3),
    ("ity", "", 4),
    ("ily", "y", 3),
    ("ally", "", 4),
    ("ly", "", 3),
    ("ful", "", 4),
    ("er", "", 4),
    ("ist", "", 4),
)
"""An ending, what stands in its place, and how much must be left."""


def _derived(word: str) -> str:
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            return _single(word[: -len(ending)] + instead)
    return word


ASKING = frozenset(stem(word) for word in _ASKING.split())
"""Stems that only a question is made of, for the most part."""
