"""Skills: all of them, one with everything an owner has to see, a draft, a proposal."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.actions import EnableSkill, JustTalk, SaveSkill, ShowSkill, UseSkill
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Code,
    Collapsible,
    Fields,
    File,
    Note,
    Text,
    Tone,
)
from cards.safe_text import clean, without_overrides
from cards.views.errors import notice_card
from cards.words import Words
from storage.records.workers.skills import (
    BadSkill,
    Change,
    Lack,
    Listed,
    Skill,
    SkillDraft,
    SkillNote,
    SkillShelf,
    SkillSource,
    SkillState,
)

SHOWN = 4_000
"""Characters of SKILL.md that an owner sees on the card."""

_LISTED = 40
_LINE = 160
_BUTTONS = 6
_NAMES = 20
_EMOJI = "🧩"


def shelf_card(shelf: SkillShelf, words: Words, *, owner: bool, note: str = "") -> Card:
    usable = [each for each in shelf.skills if each.usable]
    waiting = [each for each in shelf.skills if _waits(each)]
    resting = [each for each in shelf.skills if not (each.usable or _waits(each))]
    blocks: list[Block] = [Note(markdown=note)] if note else []
    for key, group in (("waiting", waiting), ("usable", usable), ("resting", resting)):
        if group:
            rows = [_row(each, words) for each in group[:_LISTED]]
            blocks.append(Text(markdown="\n".join((words(f"skill.{key}"), "", *rows))))
    if shelf.bad:
        rows = [row for each in shelf.bad[:_LISTED] for row in _bad_rows(each, words)]
        blocks.append(Text(markdown="\n".join((words("skill.broken"), "", *rows))))
    if not blocks:
        blocks.append(Text(markdown=words("skill.none")))
    if shelf.left_out:
        blocks.append(Note(markdown=words("skill.left_out", n=shelf.left_out)))
    if waiting and owner:
        blocks.append(Buttons(items=tuple(_look(each, words) for each in waiting[:_BUTTONS])))
    blocks.append(Note(markdown=words("skill.hint")))
    title = words("skill.title")
    return Card(
        title=title,
        tone=Tone.WARN if shelf.bad or waiting else Tone.INFO,
        blocks=tuple(blocks),
        summary=title,
    )


def has_more(skill: Skill) -> bool:
    """Whether its files say more than its card can show."""
    return len(skill.text) > SHOWN or len(skill.files) > 1


def skill_card(
    listed: Listed, words: Words, *, owner: bool, whole: File | None = None, note: str = ""
) -> Card:
    """All that has to be seen before it is let in; `whole` is all that its files say, `note` why
    it is shown."""
    skill = listed.skill
    blocks: list[Block] = [
        *([Text(markdown=note)] if note else []),
        Text(markdown=_about(skill, words, 1024)),
        Fields(pairs=_facts(listed, words)),
    ]
    remarks = [*_lacks(skill.lacks, words), *_notes(skill.notes, words), *_marks(skill, words)]
    if remarks:
        blocks.append(Text(markdown="\n".join(f"- {each}" for each in remarks)))
    if listed.state is SkillState.CHANGED:
        blocks += _change(listed.change, words)
    blocks.append(_head(skill.text, words))
    if listed.state is not SkillState.ENABLED:
        blocks += _asking(listed, words, owner=owner)
    if whole is not None:
        blocks += [Note(markdown=words("skill.whole")), whole]
    emoji = skill.emoji or _EMOJI
    title = words("skill.looked_at", emoji=emoji, name=formats.line(skill.name, _LINE))
    tone = Tone.INFO if listed.state is SkillState.ENABLED else Tone.WARN
    return Card(title=title, tone=tone, blocks=tuple(blocks), summary=title)


def enabled_card(listed: Listed, words: Words) -> Card:
    name, lacks = listed.skill.name, listed.skill.lacks
    if lacks:
        told = " · ".join(_lacks(lacks, words))
        return notice_card("", words("skill.enabled_lacks", name=name, lacks=told), tone=Tone.WARN)
    return notice_card("", words("skill.enabled", name=name), tone=Tone.GOOD)


def suggestion_card(skill: Skill, use: UseSkill, talk: JustTalk, words: Words) -> Card:
    """Ask before a skill is used that nobody has named."""
    about = _about(skill, words, 200)
    buttons = (
        Button(label=words("skill.button.use"), action=use, style=ButtonStyle.PRIMARY),
        Button(label=words("skill.button.just"), action=talk),
    )
    return Card(
        title=words("skill.suggest_title"),
        tone=Tone.INFO,
        blocks=(
            Text(markdown=words("skill.suggest", name=skill.name, description=about)),
            Buttons(items=buttons),
        ),
        summary=words("skill.suggest_title"),
    )


def draft_card(draft: SkillDraft, words: Words) -> Card:
    """The whole of it: what is saved is what is seen."""
    save = SaveSkill(name=draft.name, text=draft.text)
    drop = SaveSkill(name=draft.name, text="", save=False)
    buttons = (
        Button(label=words("skill.button.save"), action=save, style=ButtonStyle.PRIMARY),
        Button(label=words("skill.button.discard"), action=drop),
    )
    title = words("skill.draft_title", name=draft.name)
    return Card(
        title=title,
        tone=Tone.INFO,
        blocks=(
            Code(text=_safe(draft.text), language="markdown"),
            Text(markdown=words("skill.draft_ask")),
            Buttons(items=buttons),
        ),
        summary=title,
    )


def told(notes: Sequence[SkillNote], words: Words) -> list[str]:
    """What is wrong with a skill's files, a line each."""
    return _notes(notes, words)


