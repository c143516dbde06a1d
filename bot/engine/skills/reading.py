"""A SKILL.md as it is meant: liberal in what it takes, and all its faults told at once."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.engine.skills.front_matter import read_front
from storage.records.workers.skills import SkillNote

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_LINES = 500
MAX_TRIGGERS = 20
MAX_HINT = 100
MAX_TRIGGER = 60

_MOST_BRACKETS = 100
_NAME = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_HIDDEN = re.compile(r"[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\U000e0000-\U000e007f]")
_OPENCLAW = ("openclaw", "clawdbot", "clawdis")
_OURS = ("boss", "shiftboss")
_USED = frozenset(
    ("name", "description", "license", "compatibility", "metadata", "triggers", "argument-hint")
) | {"disable-model-invocation", "user-invocable"}
_REQUIRES = ("bins", "anyBins", "env", "config")
_YES = frozenset(("true", "yes", "on", "1"))
_NO = frozenset(("false", "no", "off", "0", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requires:
    """What a skill says it needs."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a SKILL.md says. Usable only where `faults` is empty."""

    name: str
    description: str = ""
    body: str = ""
    triggers: tuple[str, ...] = ()
    argument_hint: str = ""
    emoji: str = ""
    license: str = ""
    compatibility: str = ""
    by_model: bool = True
    by_person: bool = True
    requires: Requires = field(default_factory=Requires)
    ignored: tuple[str, ...] = ()
    notes: tuple[SkillNote, ...] = ()
    faults: tuple[SkillNote, ...] = ()


def read_skill(text: str, folder: str) -> Written:
    """`folder` is the name of the folder it lies in. Never raises."""
    front = read_front(text)
    told = _Telling()
    told.faults += front.faults
    told.notes += front.notes
    values = front.values
    own = _maps(values.get("metadata"), "metadata", told)
    claw = next((_maps(own[key], key, told) for key in _OPENCLAW if key in own), {})
    ours = [_maps(own[key], f"metadata.{key}", told) for key in _OURS if key in own]
    hints = [_text(place, "argument-hint", told) for place in (values, *ours)]
    written = Written(
        name=_name(values, folder, told),
        description=_description(values, told, given=not front.faults),
        body=front.body,
        triggers=_triggers([values, *ours], told),
        argument_hint=next(filter(None, hints), "")[:MAX_HINT],
        emoji=_text(claw, "emoji", told)[:8],
        license=_text(values, "license", told)[:MAX_COMPATIBILITY],
        compatibility=_compatibility(values, told),
        by_model=not _flag(values, "disable-model-invocation", told, default=False),
        by_person=_flag(values, "user-invocable", told, default=True),
        requires=_requires(claw, told),
        ignored=_ignored(values, own, claw),
    )
    if not front.body.strip():
        told.fault("no_body")
    if hidden := len(_HIDDEN.findall(text)):
        told.note("hidden", str(hidden))
    if (lines := front.body.count("\n") + 1) > MAX_LINES:
        told.note("long_body", str(lines))
    return told.of(written)


class _Telling:
    """Collects what is wrong, and what is only worth knowing."""

    def __init__(self) -> None:
        self.faults: tuple[SkillNote, ...] = ()
        self.notes: tuple[SkillNote, ...] = ()

    def fault(self, key: str, detail: str = "") -> None:
        self.faults += (SkillNote(key=key, detail=detail[:200]),)

    def note(self, key: str, detail: str = "") -> None:
        self.notes += (SkillNote(key=key, detail=detail[:200]),)

    def of(self, written: Written) -> Written:
        values = {name: getattr(written, name) for name in Written.__dataclass_fields__}
        return Written(**{**values, "faults": self.faults, "notes": self.notes})


