"""What stood behind an answer, and memory in figures, on cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cards import formats
from cards.model import Block, Card, Collapsible, Fields, Note, Text, Tone
from cards.views.files import attached
from cards.views.memory.entries import entry_line
from cards.words import Words
from storage.records.memory.entries import Entry, Scope
from storage.records.memory.shown import Brought, CleanReport, MemoryStats, UsedEntry

_LINE = 140
_LISTED = 15


def why_card(used: Sequence[UsedEntry], words: Words) -> Card:
    title = words("memory.why_title")
    if not used:
        blocks: tuple[Block, ...] = (Text(markdown=words("memory.why_none")),)
    else:
        rows = "\n".join(_why_line(each, words) for each in used)
        blocks = (Text(markdown=rows), Note(markdown=words("memory.why_note")))
    return Card(title=title, tone=Tone.INFO, blocks=blocks, summary=title)


def stats_card(stats: MemoryStats, words: Words) -> Card:
    title = words("memory.stats_title")
    pairs = [*_counts(stats.by_kind, "kind", words), *_counts(stats.by_state, "state", words)]
    pairs += _scopes(stats.by_scope, words)
    jobs = f"{stats.jobs_waiting}, {stats.jobs_failed}"
    pairs.append((words("memory.label.jobs"), jobs))
    if stats.model:
        pairs.append((words("memory.label.vectors"), f"{stats.vectors} ({stats.model})"))
    for name, value in stats.quality.items():
        key = f"memory.quality.{name}"
        if words.has(key):
            told = f"{value:.0%}" if name == "suspicious" else f"{value:g}"
            pairs.append((words(key), told))
    fields = Fields(pairs=tuple(pairs))
    return Card(title=title, tone=Tone.INFO, blocks=(fields,), summary=title)


def clean_card(report: CleanReport, words: Words) -> Card:
    title = words("memory.clean_title")
    if not report.total:
        text = words("memory.clean_nothing")
        return Card(title=title, tone=Tone.INFO, blocks=(Text(markdown=text),), summary=title)
    text = (
        words("memory.clean_done", n=report.total, backup=report.backup)
        if report.done
        else words("memory.clean_would", n=report.total)
    )
    blocks: list[Block] = [Text(markdown=text)]
    for name in ("noise", "doubles", "weak"):
        entries: Sequence[Entry] = getattr(report, name)
        if entries:
            rows = "\n".join(entry_line(each, words) for each in entries[:_LISTED])
            head = f"{words(f'memory.label.{name}')} · {len(entries)}"
            blocks.append(Collapsible(title=head, blocks=(Text(markdown=rows),)))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def exported_card(path: str, size: int, n: int, words: Words) -> Card:
    title = words("memory.title")
    blocks = (Text(markdown=words("memory.exported", n=n)), attached(path, size))
    return Card(title=title, tone=Tone.INFO, blocks=blocks, summary=title)


def brought_card(brought: Brought, words: Words) -> Card:
    title = words("memory.title")
    told = words("memory.imported", added=brought.added, known=brought.known)
    blocks: list[Block] = [Text(markdown=told)]
    if brought.bad:
        lines = ", ".join(str(number) for number in list(brought.bad)[:_LISTED])
        text = words("memory.import_bad", n=len(brought.bad), lines=lines)
        blocks.append(Note(markdown=text))
    tone = Tone.WARN if brought.bad else Tone.GOOD
    return Card(title=title, tone=tone, blocks=tuple(blocks), summary=title)


def _why_line(used: UsedEntry, words: Words) -> str:
    mark = "✓" if used.confirmed else "·"
    block = words(f"memory.block.{used.block}")
    if used.entry is None:
        return f"- {mark} `{used.id}` {words('memory.why_gone')} *({block})*"
    told = formats.line(used.entry.text, _LINE)
    parts = ", ".join(_parts(used.parts, words))
    score = f", {used.score:.2f}" + (f": {parts}" if parts else "") if used.score else ""
    return f"- {mark} `{used.id}` {told} *({block}{score})*"


def _parts(parts: Mapping[str, float], words: Words) -> Iterator[str]:
    for name, value in parts.items():
        key = f"memory.part.{name}"
        yield f"{words(key) if words.has(key) else name} {value:.2f}"


def _counts(counts: Mapping[str, int], noun: str, words: Words) -> Iterator[tuple[str, str]]:
    for name, n in counts.items():
        yield words(f"memory.{noun}.{name}"), str(n)


def _scopes(counts: Mapping[str, int], words: Words) -> Iterator[tuple[str, str]]:
    for name, n in counts.items():
        scope = Scope.of(name)
        yield words(f"memory.scope.{scope.kind}", name=formats.line(scope.name, 60)), str(n)
