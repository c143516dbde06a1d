"""Answers, proposals and what a conversation is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from cards import formats
from cards.actions import JustTalk, PickModel, StartTask
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Fields,
    Note,
    Option,
    Select,
    Text,
    Tone,
)
from cards.views import controls
from cards.views.backends import noted, without_note
from cards.views.files import attached
from cards.words import Words
from storage.records.status import AUTO, ModelChoice

_SUMMARY = 80
_FILES = 5


def answer_card(
    text: str,
    words: Words,
    *,
    notes: Sequence[str] = (),
    files: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> Card:
    """A plain answer. Files are attached where their size is known."""
    known = sizes or {}
    said = without_note(text)
    blocks: list[Block] = [Text(markdown=said)] if said else []
    blocks += [attached(path, known[path]) for path in files if path in known][:_FILES]
    blocks += [Note(markdown=note) for note in notes if note]
    return Card(blocks=(*blocks, *noted((text,), words)), summary=formats.line(said, _SUMMARY))


def proposal_card(
    start: StartTask,
    talk: JustTalk,
    words: Words,
    *,
    said: str = "",
    when: str = "",
    notes: Sequence[str] = (),
) -> Card:
    """Ask before work is started. `when` is what nothing can do yet: a set time."""
    answer = without_note(said)
    question = words("proposal.question")
    blocks: list[Block] = [Text(markdown=answer)] if answer else []
    blocks += [
        Text(markdown=f"**{formats.line(start.title or start.text, _SUMMARY)}**"),
        Text(markdown=words("proposal.no_schedule", when=when) if when else question),
        Buttons(
            items=(
                Button(label=words("button.start"), action=start, style=ButtonStyle.PRIMARY),
                Button(label=words("button.talk"), action=talk),
            )
        ),
        Select(
            placeholder=words("proposal.priority", priority=words(f"priority.{start.priority}")),
            action=start,
            options=controls.priority_options(words),
        ),
        Note(markdown=words("proposal.note")),
        *(Note(markdown=note) for note in notes if note),
        *noted((said,), words),
    ]
    return Card(
        title=words("proposal.title"),
        tone=Tone.INFO,
        blocks=tuple(blocks),
        summary=words("proposal.summary", title=formats.line(start.title or start.text, _SUMMARY)),
    )


def started_card(title: str, task_id: str, words: Words) -> Card:
    """What becomes of a proposal or form that led to a task."""
    text = f"{words('proposal.started')} · `{task_id}` {formats.line(title, _SUMMARY)}"
    return Card(blocks=(Note(markdown=text),), summary=words("proposal.started"))


def declined_card(text: str, words: Words) -> Card:
    """What becomes of a proposal that was declined."""
    return Card(
        title=words("proposal.declined"),
        blocks=(Text(markdown=formats.line(text, 200)),),
        summary=words("proposal.declined"),
    )


def session_card(
    *, turns: int, model: ModelChoice, last_used_at: datetime, now: datetime, words: Words
) -> Card:
    pairs = (
        (words("session.turns"), str(turns)),
        (words("session.model"), model.name),
        (words("session.used"), formats.age(last_used_at, now, words)),
    )
    return Card(
        title=words("session.title"),
        tone=Tone.INFO,
        blocks=(Fields(pairs=pairs), Note(markdown=words("session.note"))),
        summary=words("session.title"),
    )


def models_card(
    choices: Sequence[ModelChoice],
    *,
    chosen: str,
    words: Words,
    auto: bool = False,
    changed: bool = False,
) -> Card:
    """What can do the work here; `chosen` is the chat's own choice, empty if it has none. `auto`:
    it has chosen that each message gets the model that fits."""
    default = words("model.default", name=choices[0].name if choices else "-")
    current = chosen or (words("model.auto") if auto else default)
    lines = [_choice_line(choice, words) for choice in choices]
    options = [Option(label=words("model.auto_option"), value=AUTO)]
    options += [Option(label=choice.name, value=choice.name) for choice in choices]
    options.append(Option(label=words("model.default_option"), value="default"))
    key = "model.changed" if changed else "model.current"
    return Card(
        title=words("model.title"),
        tone=Tone.GOOD if changed else Tone.INFO,
        blocks=(
            Text(markdown=words(key, name=current)),
            Text(markdown="\n".join(lines)),
            Select(placeholder=words("model.pick"), action=PickModel(), options=tuple(options)),
            Note(markdown=words("model.note")),
        ),
        summary=words(key, name=current),
    )


def _choice_line(choice: ModelChoice, words: Words) -> str:
    if not choice.problem:
        return f"- `{choice.name}`"
    return f"- `{choice.name}` ⚠️ {words.or_own(choice.problem)}"