def _about(skill: Skill, words: Words, limit: int) -> str:
    """What it is for: our own skills say it in the reader's language, others in their own words."""
    key = f"skill.about.{skill.name}"
    if skill.source is SkillSource.BUILTIN and words.has(key):
        return words(key)
    return formats.verbatim(skill.description, limit)


def _waits(listed: Listed) -> bool:
    return listed.state in {SkillState.NEW, SkillState.CHANGED}


def _row(listed: Listed, words: Words) -> str:
    skill = listed.skill
    parts = [words(f"skill.source.{skill.source}")]
    if listed.state is not SkillState.ENABLED:
        parts.append(words(f"skill.state.{listed.state}"))
    if listed.shadowed:
        parts.append(words("skill.shadowed", path=_path(listed.shadowed)))
    elif listed.state is SkillState.ENABLED:
        parts += _lacks(skill.lacks, words)
    about = _about(skill, words, _LINE)
    return f"- {skill.emoji or _EMOJI} `{skill.name}` ({' · '.join(parts)}): {about}"


def _bad_rows(bad: BadSkill, words: Words) -> list[str]:
    return [f"- ⚠️ `{_path(bad.path)}`", *(f"  - {each}" for each in _notes(bad.faults, words))]


def _facts(listed: Listed, words: Words) -> tuple[tuple[str, str], ...]:
    skill = listed.skill
    scripts = ", ".join(each.name for each in skill.scripts[:_NAMES])
    files = [f"{each.name} ({formats.size(each.size)})" for each in skill.files[:_NAMES]]
    if len(skill.files) > _NAMES:
        files.append(f"… {len(skill.files)}")
    state = words(f"skill.state.{listed.state}")
    if listed.shadowed:
        state = f"{state} · {words('skill.shadowed', path=_path(listed.shadowed))}"
    facts = (
        ("status", state),
        ("source_path", f"{words(f'skill.source.{skill.source}')} · {_path(skill.path)}"),
        ("hash", skill.hash),
        ("size", formats.size(skill.size)),
        ("files", ", ".join(files)),
        ("scripts", scripts or words("skill.no_scripts")),
        ("triggers", ", ".join(skill.triggers)),
        ("needs", skill.compatibility),
        ("license", skill.license),
    )
    return tuple((words(f"skill.{key}"), _safe(value)) for key, value in facts if value)


def _marks(skill: Skill, words: Words) -> list[str]:
    who = {(False, True): "person_only", (True, False): "model_only"}
    key = who.get((skill.by_model, skill.by_person))
    ignored = ", ".join(f"`{_path(each)}`" for each in skill.ignored[:_NAMES])
    return [
        *([words(f"skill.who.{key}")] if key else []),
        *([words("skill.ignored", keys=ignored)] if ignored else []),
    ]


def _change(change: Change | None, words: Words) -> list[Block]:
    if change is None:
        return [Text(markdown=words("skill.changed_unknown"))]
    groups = {"added": change.added, "gone": change.gone, "altered": change.altered}
    rows = [
        words(f"skill.{key}", names=", ".join(f"`{_path(name)}`" for name in names[:_NAMES]))
        for key, names in groups.items()
        if names
    ]
    blocks: list[Block] = [Text(markdown="\n".join((f"**{words('skill.changes')}**", "", *rows)))]
    if change.diff:
        blocks.append(Code(text=formats.cut(_safe(change.diff), SHOWN), language="diff"))
    return blocks


def _head(text: str, words: Words) -> Collapsible:
    shown = _safe(text)[:SHOWN]
    title = words("skill.text")
    if len(text) > SHOWN:
        title = words("skill.text_part", shown=f"{SHOWN:,}", all=f"{len(text):,}")
    return Collapsible(title=title, blocks=(Code(text=shown, language="markdown"),))


def _asking(listed: Listed, words: Words, *, owner: bool) -> list[Block]:
    if not owner:
        return [Note(markdown=words("skill.only_owner"))]
    changed = listed.state is SkillState.CHANGED
    name, key = listed.skill.name, listed.skill.key
    enable, leave = (EnableSkill(name=name, hash=key, enable=each) for each in (True, False))
    buttons = (
        Button(label=words("skill.button.enable"), action=enable, style=ButtonStyle.PRIMARY),
        Button(label=words("skill.button.not_now"), action=leave),
    )
    asked = words("skill.ask")
    if changed:
        asked = f"{words('skill.ask_changed')}\n\n{asked}"
    return [Text(markdown=asked), Buttons(items=buttons)]


def _look(listed: Listed, words: Words) -> Button:
    name = listed.skill.name
    return Button(label=words("skill.button.look", name=name), action=ShowSkill(name=name))


def _lacks(lacks: Sequence[Lack], words: Words) -> list[str]:
    return [
        words(f"skill.lack.{each.key}", names=formats.verbatim(", ".join(each.names), _LINE))
        for each in lacks
    ]


def _notes(notes: Sequence[SkillNote], words: Words) -> list[str]:
    return [
        words(f"skill.note.{each.key}", detail=_path(formats.line(each.detail, _LINE)))
        for each in notes
    ]


def _path(path: str) -> str:
    """Fit to stand between backticks."""
    return formats.line(clean(path), 2 * _LINE).replace("`", "'")


def _safe(text: str) -> str:
    return without_overrides(clean(text))
