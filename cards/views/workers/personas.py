"""Who does the work: all there are, one in full, and a name for other cards."""

from __future__ import annotations

from cards import formats
from cards.actions import PickPersona
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Collapsible,
    Fields,
    Note,
    Option,
    Select,
    Text,
    Tone,
)
from cards.words import Words
from storage.records.personas import DEFAULT, PersonaFault, Portrait, Roster

AUTO = "auto"
"""The option that clears a chat's own choice."""

_ABOUT = 160
_PROMPT = 3000
_FAULTS = 10


def personas_card(
    roster: Roster, current: Portrait, words: Words, *, changed: bool = False
) -> Card:
    """All there are, with who works in this chat marked."""
    told = words(
        "persona.changed" if changed else "persona.current",
        title=title_of(current, words),
        name=current.name,
    )
    options = [Option(label=words("persona.auto_option"), value=AUTO)]
    options += [Option(label=title_of(each, words), value=each.name) for each in roster.personas]
    lines = [_line(each, words, current=each == current) for each in roster.personas]
    blocks: list[Block] = [
        Text(markdown=told),
        Text(markdown="\n".join(lines)),
        Select(placeholder=words("persona.pick"), action=PickPersona(), options=tuple(options)),
        *_faults(roster.faults, words),
        Note(markdown=words("persona.note")),
    ]
    tone = Tone.GOOD if changed else Tone.INFO
    return Card(title=words("persona.list_title"), tone=tone, blocks=tuple(blocks), summary=told)


def persona_card(persona: Portrait, words: Words) -> Card:
    """One in full, to be chosen by button."""
    title = words("persona.show_title", title=title_of(persona, words))
    told = Text(markdown=formats.cut(persona.prompt, _PROMPT) or words("persona.no_prompt"))
    blocks: list[Block] = []
    if about := about_of(persona, words):
        blocks.append(Text(markdown=about))
    blocks += [
        Fields(pairs=tuple(_facts(persona, words))),
        Collapsible(title=words("persona.prompt"), blocks=(told,)),
        Buttons(
            items=(
                Button(
                    label=words("persona.choose"),
                    action=PickPersona(name=persona.name),
                    style=ButtonStyle.PRIMARY,
                ),
            )
        ),
    ]
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def title_of(persona: Portrait, words: Words) -> str:
    """In this language, else in whichever there is, else the name."""
    titles = persona.title
    return titles.get(words.language) or next(iter(titles.values()), "") or persona.name


def about_of(persona: Portrait, words: Words) -> str:
    return persona.about.get(words.language) or next(iter(persona.about.values()), "")


def named(name: str, words: Words) -> str:
    """Who does a task or step, for a card that shows it; empty for the default."""
    if name in {"", DEFAULT}:
        return ""
    key = f"persona.title.{name}"
    return f"🎭 {words(key) if words.has(key) else formats.line(name, 40)}"


def _line(persona: Portrait, words: Words, *, current: bool) -> str:
    mark = "👉 " if current else ""
    about = formats.line(about_of(persona, words), _ABOUT)
    own = words("persona.own", file=persona.source) if persona.source else ""
    told = " · ".join(filter(None, (about, own)))
    return f"- {mark}**{title_of(persona, words)}** `{persona.name}` {told}".rstrip()


def _facts(persona: Portrait, words: Words) -> list[tuple[str, str]]:
    pairs = [
        ("name", persona.name),
        ("mode", words(f"persona.mode.{persona.mode or 'any'}")),
        ("tools", " ".join(persona.tools)),
        ("denied", " ".join(persona.denied)),
        ("skills", " ".join(persona.skills)),
        ("servers", " ".join(persona.servers)),
        ("backend", persona.backend),
        ("model", persona.model),
        ("source", persona.source),
    ]
    facts = [(words(f"persona.fact.{key}"), value) for key, value in pairs if value]
    return facts + [
        (words(f"persona.trait.{trait}"), _habit(value, words))
        for trait, value in persona.traits.items()
    ]


def _habit(value: str, words: Words) -> str:
    key = f"persona.habit.{value}"
    return words(key) if words.has(key) else value


def _faults(faults: tuple[PersonaFault, ...], words: Words) -> list[Block]:
    if not faults:
        return []
    lines = [
        words(
            "persona.fault_line",
            file=formats.line(fault.file, 60),
            why=words(f"persona.fault.{fault.why}", detail=fault.detail),
        )
        for fault in faults[:_FAULTS]
    ]
    return [Text(markdown="\n".join([words("persona.faults"), *lines]))]
