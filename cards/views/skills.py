"""Renders skills: the list, one with everything an owner must review, drafts, proposals, and JSON
for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cards import formats, model
from cards.actions import AnswerWithoutTask, EnableSkill, SaveSkill, ShowSkill, UseSkill
from cards.catalog import TextCatalog
from cards.formats import strip_bidi_overrides, strip_controls
from cards.model import notice_card
from storage.records.skills import (
    InvalidSkill,
    MissingRequirement,
    Skill,
    SkillCatalog,
    SkillChanges,
    SkillDraft,
    SkillListing,
    SkillNote,
    SkillSource,
    SkillState,
)

MAX_SHOWN_CHARACTERS = 4_000
"""Characters of SKILL.md shown on the card."""

_MAX_LISTED = 40
_MAX_LINE = 160
_MAX_PATH = 320
_MAX_BUTTONS = 6
_MAX_NAMES = 20
_DEFAULT_EMOJI = "🧩"


def skills_card(
    catalog: SkillCatalog, words: TextCatalog, *, owner: bool, note: str = ""
) -> model.Card:
    usable = [each for each in catalog.skills if each.usable]
    waiting = [each for each in catalog.skills if _awaits_review(each)]
    resting = [each for each in catalog.skills if not (each.usable or _awaits_review(each))]
    blocks: list[model.Block] = [model.NoteBlock(note)] if note else []
    for key, group in (("waiting", waiting), ("usable", usable), ("resting", resting)):
        if group:
            rows = [_row(each, words) for each in group[:_MAX_LISTED]]
            blocks.append(model.TextBlock("\n".join((words(f"skill.{key}"), "", *rows))))
    if catalog.invalid:
        rows = [row for each in catalog.invalid[:_MAX_LISTED] for row in _bad_rows(each, words)]
        blocks.append(model.TextBlock("\n".join((words("skill.broken"), "", *rows))))
    if not blocks:
        blocks.append(model.TextBlock(words("skill.none")))
    if catalog.left_out:
        blocks.append(model.NoteBlock(words("skill.left_out", n=catalog.left_out)))
    if waiting and owner:
        blocks.append(
            model.ButtonsBlock(
                tuple(_review_button(each, words) for each in waiting[:_MAX_BUTTONS])
            )
        )
    blocks.append(model.NoteBlock(words("skill.hint")))
    return model.titled_card(
        words("skill.title"),
        *blocks,
        tone=model.CardTone.WARN if catalog.invalid or waiting else model.CardTone.INFO,
    )


def exceeds_card(skill: Skill) -> bool:
    """Whether its files contain more than the card can show."""
    return len(skill.text) > MAX_SHOWN_CHARACTERS or len(skill.files) > 1


def skill_card(
    listing: SkillListing,
    words: TextCatalog,
    *,
    owner: bool,
    full_text: model.FileBlock | None = None,
    note: str = "",
) -> model.Card:
    """Everything to review before the skill is enabled. `full_text` has the text of all its files;
    `note` says why the card is shown."""
    skill = listing.skill
    blocks: list[model.Block] = [
        *([model.TextBlock(note)] if note else []),
        model.TextBlock(_skill_summary(skill, words, 1024)),
        model.FieldsBlock(_facts(listing, words)),
    ]
    remarks = [
        *_missing_lines(skill.missing_requirements, words),
        *skill_note_lines(skill.notes, words),
        *_flag_lines(skill, words),
    ]
    if remarks:
        blocks.append(model.TextBlock("\n".join(f"- {each}" for each in remarks)))
    if listing.state is SkillState.CHANGED:
        blocks += _change_blocks(listing.change, words)
    blocks.append(_text_preview(skill.text, words))
    if listing.state is not SkillState.ENABLED:
        blocks += _enable_blocks(listing, words, owner=owner)
    if full_text is not None:
        blocks += [model.NoteBlock(words("skill.whole")), full_text]
    emoji = skill.emoji or _DEFAULT_EMOJI
    tone = model.CardTone.INFO if listing.state is SkillState.ENABLED else model.CardTone.WARN
    return model.titled_card(
        words("skill.looked_at", emoji=emoji, name=formats.single_line(skill.name, _MAX_LINE)),
        *blocks,
        tone=tone,
    )


def enabled_card(listing: SkillListing, words: TextCatalog) -> model.Card:
    name, lacks = listing.skill.name, listing.skill.missing_requirements
    if lacks:
        text = " · ".join(_missing_lines(lacks, words))
        return notice_card(
            "", words("skill.enabled_lacks", name=name, lacks=text), tone=model.CardTone.WARN
        )
    return notice_card("", words("skill.enabled", name=name), tone=model.CardTone.GOOD)


def suggestion_card(
    skill: Skill, use: UseSkill, talk: AnswerWithoutTask, words: TextCatalog
) -> model.Card:
    """Ask before using a skill that the person has not named."""
    about = _skill_summary(skill, words, 200)
    buttons = (
        model.CardButton(words("skill.button.use"), use, style=model.ButtonStyle.PRIMARY),
        model.CardButton(words("skill.button.just"), talk),
    )
    return model.titled_card(
        words("skill.suggest_title"),
        model.TextBlock(words("skill.suggest", name=skill.name, description=about)),
        model.ButtonsBlock(buttons),
    )


def draft_card(draft: SkillDraft, words: TextCatalog) -> model.Card:
    """The complete draft: exactly what is shown gets saved."""
    save = SaveSkill(name=draft.name, text=draft.text)
    drop = SaveSkill(name=draft.name, text="", save=False)
    buttons = (
        model.CardButton(words("skill.button.save"), save, style=model.ButtonStyle.PRIMARY),
        model.CardButton(words("skill.button.discard"), drop),
    )
    return model.titled_card(
        words("skill.draft_title", name=draft.name),
        model.CodeBlock(_safe_text(draft.text), language="markdown"),
        model.TextBlock(words("skill.draft_ask")),
        model.ButtonsBlock(buttons),
    )


def _skill_summary(skill: Skill, words: TextCatalog, limit: int) -> str:
    """Its purpose: built-in skills in the reader's language, others in their own words."""
    key = f"skill.about.{skill.name}"
    if skill.source is SkillSource.BUILTIN and words.has(key):
        return words(key)
    return formats.escape_markdown(skill.description, limit)


