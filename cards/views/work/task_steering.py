"""The form by which a task's worker is told something."""

from __future__ import annotations

from cards import formats
from cards.actions import SendMessage
from cards.model import Card, FieldKind, Form, FormField, Note, Option, Text, Tone
from cards.words import Words
from storage.records.tasks import Task

_TITLE = 60
_SENT = 500


def message_form(task: Task, words: Words) -> Card:
    form = Form(
        fields=(
            FormField(
                name="text",
                label=words("steer.text"),
                field=FieldKind.PARAGRAPH,
                placeholder=words("steer.placeholder"),
            ),
            FormField(
                name="as",
                label=words("steer.as"),
                field=FieldKind.CHOICE,
                required=False,
                options=(
                    Option(label=words("steer.as_message"), value="message"),
                    Option(label=words("steer.as_step"), value="step"),
                ),
            ),
        ),
        submit=words("steer.submit"),
        action=SendMessage(task_id=task.id),
    )
    title = words("steer.title", title=formats.line(task.title, _TITLE))
    return Card(title=title, tone=Tone.INFO, blocks=(form,), summary=title)


def sent_card(task: Task, text: str, told: str) -> Card:
    """What becomes of the form once it was sent; `told` is what that led to."""
    note = Note(markdown=f"`{task.id}` {formats.verbatim(task.title, _TITLE)}")
    said = Text(markdown=f"{told}\n\n> {formats.verbatim(text, _SENT)}")
    return Card(blocks=(said, note), summary=told)
