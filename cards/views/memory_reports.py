"""Renders memory statistics, reports of cleanups and imports, and the memories used in answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from cards.memory_actions import CleanMemory, MarkMemoriesHelpful, ShowMemory
from cards.views.memory import entry_line, entry_text, folded_rows
from storage.records import memory
from storage.records.memory import MemoryEntry, MemoryKind, MemoryScope
from storage.records.memory_evidence import QUOTE_KEY, EntityEntries

_MAX_LINE = 140
_MAX_USED = 20
_HANDBOOK = "handbook"
_OFFLINE = "offline"
_SEARCHED = "similar"
_BLOCK_ORDER = (_SEARCHED, "recent")


def answer_memories_card(
    usage: memory.AnswerMemories,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    marked_helpful: bool = False,
) -> model.Card:
    """The memories used in one answer. `marked_helpful`: they were just marked as helpful."""
    at = formats.date_time(usage.at, zone) if usage.at else ""
    if key := _unavailable_reason(usage):
        return model.titled_card(words("memory.why_title"), model.TextBlock(words(key, at=at)))
    blocks: list[model.Block] = (
        [model.TextBlock(words("memory.why_thanks"))] if marked_helpful else []
    )
    blocks += _used_blocks(usage, words, helped=_helpful_action(usage))
    blocks.append(model.NoteBlock(words("memory.why_note", at=at)))
    return model.titled_card(words("memory.why_title"), *blocks)


def task_memories_card(
    usage: memory.AnswerMemories, task: str, words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """The memories used in all answers of a task."""
    title = words("memory.why_task_title", task=formats.single_line(task, _MAX_LINE))
    if usage.at is None:
        return model.titled_card(title, model.TextBlock(words("memory.why_task_none")))
    blocks = list(_used_blocks(usage, words, helped=None))
    at = formats.date_time(usage.at, zone)
    blocks.append(model.NoteBlock(words("memory.why_task_note", at=at)))
    return model.titled_card(title, *blocks)


def _unavailable_reason(memories: memory.AnswerMemories) -> str:
    if memories.at is None:
        return "memory.why_no_answer"
    if memories.backend == _OFFLINE:
        return "memory.why_offline"
    return "" if memories.used or memories.hidden_count else "memory.why_none"


def _helpful_action(memories: memory.AnswerMemories) -> MarkMemoriesHelpful | None:
    """None if nothing was found by search or all of it is already confirmed."""
    open_ones = (
        each
        for each in memories.used
        if each.entry is not None and each.block == _SEARCHED and not each.confirmed
    )
    if not any(open_ones):
        return None
    return MarkMemoriesHelpful(session=memories.session, turn=memories.turn)


def _used_blocks(
    memories: memory.AnswerMemories, words: TextCatalog, *, helped: MarkMemoriesHelpful | None
) -> Iterator[model.Block]:
    """Search results first, those used before others. The handbook is part of every answer, so it
    is folded."""
    others = [each for each in memories.used if each.block != _HANDBOOK]
    others.sort(key=_used_order)
    handbook = [each for each in memories.used if each.block == _HANDBOOK]
    first, rest = others[:_MAX_USED], others[_MAX_USED:]
    if first or not memories.hidden_count:
        rows = (f"{n}. {_used_line(each, words)}" for n, each in enumerate(first, 1))
        yield model.TextBlock("\n".join(rows) or words("memory.why_book"))
    yield from folded_rows(
        words("memory.later", n=len(rest)), [_used_line(each, words) for each in rest]
    )
    if helped is not None:
        yield model.ButtonsBlock((model.CardButton(words("memory.button.helped"), helped),))
    yield from _correction_select(first, words)
    title = f"{words('memory.wanted.handbook')} · {len(handbook)}"
    yield from folded_rows(title, [_used_line(each, words) for each in handbook])
    if memories.hidden_count:
        yield model.NoteBlock(words("memory.why_hidden", n=memories.hidden_count))


def _used_order(used: memory.UsedMemory) -> tuple[int, bool]:
    block = _BLOCK_ORDER.index(used.block) if used.block in _BLOCK_ORDER else len(_BLOCK_ORDER)
    return block, not used.confirmed


def _correction_select(
    used: Sequence[memory.UsedMemory], words: TextCatalog
) -> Iterator[model.SelectBlock]:
    options = tuple(
        model.SelectOption(str(number), each.id)
        for number, each in enumerate(used, 1)
        if each.entry is not None
    )
    if options:
        placeholder = words("memory.why_wrong")
        yield model.SelectBlock(placeholder=placeholder, action=ShowMemory(), options=options)


def _used_line(used: memory.UsedMemory, words: TextCatalog) -> str:
    mark = "✓ " if used.confirmed else ""
    block = words(f"memory.block.{used.block}")
    if used.entry is None:
        return f"{mark}{words('memory.why_gone')} · *{block}* `{used.id}`"
    text = entry_text(used.entry, words, _MAX_LINE)
    parts = ", ".join(_score_parts(used, words))
    score = f" · {used.score:.2f}" + (f" ({parts})" if parts else "") if used.score else ""
    return f"{mark}{text} · *{block}{score}* `{used.id}`"


def _score_parts(used: memory.UsedMemory, words: TextCatalog) -> Iterator[str]:
    """The components of the score, except one that equals it."""
    for name, value in used.parts.items():
        key = f"memory.part.{name}"
        if value != used.score:
            yield f"{words(key) if words.has(key) else name} {value:.2f}"


_MAX_LISTED = 15
_MAX_NAME = 60


def memory_stats_card(stats: memory.MemoryStats, words: TextCatalog) -> model.Card:
    total = sum(stats.by_kind.values())
    pairs = [
        (words("memory.label.total"), str(total)),
        (words("memory.label.kind"), _counts_text(_named_counts(stats.by_kind, "kind", words))),
        (words("memory.label.state"), _counts_text(_named_counts(stats.by_state, "state", words))),
        (words("memory.label.scope"), _counts_text(_scope_counts(stats.by_scope, words))),
        (words("memory.label.waiting"), str(stats.jobs_waiting or "")),
        (words("memory.label.failed"), str(stats.jobs_failed or "")),
    ]
    if stats.embedding_model:
        pairs.append((words("memory.label.vectors"), f"{stats.vectors} ({stats.embedding_model})"))
    blocks: list[model.Block] = [
        model.FieldsBlock(tuple((name, text) for name, text in pairs if text))
    ]
    quality = tuple(_quality_pairs(stats.quality, words))
    if quality:
        title = words("memory.quality.title")
        blocks.append(model.CollapsibleBlock(title, (model.FieldsBlock(quality),)))
    return model.titled_card(words("memory.stats_title"), *blocks)


def memory_cleanup_card(report: memory.MemoryCleanReport, words: TextCatalog) -> model.Card:
    title = words("memory.clean_title")
    gone = report.total + report.removed_before
    if not gone:
        return model.titled_card(title, model.TextBlock(words("memory.clean_nothing")))
    text = (
        words("memory.clean_done", n=gone, backup=report.backup)
        if report.done
        else words("memory.clean_would", n=report.total)
    )
    blocks: list[model.Block] = [model.TextBlock(text)]
    for name in ("noise", "doubles", "weak"):
        entries: Sequence[MemoryEntry] = getattr(report, name)
        head = f"{words(f'memory.label.{name}')} · {len(entries)}"
        blocks += folded_rows(head, [entry_line(each, words) for each in entries[:_MAX_LISTED]])
    if report.removed_before:
        blocks.append(model.NoteBlock(words("memory.clean_before", n=report.removed_before)))
    if not report.done:
        blocks.append(model.ButtonsBlock((_cleanup_button(report, words),)))
    return model.titled_card(title, *blocks)


def _cleanup_button(report: memory.MemoryCleanReport, words: TextCatalog) -> model.CardButton:
    return model.CardButton(
        words("memory.button.clean"),
        CleanMemory(),
        style=model.ButtonStyle.DANGER,
        confirm=model.ConfirmDialog(
            words("memory.clean_title"), words("memory.clean_sure", n=report.total)
        ),
    )


def memory_export_card(path: str, size: int, n: int, words: TextCatalog) -> model.Card:
    title = words("memory.title")
    return model.titled_card(
        title, model.TextBlock(words("memory.exported", n=n)), model.file_block(path, size)
    )


def memory_import_card(result: memory.MemoryImportReport, words: TextCatalog) -> model.Card:
    blocks: list[model.Block] = [model.TextBlock(words("memory.imported", n=result.added))]
    if result.already_known:
        blocks.append(model.NoteBlock(words("memory.import_known", n=result.already_known)))
    if result.left_out:
        blocks.append(model.NoteBlock(words("memory.import_left", n=result.left_out)))
    if result.line_errors:
        lines = " · ".join(_bad_line_texts(result.line_errors, words))
        text = words("memory.import_bad", n=len(result.line_errors), lines=lines)
        blocks.append(model.NoteBlock(text))
    tone = model.CardTone.WARN if result.line_errors else model.CardTone.GOOD
    return model.titled_card(words("memory.import_title"), *blocks, tone=tone)


def _bad_line_texts(bad: Mapping[int, memory.ImportLineError], words: TextCatalog) -> Iterator[str]:
    """Line numbers, grouped by error."""
    for why in dict.fromkeys(bad.values()):
        lines = [str(number) for number, each in bad.items() if each is why]
        numbers = ", ".join(lines[:_MAX_LISTED]) + (" …" if len(lines) > _MAX_LISTED else "")
        yield words(f"memory.bad_line.{why}", lines=numbers)


def _counts_text(counts: Iterator[tuple[str, int]]) -> str:
    return " · ".join(f"{name} {n}" for name, n in sorted(counts, key=lambda each: -each[1]))


def _named_counts(
    counts: Mapping[str, int], noun: str, words: TextCatalog
) -> Iterator[tuple[str, int]]:
    for name, n in counts.items():
        yield words(f"memory.{noun}.{name}"), n


def _scope_counts(counts: Mapping[str, int], words: TextCatalog) -> Iterator[tuple[str, int]]:
    for name, n in counts.items():
        scope = MemoryScope.parse(name)
        yield (
            words(f"memory.scope.{scope.kind}", name=formats.single_line(scope.name, _MAX_NAME)),
            n,
        )


def _quality_pairs(quality: Mapping[str, float], words: TextCatalog) -> Iterator[tuple[str, str]]:
    """Figures above zero."""
    for name, value in quality.items():
        key = f"memory.quality.{name}"
        if value and words.has(key):
            yield words(key), f"{value:.0%}" if name == "suspicious" else f"{value:g}"


_MAX_SHOWN = 12
_MAX_QUOTE = 120


def memory_about_card(
    groups: Sequence[EntityEntries], name: str, words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """Entries grouped by bearer of the name. Facts show the words that they rest on; turns are
    folded."""
    name = formats.single_line(name, _MAX_NAME)
    title = words("memory.searched", query=name)
    if not groups:
        text = words("memory.not_found", query=formats.escape_markdown(name, _MAX_NAME))
        return model.titled_card(title, model.TextBlock(text))
    blocks: list[model.Block] = []
    if len(groups) > 1:
        text = words("memory.several_called", name=formats.escape_markdown(name, _MAX_NAME))
        blocks.append(model.TextBlock(text))
    for group in groups:
        blocks += _group_blocks(group, words, zone, alone=len(groups) == 1)
    told = [each.description for each in groups if each.description]
    if len(told) > 1:
        example = formats.code_text(f"/memory about {name} {told[0]}", 2 * _MAX_NAME)
        blocks.append(model.NoteBlock(words("memory.which_called", example=example)))
    return model.titled_card(title, *blocks)


def _group_blocks(
    group: EntityEntries, words: TextCatalog, zone: ZoneInfo, *, alone: bool
) -> Iterator[model.Block]:
    if group.description or not alone:
        shown = formats.escape_markdown(group.description, _MAX_NAME)
        yield model.TextBlock(f"**{shown or words('memory.unclear_called')}**")
    facts = [each for each in group.entries if each.kind is not MemoryKind.CELL]
    turns = [each for each in group.entries if each.kind is MemoryKind.CELL]
    if facts:
        lines = (f"- {_fact_line(each, words, zone)}" for each in facts[:_MAX_SHOWN])
        yield model.TextBlock("\n".join(lines))
    rest = [entry_line(each, words, zone=zone) for each in facts[_MAX_SHOWN:]]
    yield from folded_rows(words("memory.later", n=len(rest)), rest)
    said = [entry_line(each, words, zone=zone) for each in turns[:_MAX_SHOWN]]
    yield from folded_rows(words("memory.about_turns", n=len(turns)), said)


def _fact_line(entry: MemoryEntry, words: TextCatalog, zone: ZoneInfo) -> str:
    quote = entry.extra.get(QUOTE_KEY)
    day = formats.date_time(entry.said_at, zone)
    source = f" · {day}"
    if quote:
        source += f" “{formats.escape_markdown(str(quote), _MAX_QUOTE)}”"
    return entry_line(entry, words, zone=zone) + source