def _name(values: Mapping[str, Any], folder: str, told: _Telling) -> str:
    written = _text(values, "name", told) or folder
    name = re.sub(r"[\s_]+", "-", unicodedata.normalize("NFKC", written).strip().casefold())
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        told.fault("bad_name", written)
        return name[:MAX_NAME]
    if name != written:
        told.note("name_read_as", name)
    if name != unicodedata.normalize("NFKC", folder).casefold() and "name" in values:
        told.note("name_not_folder", folder)
    return name


def _description(values: Mapping[str, Any], told: _Telling, *, given: bool) -> str:
    text = " ".join(_text(values, "description", told).split())
    if not text and given:
        told.fault("no_description")
    if len(text) > MAX_DESCRIPTION:
        told.note("long_description", str(len(text)))
    return text[:MAX_DESCRIPTION]


def _compatibility(values: Mapping[str, Any], told: _Telling) -> str:
    text = " ".join(_text(values, "compatibility", told).split())
    if len(text) > MAX_COMPATIBILITY:
        told.note("long_compatibility", str(len(text)))
    return text[:MAX_COMPATIBILITY]


def _triggers(places: Sequence[Mapping[str, Any]], told: _Telling) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for place in places:
        for each in _list(place, "triggers", told):
            if len(each) <= MAX_TRIGGER:
                found[" ".join(each.split())] = None
            else:
                told.note("long_trigger", each[:MAX_TRIGGER])
    return tuple(filter(None, found))[:MAX_TRIGGERS]


def _requires(claw: Mapping[str, Any], told: _Telling) -> Requires:
    needs = _maps(claw.get("requires"), "requires", told)
    return Requires(
        bins=_list(needs, "bins", told),
        any_bins=_list(needs, "anyBins", told),
        env=_list(needs, "env", told),
        config=_list(needs, "config", told),
        os=_list(claw, "os", told),
    )


def _ignored(
    values: Mapping[str, Any], own: Mapping[str, Any], claw: Mapping[str, Any]
) -> tuple[str, ...]:
    """Keys that change nothing here, among them all that would give rights or install."""
    known = {"emoji", "requires", "os"}
    needs = claw["requires"] if isinstance(claw.get("requires"), dict) else {}
    found = (
        *(key for key in values if key not in _USED),
        *(f"metadata.{key}" for key in own if key not in {*_OPENCLAW, *_OURS}),
        *(f"metadata.openclaw.{key}" for key in claw if key not in known),
        *(f"requires.{key}" for key in needs if key not in _REQUIRES),
    )
    return tuple(_clean(key)[:MAX_NAME] for key in found)


def _text(values: Mapping[str, Any], key: str, told: _Telling) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        told.fault("not_text", key)
        return ""
    return _clean(value)


def _flag(values: Mapping[str, Any], key: str, told: _Telling, *, default: bool) -> bool:
    value = values.get(key)
    if value is None:
        return default
    word = value.strip().casefold() if isinstance(value, str) else None
    if word not in _YES | _NO:
        told.fault("not_yes_or_no", key)
        return default
    return word in _YES


def _list(values: Mapping[str, Any], key: str, told: _Telling) -> tuple[str, ...]:
    """A list of texts, or one text with commas."""
    value = values.get(key, [])
    if isinstance(value, str):
        value = re.split("[,，、]", value)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        told.fault("not_a_list", key)
        return ()
    return tuple(filter(None, map(_clean, value)))


def _clean(text: str) -> str:
    """Without what no card or store can hold, such as halves of characters."""
    return "".join(char for char in text if char.isprintable() or char.isspace()).strip()


def _maps(value: Any, key: str, told: _Telling) -> Mapping[str, Any]:
    """A map, or one written as a line of JSON."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, dict):
        told.fault("not_a_map", key)
        return {}
    return {str(name): _plain(each) for name, each in value.items()}


def _json(text: str) -> Any:
    """None where it is not JSON, or deeper than anybody means."""
    if text.count("{") + text.count("[") > _MOST_BRACKETS:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    """JSON knows more kinds than a BaseLoader: say numbers and flags as it would."""
    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bool():
            return str(value).lower()
        case None:
            return ""
        case _:
            return str(value)
