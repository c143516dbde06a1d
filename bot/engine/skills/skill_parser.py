"""Parses SKILL.md leniently and reports all its errors at once."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from yaml.events import AliasEvent

from storage.records.skills import SkillNote

MAX_FRONT_MATTER = 16 * 1024
_MAX_DEPTH = 8
_FENCE = re.compile(r"-{3,}[ \t]*")
_PLAIN_VALUE = re.compile(r"(?P<key>[A-Za-z][\w-]*):[ \t]+(?P<value>[^\s\"'|>\[{&*!#%@`].*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """Parsed front matter; scalars in `values` are strings.

    With `faults`, `values` is empty but `body` is set."""

    values: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    faults: tuple[SkillNote, ...] = ()
    notes: tuple[SkillNote, ...] = ()


def parse_front_matter(text: str) -> FrontMatter:
    """Never raises."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        return _invalid_front_matter("no_front", body="\n".join(lines))
    end = next((n for n, line in enumerate(lines) if n and _FENCE.fullmatch(line)), 0)
    if not end:
        return _invalid_front_matter("open_front", body="\n".join(lines[1:]))
    front, body = "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")
    if len(front) > MAX_FRONT_MATTER:
        return _invalid_front_matter("long_front", str(MAX_FRONT_MATTER // 1024), body=body)
    try:
        return FrontMatter(values=_load_yaml(front), body=body)
    except _Unreadable as error:
        mended = "\n".join(map(_quote_value, lines[1:end]))
        try:
            values = _load_yaml(mended)
        except _Unreadable:
            return _invalid_front_matter("yaml", str(error), body=body)
        return FrontMatter(values=values, body=body, notes=(SkillNote(key="unquoted"),))


class _Unreadable(Exception):
    """The message is YAML's, with the line in the file."""


class _Loader(yaml.BaseLoader):
    """Rejects aliases, which could expand without limit."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(AliasEvent):
            raise _Unreadable("aliases are not allowed: write the value out")
        return super().compose_node(parent, index)


def _load_yaml(front: str) -> Mapping[str, Any]:
    try:
        found = yaml.load(front, Loader=_Loader)  # noqa: S506 - BaseLoader creates strings only
        deep = _depth(found) > _MAX_DEPTH
    except yaml.YAMLError as error:
        raise _Unreadable(_yaml_problem(error)) from error
    except (RecursionError, ValueError) as error:
        raise _Unreadable("nested too deeply, or not a text") from error
    if found in (None, ""):
        return {}
    if not isinstance(found, dict):
        raise _Unreadable("line 2: must hold values by name, such as `name: my-skill`")
    if deep:
        raise _Unreadable("nested too deeply")
    return {str(key): value for key, value in found.items()}


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(each) for each in inner), default=0)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", "") or getattr(error, "reason", "") or "not YAML")
    # The front matter starts in line 2.
    return f"line {mark.line + 2}: {problem}" if mark else problem


def _quote_value(line: str) -> str:
    """Quote values like `description: Use it: now`, which are not valid YAML."""
    found = _PLAIN_VALUE.fullmatch(line)
    if found is None or not re.search(r":(\s|$)| #", found["value"]):
        return line
    return f"{found['key']}: {json.dumps(found['value'].rstrip(), ensure_ascii=False)}"


def _invalid_front_matter(key: str, detail: str = "", *, body: str) -> FrontMatter:
    return FrontMatter(body=body, faults=(SkillNote(key=key, detail=detail),))


MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_LINES = 500
MAX_TRIGGERS = 20
MAX_ARGUMENT_HINT = 100
MAX_TRIGGER = 60

_MAX_BRACKETS = 100
_NAME = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_HIDDEN_CHARACTERS = re.compile(
    r"[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\U000e0000-\U000e007f]"
)
_OPENCLAW_KEYS = ("openclaw", "clawdbot", "clawdis")
_OWN_KEYS = ("boss", "shiftboss")
_KNOWN_KEYS = frozenset(
    ("name", "description", "license", "compatibility", "metadata", "triggers", "argument-hint")
) | {"disable-model-invocation", "user-invocable"}
_REQUIREMENT_KEYS = ("bins", "anyBins", "env", "config")
_TRUE_WORDS = frozenset(("true", "yes", "on", "1"))
_FALSE_WORDS = frozenset(("false", "no", "off", "0", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRequirements:
    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSkill:
    """Contents of a SKILL.md; usable only without `faults`."""

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
    requires: SkillRequirements = field(default_factory=SkillRequirements)
    ignored: tuple[str, ...] = ()
    notes: tuple[SkillNote, ...] = ()
    faults: tuple[SkillNote, ...] = ()


def parse_skill(text: str, folder: str) -> ParsedSkill:
    """Parse the text; `folder` is the name of its folder. Never raises."""
    front = parse_front_matter(text)
    findings = _Findings()
    findings.faults += front.faults
    findings.notes += front.notes
    values = front.values
    own = _mapping(values.get("metadata"), "metadata", findings)
    claw = next((_mapping(own[key], key, findings) for key in _OPENCLAW_KEYS if key in own), {})
    ours = [_mapping(own[key], f"metadata.{key}", findings) for key in _OWN_KEYS if key in own]
    hints = [_text(place, "argument-hint", findings) for place in (values, *ours)]
    written = ParsedSkill(
        name=_name(values, folder, findings),
        description=_description(values, findings, given=not front.faults),
        body=front.body,
        triggers=_triggers([values, *ours], findings),
        argument_hint=next(filter(None, hints), "")[:MAX_ARGUMENT_HINT],
        emoji=_text(claw, "emoji", findings)[:8],
        license=_text(values, "license", findings)[:MAX_COMPATIBILITY],
        compatibility=_bounded_line(values, "compatibility", MAX_COMPATIBILITY, findings),
        by_model=not _flag(values, "disable-model-invocation", findings, default=False),
        by_person=_flag(values, "user-invocable", findings, default=True),
        requires=_requirements(claw, findings),
        ignored=_ignored(values, own, claw),
    )
    if not front.body.strip():
        findings.fault("no_body")
    if hidden := len(_HIDDEN_CHARACTERS.findall(text)):
        findings.note("hidden", str(hidden))
    if (lines := front.body.count("\n") + 1) > MAX_LINES:
        findings.note("long_body", str(lines))
    return findings.apply_to(written)


class _Findings:
    """Collects errors and notes."""

    def __init__(self) -> None:
        self.faults: tuple[SkillNote, ...] = ()
        self.notes: tuple[SkillNote, ...] = ()

    def fault(self, key: str, detail: str = "") -> None:
        self.faults += (SkillNote(key=key, detail=detail[:200]),)

    def note(self, key: str, detail: str = "") -> None:
        self.notes += (SkillNote(key=key, detail=detail[:200]),)

    def apply_to(self, written: ParsedSkill) -> ParsedSkill:
        return replace(written, faults=self.faults, notes=self.notes)


def _name(values: Mapping[str, Any], folder: str, findings: _Findings) -> str:
    written = _text(values, "name", findings) or folder
    name = re.sub(r"[\s_]+", "-", unicodedata.normalize("NFKC", written).strip().casefold())
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        findings.fault("bad_name", written)
        return name[:MAX_NAME]
    if name != written:
        findings.note("name_read_as", name)
    if name != unicodedata.normalize("NFKC", folder).casefold() and "name" in values:
        findings.note("name_not_folder", folder)
    return name


def _description(values: Mapping[str, Any], findings: _Findings, *, given: bool) -> str:
    text = _bounded_line(values, "description", MAX_DESCRIPTION, findings)
    if not text and given:
        findings.fault("no_description")
    return text


def _bounded_line(values: Mapping[str, Any], key: str, most: int, findings: _Findings) -> str:
    text = " ".join(_text(values, key, findings).split())
    if len(text) > most:
        findings.note(f"long_{key}", str(len(text)))
    return text[:most]


def _triggers(places: Sequence[Mapping[str, Any]], findings: _Findings) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for place in places:
        for each in _list(place, "triggers", findings):
            if len(each) <= MAX_TRIGGER:
                found[" ".join(each.split())] = None
            else:
                findings.note("long_trigger", each[:MAX_TRIGGER])
    return tuple(filter(None, found))[:MAX_TRIGGERS]


def _requirements(claw: Mapping[str, Any], findings: _Findings) -> SkillRequirements:
    needs = _mapping(claw.get("requires"), "requires", findings)
    return SkillRequirements(
        bins=_list(needs, "bins", findings),
        any_bins=_list(needs, "anyBins", findings),
        env=_list(needs, "env", findings),
        config=_list(needs, "config", findings),
        os=_list(claw, "os", findings),
    )


def _ignored(
    values: Mapping[str, Any], own: Mapping[str, Any], claw: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return keys without effect, including those that would grant rights or install something."""
    known = {"emoji", "requires", "os"}
    needs = claw["requires"] if isinstance(claw.get("requires"), dict) else {}
    found = (
        *(key for key in values if key not in _KNOWN_KEYS),
        *(f"metadata.{key}" for key in own if key not in {*_OPENCLAW_KEYS, *_OWN_KEYS}),
        *(f"metadata.openclaw.{key}" for key in claw if key not in known),
        *(f"requires.{key}" for key in needs if key not in _REQUIREMENT_KEYS),
    )
    return tuple(_clean(key)[:MAX_NAME] for key in found)


def _text(values: Mapping[str, Any], key: str, findings: _Findings) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        findings.fault("not_text", key)
        return ""
    return _clean(value)


def _flag(values: Mapping[str, Any], key: str, findings: _Findings, *, default: bool) -> bool:
    value = values.get(key)
    if value is None:
        return default
    word = value.strip().casefold() if isinstance(value, str) else None
    if word not in _TRUE_WORDS | _FALSE_WORDS:
        findings.fault("not_yes_or_no", key)
        return default
    return word in _TRUE_WORDS


def _list(values: Mapping[str, Any], key: str, findings: _Findings) -> tuple[str, ...]:
    """Return a list of strings, or one string split at commas."""
    value = values.get(key, [])
    if isinstance(value, str):
        value = re.split("[,，、]", value)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        findings.fault("not_a_list", key)
        return ()
    return tuple(filter(None, map(_clean, value)))


def _clean(text: str) -> str:
    """Remove characters that cards and the store can't hold, such as lone surrogates."""
    return "".join(char for char in text if char.isprintable() or char.isspace()).strip()


def _mapping(value: Any, key: str, findings: _Findings) -> Mapping[str, Any]:
    """Return a mapping, which may be written as JSON."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, dict):
        findings.fault("not_a_map", key)
        return {}
    return {str(name): _as_strings(each) for name, each in value.items()}


def _json(text: str) -> Any:
    """Return None if invalid or nested too deeply."""
    if text.count("{") + text.count("[") > _MAX_BRACKETS:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _as_strings(value: Any) -> Any:
    """Convert JSON numbers and booleans to the strings that BaseLoader returns."""
    match value:
        case dict():
            return {str(key): _as_strings(each) for key, each in value.items()}
        case list():
            return [_as_strings(each) for each in value]
        case bool():
            return str(value).lower()
        case None:
            return ""
        case _:
            return str(value)
