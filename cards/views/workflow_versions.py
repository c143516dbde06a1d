"""Cards of the versions of a named workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import RollBackWorkflow, ShowWorkflow, ShowWorkflowDiff
from cards.catalog import TextCatalog
from storage.records.prompt_versions import PromptVersion, VersionState, WorkflowVersions

_MAX_LISTED = 20
_MAX_NAME = 64
_MAX_AUTHOR = 60
_MAX_REASON = 160
_MAX_BUTTONS = 3


def workflow_versions_card(
    found: WorkflowVersions, words: TextCatalog, *, zone: ZoneInfo, owner: bool
) -> model.Card:
    lines = [
        f"- **{each.number}** {version_summary(found, each, words, zone)}"
        for each in found.versions[:_MAX_LISTED]
    ]
    blocks: list[model.Block] = [model.TextBlock("\n".join(lines))]
    more = len(found.versions) - _MAX_LISTED
    if more > 0:
        blocks.append(model.NoteBlock(words("workflows.left_out", n=more)))
    newest = found.versions[0]
    buttons = []
    if find_parent(found, newest) is not None:
        label = words("workflows.button.diff", n=newest.number)
        buttons.append(
            model.CardButton(label, ShowWorkflowDiff(name=found.name, number=newest.number))
        )
    if owner:
        earlier = [each for each in found.versions if can_roll_back(found, each)]
        buttons += [roll_back_button(found.name, each, words) for each in earlier[:_MAX_BUTTONS]]
    if buttons:
        blocks.append(model.ButtonsBlock(tuple(buttons)))
    blocks.append(model.NoteBlock(words("workflows.version.hint", name=found.name)))
    return model.titled_card(words("workflows.version.title", name=found.name), *blocks)


def version_summary(
    found: WorkflowVersions, version: PromptVersion, words: TextCatalog, zone: ZoneInfo
) -> str:
    """Its state, age and author, and why it was made, as Markdown."""
    parts = []
    if version.number == found.in_use:
        parts.append(words("prompt.state.active"))
    elif version.state in {VersionState.DRAFT, VersionState.TRIAL}:
        parts.append(words(f"prompt.state.{version.state}"))
    elif version.end_reason and version.end_reason != "replaced":
        parts.append(words(f"workflows.version.end.{version.end_reason}"))
    parts.append(formats.date_time(version.created_at, zone))
    parts.append(formats.escape_markdown(version_author(found, version, words), _MAX_AUTHOR))
    if restored := version.signal.get("restored"):
        parts.append(words("workflows.version.restored", n=restored))
    if version.reason:
        parts.append(formats.escape_markdown(version.reason, _MAX_REASON))
    return " · ".join(parts)


def version_author(found: WorkflowVersions, version: PromptVersion, words: TextCatalog) -> str:
    """The author, and the place where the text was saved."""
    via = str(version.signal.get("via", ""))
    key = f"workflows.version.via.{via}"
    place = words(key) if words.has(key) else ""
    author = "" if version.author == via else found.authors.get(version.author, version.author)
    if words.has(f"workflows.version.via.{author}"):
        author = words(f"workflows.version.via.{author}")
    return (
        words("workflows.version.by", author=author, place=place)
        if author and place
        else (author or place)
    )


def find_parent(found: WorkflowVersions, version: PromptVersion) -> tuple[int, str] | None:
    """The version that it was made from by number and text, None if that is not kept."""
    parent = found.find(version.parent)
    if parent is not None:
        return parent.number, parent.content
    return (version.parent, version.parent_content) if version.parent_content else None


def can_roll_back(found: WorkflowVersions, version: PromptVersion) -> bool:
    return version.number != found.in_use and version.state not in {
        VersionState.SAVING,
        VersionState.WRITTEN,
        VersionState.ACTIVE,
    }


def roll_back_button(name: str, version: PromptVersion, words: TextCatalog) -> model.CardButton:
    return model.CardButton(
        words("workflows.button.roll_back", n=version.number),
        RollBackWorkflow(name=name, number=version.number),
        confirm=model.ConfirmDialog(
            words("workflows.version.ask_title", name=name, n=version.number),
            words("workflows.version.ask_text"),
        ),
    )


def workflow_rolled_back_card(
    name: str, number: int, newest: int, words: TextCatalog
) -> model.Card:
    text = words("workflows.version.rolled_back", name=name, n=number, newest=newest)
    items = (model.CardButton(words("workflows.button.show"), ShowWorkflow(name=name)),)
    return model.Card(
        tone=model.CardTone.GOOD,
        blocks=(model.TextBlock(text), model.ButtonsBlock(items)),
        summary=formats.single_line(text, 200),
    )


def versions_data(found: WorkflowVersions) -> Mapping[str, Any]:
    return {
        "name": found.name,
        "in_use": found.in_use,
        "versions": [
            {
                "number": each.number,
                "state": each.state.value,
                "parent": each.parent,
                "author": found.authors.get(each.author, each.author),
                "via": str(each.signal.get("via", "")),
                "restored": each.signal.get("restored"),
                "reason": each.reason,
                "ended": each.end_reason,
                "created_at": each.created_at.isoformat(),
            }
            for each in found.versions
        ],
    }
