"""Memory in figures, and what became of it as a whole, on cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cards import formats
from cards.memory_actions import CleanMemory
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Collapsible,
    Confirm,
    Fields,
    Note,
    Text,
    Tone,
)
from cards.views.files import attached
from cards.views.memory.lines import entry_line
from cards.words import Words
from storage.records.memory.entries import Entry, Scope
from storage.records.memory.shown import BadLine, Brought, CleanReport, MemoryStats

_LISTED = 15
_NAME = 60


def stats_card(stats: MemoryStats, words: Words) -> Card:
    total = sum(stats.by_kind.values())
    pairs = [
        (words("memory.label.total"), str(total)),
        (words("memory.label.kind"), _listed(_counts(stats.by_kind, "kind", words))),
        (words("memory.label.state"), _listed(_counts(stats.by_state, "state", words))),
        (words("memory.label.scope"), _listed(_scopes(stats.by_scope, words))),
        (words("memory.label.waiting"), str(stats.jobs_waiting or "")),
        (words("memory.label.failed"), str(stats.jobs_failed or "")),
    ]
    if stats.model:
        pairs.append((words("memory.label.vectors"), f"{stats.vectors} ({stats.model})"))
    blocks: list[Block] = [Fields(pairs=tuple((name, told) for name, told in pairs if told))]
    quality = tuple(_quality(stats.quality, words))
    if quality:
        title = words("memory.quality.title")
        blocks.append(Collapsible(title=title, blocks=(Fields(pairs=quality),)))
    return _card(words("memory.stats_title"), blocks)


def clean_card(report: CleanReport, words: Words) -> Card:
    title = words("memory.clean_title")
    gone = report.total + report.before
    if not gone:
        return _card(title, [Text(markdown=words("memory.clean_nothing"))])
    text = (
        words("memory.clean_done", n=gone, backup=report.backup)
        if report.done
        else words("memory.clean_would", n=report.total)
    )
    blocks: list[Block] = [Text(markdown=text)]
    for name in ("noise", "doubles", "weak"):
        entries: Sequence[Entry] = getattr(report, name)
        if entries:
            rows = "\n".join(f"- {entry_line(each, words)}" for each in entries[:_LISTED])
            head = f"{words(f'memory.label.{name}')} · {len(entries)}"
            blocks.append(Collapsible(title=head, blocks=(Text(markdown=rows),)))
    if report.before:
        blocks.append(Note(markdown=words("memory.clean_before", n=report.before)))
    if not report.done:
        blocks.append(Buttons(items=(_clean(report, words),)))
    return _card(title, blocks)


def _clean(report: CleanReport, words: Words) -> Button:
    return Button(
        label=words("memory.button.clean"),
        action=CleanMemory(),
        style=ButtonStyle.DANGER,
        confirm=Confirm(
            title=words("memory.clean_title"), text=words("memory.clean_sure", n=report.total)
        ),
    )


def exported_card(path: str, size: int, n: int, words: Words) -> Card:
    title = words("memory.title")
    return _card(title, [Text(markdown=words("memory.exported", n=n)), attached(path, size)])


def brought_card(brought: Brought, words: Words) -> Card:
    title = words("memory.import_title")
    blocks: list[Block] = [Text(markdown=words("memory.imported", n=brought.added))]
    if brought.known:
        blocks.append(Note(markdown=words("memory.import_known", n=brought.known)))
    if brought.left:
        blocks.append(Note(markdown=words("memory.import_left", n=brought.left)))
    if brought.bad:
        lines = " · ".join(_unread(brought.bad, words))
        text = words("memory.import_bad", n=len(brought.bad), lines=lines)
        blocks.append(Note(markdown=text))
    tone = Tone.WARN if brought.bad else Tone.GOOD
    return Card(title=title, tone=tone, blocks=tuple(blocks), summary=title)


def _unread(bad: Mapping[int, BadLine], words: Words) -> Iterator[str]:
    """Their numbers, by what is wrong with them."""
    for why in dict.fromkeys(bad.values()):
        lines = [str(number) for number, each in bad.items() if each is why]
        told = ", ".join(lines[:_LISTED]) + (" …" if len(lines) > _LISTED else "")
        yield words(f"memory.bad_line.{why}", lines=told)


def _card(title: str, blocks: Sequence[Block]) -> Card:
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def _listed(counts: Iterator[tuple[str, int]]) -> str:
    return " · ".join(f"{name} {n}" for name, n in sorted(counts, key=lambda each: -each[1]))


def _counts(counts: Mapping[str, int], noun: str, words: Words) -> Iterator[tuple[str, int]]:
    for name, n in counts.items():
        yield words(f"memory.{noun}.{name}"), n


def _scopes(counts: Mapping[str, int], words: Words) -> Iterator[tuple[str, int]]:
    for name, n in counts.items():
        scope = Scope.of(name)
        yield words(f"memory.scope.{scope.kind}", name=formats.line(scope.name, _NAME)), n


def _quality(quality: Mapping[str, float], words: Words) -> Iterator[tuple[str, str]]:
    """What has not happened is not listed."""
    for name, value in quality.items():
        key = f"memory.quality.{name}"
        if value and words.has(key):
            yield words(key), f"{value:.0%}" if name == "suspicious" else f"{value:g}"
