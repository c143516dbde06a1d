"""Renders the list of personas, one in full, and labels for other cards."""

from __future__ import annotations

from cards import formats, model
from cards.actions import ChoosePersona
from cards.catalog import TextCatalog
from storage.records.workers import DEFAULT_PERSONA, PersonaFileProblem, PersonaInfo, PersonaList

AUTO_OPTION = "auto"
"""The option that clears a chat's own choice."""

_MAX_SUMMARY = 160
_MAX_PROMPT = 3000
_MAX_FAULTS = 10


def personas_card(
    roster: PersonaList, current: PersonaInfo, words: TextCatalog, *, changed: bool = False
) -> model.Card:
    """All personas, with the chat's own marked."""
    text = words(
        "persona.changed" if changed else "persona.current",
        title=persona_title(current, words),
        name=current.name,
    )
    options = [model.SelectOption(words("persona.auto_option"), AUTO_OPTION)]
    options += [
        model.SelectOption(persona_title(each, words), each.name) for each in roster.personas
    ]
    lines = [_persona_line(each, words, current=each == current) for each in roster.personas]
    blocks: list[model.Block] = [
        model.TextBlock(text),
        model.TextBlock("\n".join(lines)),
        model.SelectBlock(
            placeholder=words("persona.pick"), action=ChoosePersona(), options=tuple(options)
        ),
        *_fault_blocks(roster.errors, words),
        model.NoteBlock(words("persona.note")),
    ]
    tone = model.CardTone.GOOD if changed else model.CardTone.INFO
    return model.titled_card(words("persona.list_title"), *blocks, tone=tone, summary=text)


def persona_card(persona: PersonaInfo, words: TextCatalog) -> model.Card:
    """One persona in full, with a button to choose it."""
    prompt = model.TextBlock(
        formats.truncate(persona.prompt, _MAX_PROMPT) or words("persona.no_prompt")
    )
    blocks: list[model.Block] = []
    if about := persona_summary(persona, words):
        blocks.append(model.TextBlock(about))
    blocks += [
        model.FieldsBlock(tuple(_persona_facts(persona, words))),
        model.CollapsibleBlock(words("persona.prompt"), (prompt,)),
        model.ButtonsBlock(
            (
                model.CardButton(
                    words("persona.choose"),
                    ChoosePersona(name=persona.name),
                    style=model.ButtonStyle.PRIMARY,
                ),
            )
        ),
    ]
    return model.titled_card(
        words("persona.show_title", title=persona_title(persona, words)), *blocks
    )


def persona_title(persona: PersonaInfo, words: TextCatalog) -> str:
    """The title in this language, else in another, else the name."""
    titles = persona.titles
    return titles.get(words.language) or next(iter(titles.values()), "") or persona.name


def persona_summary(persona: PersonaInfo, words: TextCatalog) -> str:
    return persona.descriptions.get(words.language) or next(iter(persona.descriptions.values()), "")


def persona_label(name: str, words: TextCatalog) -> str:
    """The persona of a task or step as shown on cards; empty for the default."""
    if name in {"", DEFAULT_PERSONA}:
        return ""
    key = f"persona.title.{name}"
    return f"🎭 {words(key) if words.has(key) else formats.single_line(name, 40)}"


def _persona_line(persona: PersonaInfo, words: TextCatalog, *, current: bool) -> str:
    mark = "👉 " if current else ""
    about = formats.single_line(persona_summary(persona, words), _MAX_SUMMARY)
    own = words("persona.own", file=persona.source) if persona.source else ""
    text = " · ".join(filter(None, (about, own)))
    return f"- {mark}**{persona_title(persona, words)}** `{persona.name}` {text}".rstrip()


def _persona_facts(persona: PersonaInfo, words: TextCatalog) -> list[tuple[str, str]]:
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
        (words(f"persona.trait.{trait}"), _trait_text(value, words))
        for trait, value in persona.traits.items()
    ]


def _trait_text(value: str, words: TextCatalog) -> str:
    key = f"persona.habit.{value}"
    return words(key) if words.has(key) else value


def _fault_blocks(faults: tuple[PersonaFileProblem, ...], words: TextCatalog) -> list[model.Block]:
    if not faults:
        return []
    lines = [
        words(
            "persona.fault_line",
            file=formats.single_line(fault.file, 60),
            why=words(f"persona.fault.{fault.reason_key}", detail=fault.detail),
        )
        for fault in faults[:_MAX_FAULTS]
    ]
    return [model.TextBlock("\n".join([words("persona.faults"), *lines]))]