def _awaits_review(listing: SkillListing) -> bool:
    return listing.state in {SkillState.NEW, SkillState.CHANGED}


def _row(listing: SkillListing, words: TextCatalog) -> str:
    skill = listing.skill
    parts = [words(f"skill.source.{skill.source}")]
    if listing.state is not SkillState.ENABLED:
        parts.append(words(f"skill.state.{listing.state}"))
    if listing.shadowed_by:
        parts.append(words("skill.shadowed", path=_path_text(listing.shadowed_by)))
    elif listing.state is SkillState.ENABLED:
        parts += _missing_lines(skill.missing_requirements, words)
    about = _skill_summary(skill, words, _MAX_LINE)
    return f"- {skill.emoji or _DEFAULT_EMOJI} `{skill.name}` ({' · '.join(parts)}): {about}"


def _bad_rows(bad: InvalidSkill, words: TextCatalog) -> list[str]:
    return [
        f"- ⚠️ `{_path_text(bad.path)}`",
        *(f"  - {each}" for each in skill_note_lines(bad.errors, words)),
    ]


def _facts(listing: SkillListing, words: TextCatalog) -> tuple[tuple[str, str], ...]:
    skill = listing.skill
    scripts = ", ".join(each.name for each in skill.scripts[:_MAX_NAMES])
    files = [f"{each.name} ({formats.file_size(each.size)})" for each in skill.files[:_MAX_NAMES]]
    if len(skill.files) > _MAX_NAMES:
        files.append(f"… {len(skill.files)}")
    state = words(f"skill.state.{listing.state}")
    if listing.shadowed_by:
        state = f"{state} · {words('skill.shadowed', path=_path_text(listing.shadowed_by))}"
    facts = (
        ("status", state),
        (
            "source_path",
            f"{words(f'skill.source.{skill.source}')} · {_path_text(skill.path)}",
        ),
        ("hash", skill.hash),
        ("size", formats.file_size(skill.size)),
        ("files", ", ".join(files)),
        ("scripts", scripts or words("skill.no_scripts")),
        ("triggers", ", ".join(skill.triggers)),
        ("needs", skill.compatibility),
        ("license", skill.license),
    )
    return tuple((words(f"skill.{key}"), _safe_text(value)) for key, value in facts if value)


