"""The model in the stories of memory: it draws facts by nothing but what was said, decides on them
by nothing but what they say, and so says the same however often it is asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.models.default_replies import default_reply
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)

_SUMMARISE = ("Summarise this part of a conversation", "Join these summaries")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
    """A fact that is drawn from every turn in which somebody says its `cue`."""

    cue: str
    text: str
    topic: str = ""
    category: str = "profile"
    confidence: float = 0.85


@dataclass(kw_only=True)
class ScriptedMemoryModel:
    """`verdicts` are what becomes of a new note by its text, else it is a new one; `answers` are
    given to whoever says these words. The first time that notes are wanted of what has a word of
    `fails_on`, the service is tired: of a copy for each telling."""

    drawn: Sequence[ExtractedFact] = ()
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    fails_on: Sequence[str] = ()
    _failed: set[str] = field(default_factory=set)

    def __call__(self, asked: ReceivedRequest) -> ScriptedReply:
        if form := _form(asked, "memories"):
            if self._is_tired(asked):
                return ScriptedReply(failure=ScriptedFailure(status=529))
            notes = _notes(asked, self.drawn)
            return _filled(form, conversation_register="real", memories=notes)
        if form := _form(asked, "results"):
            return _filled(form, results=_results(asked, self.verdicts))
        if any(each in asked.last_text for each in _SUMMARISE):
            return ScriptedReply(text="They talked of a garden and of what grows in it.")
        if _form(asked, "steps") or _form(asked, "summary"):
            return default_reply(asked)
        said = (text for cue, text in self.answers.items() if cue in asked.last_text)
        return ScriptedReply(text=next(said, "I have heard it."))

    def _is_tired(self, asked: ReceivedRequest) -> bool:
        new = {cue for cue in self.fails_on if cue in asked.last_text} - self._failed
        self._failed |= new
        return bool(new)


def _form(asked: ReceivedRequest, field: str) -> str:
    return next(
        (name for name, schema in asked.tools.items() if field in (schema.get("properties") or ())),
        "",
    )


def _filled(form: str, **value: Any) -> ScriptedReply:
    return ScriptedReply(calls=[ScriptedCall(name=form, arguments=value)])


def _notes(asked: ReceivedRequest, drawn: Sequence[ExtractedFact]) -> list[dict[str, Any]]:
    turns = json.loads(asked.last_text)["conversation"]
    return [
        {
            "category": each.category,
            "topic": each.topic,
            "text": each.text,
            "confidence": each.confidence,
            "turns": on,
        }
        for each in drawn
        if (on := [turn["turn"] for turn in turns if each.cue in turn["said"]])
    ]


def _results(
    asked: ReceivedRequest, verdicts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    notes = json.loads(asked.last_text)["notes"]
    new = {"decision": "create"}
    return [{"index": each["index"], **verdicts.get(each["new"], new)} for each in notes]
