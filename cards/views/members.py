"""Who is let in, and the question before one of them is made less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cards import formats
from cards.actions import AskAboutPerson, MovePerson
from cards.model import Block, Button, Buttons, ButtonStyle, Card, Note, Text, Tone
from cards.words import Words
from storage.records.people import Member, PersonId, Role

_NAME = 60
_ACCOUNT = 60
_LISTED = 40
_BUTTONS = 8


def members_card(members: Sequence[Member], words: Words, *, by: PersonId) -> Card:
    """`by` is who looks: their own row has no buttons."""
    title = words("people.title", n=len(members))
    rows = [_row(each, words) for each in members[:_LISTED]]
    blocks: list[Block] = [Text(markdown="\n".join(rows))]
    if len(members) > _LISTED:
        blocks.append(Note(markdown=words("pairing.more", n=len(members) - _LISTED)))
    others = [each for each in members if not each.local and each.person.id != by]
    buttons = [button for each in others for button in _buttons(each, words)]
    if buttons:
        blocks.append(Buttons(items=tuple(buttons[:_BUTTONS])))
    blocks.append(Note(markdown=words("people.note")))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def confirm_card(member: Member, words: Words, *, remove: bool) -> Card:
    person = member.person
    key = "remove" if remove else "demote"
    name = formats.line(person.name, _NAME)
    move = MovePerson(person_id=person.id, remove=remove)
    button = Button(label=words(f"people.sure_{key}"), action=move, style=ButtonStyle.DANGER)
    title = words(f"people.ask_{key}", name=name)
    blocks: list[Block] = [Text(markdown=words(f"people.then_{key}"))]
    if member.named:
        blocks.append(Text(markdown=words("people.named")))
    blocks.append(Buttons(items=(button,)))
    return Card(title=title, tone=Tone.WARN, blocks=tuple(blocks), summary=title)


def members_data(members: Sequence[Member]) -> Mapping[str, Any]:
    return {
        "people": [
            {
                "id": each.person.id,
                "name": each.person.name,
                "role": each.person.role.value,
                "accounts": [f"{channel}:{external_id}" for channel, external_id in each.accounts],
                "named": each.named,
                "local": each.local,
            }
            for each in members
        ]
    }


def _row(member: Member, words: Words) -> str:
    person = member.person
    accounts = [
        words(f"channel.{channel}")
        if member.local
        else f"{words(f'channel.{channel}')} {formats.verbatim(external_id, _ACCOUNT)}"
        for channel, external_id in member.accounts
    ]
    marks = [words(f"people.role_{person.role}"), *accounts]
    if member.named:
        marks.append(words("people.by_setting"))
    name = formats.verbatim(person.name, _NAME)
    return f"- **{name}** (`{person.id}`) · {' · '.join(marks)}"


def _buttons(member: Member, words: Words) -> list[Button]:
    person = member.person
    name = formats.line(person.name, 20)
    acts = [False, True] if person.role is Role.OWNER else [True]
    return [
        Button(
            label=words(f"people.button_{'remove' if remove else 'demote'}", name=name),
            action=AskAboutPerson(person_id=person.id, remove=remove),
        )
        for remove in acts
    ]