def _flag_lines(skill: Skill, words: TextCatalog) -> list[str]:
    who = {(False, True): "person_only", (True, False): "model_only"}
    key = who.get((skill.model_may_load, skill.person_may_load))
    ignored = ", ".join(f"`{_path_text(each)}`" for each in skill.ignored[:_MAX_NAMES])
    return [
        *([words(f"skill.who.{key}")] if key else []),
        *([words("skill.ignored", keys=ignored)] if ignored else []),
    ]


def _change_blocks(change: SkillChanges | None, words: TextCatalog) -> list[model.Block]:
    if change is None:
        return [model.TextBlock(words("skill.changed_unknown"))]
    groups = {"added": change.added, "gone": change.removed, "altered": change.changed}
    rows = [
        words(
            f"skill.{key}",
            names=", ".join(f"`{_path_text(name)}`" for name in names[:_MAX_NAMES]),
        )
        for key, names in groups.items()
        if names
    ]
    blocks: list[model.Block] = [
        model.TextBlock("\n".join((f"**{words('skill.changes')}**", "", *rows)))
    ]
    if change.diff:
        blocks.append(
            model.CodeBlock(
                formats.truncate(_safe_text(change.diff), MAX_SHOWN_CHARACTERS), language="diff"
            )
        )
    return blocks


def _text_preview(text: str, words: TextCatalog) -> model.CollapsibleBlock:
    preview = _safe_text(text)[:MAX_SHOWN_CHARACTERS]
    title = words("skill.text")
    if len(text) > MAX_SHOWN_CHARACTERS:
        title = words("skill.text_part", shown=f"{MAX_SHOWN_CHARACTERS:,}", all=f"{len(text):,}")
    return model.CollapsibleBlock(title, (model.CodeBlock(preview, language="markdown"),))


def _enable_blocks(listing: SkillListing, words: TextCatalog, *, owner: bool) -> list[model.Block]:
    if not owner:
        return [model.NoteBlock(words("skill.only_owner"))]
    changed = listing.state is SkillState.CHANGED
    name, key = listing.skill.name, listing.skill.decision_hash
    enable, leave = (EnableSkill(name=name, hash=key, enable=each) for each in (True, False))
    buttons = (
        model.CardButton(words("skill.button.enable"), enable, style=model.ButtonStyle.PRIMARY),
        model.CardButton(words("skill.button.not_now"), leave),
    )
    question = words("skill.ask")
    if changed:
        question = f"{words('skill.ask_changed')}\n\n{question}"
    return [model.TextBlock(question), model.ButtonsBlock(buttons)]


def _review_button(listing: SkillListing, words: TextCatalog) -> model.CardButton:
    name = listing.skill.name
    return model.CardButton(words("skill.button.look", name=name), ShowSkill(name=name))


def _missing_lines(lacks: Sequence[MissingRequirement], words: TextCatalog) -> list[str]:
    return [
        words(
            f"skill.lack.{each.key}",
            names=formats.escape_markdown(", ".join(each.names), _MAX_LINE),
        )
        for each in lacks
    ]


def skill_note_lines(notes: Sequence[SkillNote], words: TextCatalog) -> list[str]:
    """One line for each problem with a skill's files."""
    return [
        words(
            f"skill.note.{each.key}",
            detail=formats.code_text(each.detail, _MAX_LINE),
        )
        for each in notes
    ]


def _safe_text(text: str) -> str:
    return strip_bidi_overrides(strip_controls(text))


def skills_data(catalog: SkillCatalog, words: TextCatalog) -> Mapping[str, Any]:
    return {
        "skills": [skill_data(each, words) for each in catalog.skills],
        "bad": [
            {
                "name": each.name,
                "source": each.source.value,
                "path": each.path,
                "faults": skill_note_lines(each.errors, words),
            }
            for each in catalog.invalid
        ],
        "left_out": catalog.left_out,
    }


def skill_data(listing: SkillListing, words: TextCatalog) -> Mapping[str, Any]:
    skill = listing.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "source": skill.source.value,
        "path": skill.path,
        "hash": skill.hash,
        "state": listing.state.value,
        "usable": listing.usable,
        "shadowed": listing.shadowed_by,
        "lacks": {each.key: list(each.names) for each in skill.missing_requirements},
        "size": skill.size,
        "files": [each.name for each in skill.files],
        "scripts": [each.name for each in skill.scripts],
        "triggers": list(skill.triggers),
        "ignored": list(skill.ignored),
        "notes": skill_note_lines(skill.notes, words),
    }


def _path_text(path: str) -> str:
    return formats.code_text(path, _MAX_PATH)
