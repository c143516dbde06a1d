"""Renders cards about versions of prompts, their trials, and the signals that led to them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.prompt_versions import (
    ORIGINAL,
    CycleReport,
    EvolutionAnalysis,
    EvolutionMode,
    PromptInfo,
    PromptVersion,
    SignalRecord,
    TrialArm,
    TrialFigures,
    TrialVerdict,
    VersionState,
)

_MAX_TEXT = 6_000
_MAX_REASON = 400
_MAX_VERSIONS = 10
_MAX_NAME = 80


def prompts_card(prompts: Sequence[PromptInfo], words: TextCatalog) -> model.Card:
    lines = [_prompt_line(each, words) for each in prompts]
    return model.titled_card(
        words("prompt.list_title"),
        model.TextBlock("\n".join(lines) or words("prompt.none")),
        model.NoteBlock(words("prompt.list_note")),
    )


def prompt_card(prompt: PromptInfo, words: TextCatalog, *, zone: ZoneInfo) -> model.Card:
    """The text in effect, with the versions it had."""
    number = prompt.number
    blocks: list[model.Block] = [
        model.TextBlock(_number_text(number, words)),
        model.CodeBlock(formats.truncate(formats.show_exactly(prompt.content), _MAX_TEXT)),
    ]
    if prompt.figures is not None:
        blocks.append(
            model.TextBlock("\n".join(figures_lines(figures_data(prompt.figures), words)))
        )
    newest = list(prompt.versions)[-_MAX_VERSIONS:]
    if lines := [_version_line(each, words, zone) for each in reversed(newest)]:
        blocks.append(model.TextBlock("\n".join(lines)))
    name = formats.single_line(prompt.label, _MAX_NAME)
    return model.titled_card(words("prompt.show_title", name=name), *blocks)


def prompt_diff_card(
    name: str, old: tuple[int, str], new: tuple[int, str], words: TextCatalog
) -> model.Card:
    """The change from one version to another, each given by number and text."""
    lines = difflib.unified_diff(
        old[1].splitlines(),
        new[1].splitlines(),
        f"{name} {old[0]}",
        f"{name} {new[0]}",
        "",
        "",
        2,
        "",
    )
    text = formats.truncate(formats.show_exactly("\n".join(lines)), _MAX_TEXT)
    block: model.Block = model.CodeBlock(text, language="diff")
    if not text:
        block = model.TextBlock(words("prompt.same"))
    title = words("prompt.diff_title", name=formats.single_line(name, _MAX_NAME))
    return model.titled_card(title, block)


def rolled_back_card(version: PromptVersion, words: TextCatalog) -> model.Card:
    text = words(f"prompt.rolled_back_{_kind_of(version)}", **_version_facts(version))
    return model.titled_card(
        words("prompt.rolled_back_title"), model.TextBlock(text), tone=model.CardTone.GOOD
    )


def version_retired_card(
    version: PromptVersion, reason: str, figures: TrialFigures | None, words: TextCatalog
) -> model.Card:
    """Tells owners that a version was retired automatically."""
    return model.titled_card(
        words("prompt.retired_title", **_version_facts(version)),
        model.TextBlock(words(f"prompt.end.{reason}")),
        *_figures_blocks(figures, words),
        model.NoteBlock(words("prompt.notice_note", name=version.ref.label)),
        tone=model.CardTone.WARN,
    )


def version_adopted_card(
    version: PromptVersion, figures: TrialFigures, words: TextCatalog
) -> model.Card:
    return model.titled_card(
        words("prompt.adopted_title", **_version_facts(version)),
        model.TextBlock(words("prompt.adopted")),
        *_figures_blocks(figures, words),
        model.NoteBlock(words("prompt.adopted_note", name=version.ref.label)),
        tone=model.CardTone.GOOD,
    )


def change_notes(payload: Mapping[str, Any], words: TextCatalog) -> list[model.Block]:
    """The reason and the figures of a change that waits for an owner."""
    lines = []
    if stage := str(payload.get("stage", "")):
        lines.append(words(f"prompt.ask_{stage}", share=int(payload.get("share", 0))))
    if reason := str(payload.get("reason", "")):
        said = formats.escape_markdown(formats.single_line(reason, _MAX_REASON), _MAX_REASON)
        lines.append(words("prompt.reason", reason=said))
    signal = payload.get("signal") or {}
    if kind := str(signal.get("kind", "")):
        facts = {"hits": signal.get("hits", 0), "window": signal.get("window", 0)}
        lines.append(words("prompt.signal", what=words(f"evolve.signal.{kind}"), **facts))
    if figures := payload.get("figures"):
        lines += figures_lines(figures, words)
    return [model.TextBlock("\n\n".join(lines))] if lines else []


def figures_data(figures: TrialFigures) -> Mapping[str, Any]:
    """The figures as plain values, as a request keeps them."""
    return {"trial": _arm_data(figures.trial), "control": _arm_data(figures.control)}


def figures_lines(data: Mapping[str, Any], words: TextCatalog) -> list[str]:
    return [
        words(
            f"prompt.figures_{side}",
            good=data[side]["successes"],
            n=data[side]["tasks"],
            cost=formats.money(int(data[side]["micros"])),
            time=formats.duration(timedelta(seconds=float(data[side]["seconds"])), words),
        )
        for side in ("trial", "control")
    ]


def cycle_card(report: CycleReport, words: TextCatalog) -> model.Card:
    if report.mode is EvolutionMode.OFF:
        return model.notice_card(words("evolve.title"), words("evolve.off"))
    lines = [words("evolve.looked_at", n=report.tasks, good=report.succeeded)]
    lines += [signal_line(each, words) for each in report.signals] or [words("evolve.nothing")]
    lines += [_settled_line(version, verdict, words) for version, verdict in report.settled]
    return model.titled_card(words("evolve.title"), model.TextBlock("\n".join(lines)))


def analysis_card(analysis: EvolutionAnalysis, words: TextCatalog) -> model.Card:
    if not analysis.tasks:
        return model.notice_card(words("evolve.analysis_title"), words("evolve.no_tasks"))
    facts = (
        (words("evolve.tasks"), f"{analysis.succeeded} / {analysis.tasks}"),
        (words("evolve.mean_cost"), formats.money(round(analysis.mean_micros))),
        (
            words("evolve.mean_time"),
            formats.duration(timedelta(seconds=analysis.mean_seconds), words),
        ),
    )
    problems = [
        words("evolve.problem", what=words(f"evolve.signal.{kind}"), n=count)
        for kind, count in analysis.signals.items()
    ]
    slow = [
        words(
            "evolve.slow_step",
            step=_code(step),
            time=formats.duration(timedelta(seconds=seconds), words),
        )
        for step, seconds in analysis.slow_steps
    ]
    return model.titled_card(
        words("evolve.analysis_title"),
        model.FieldsBlock(facts),
        model.TextBlock("\n".join(problems) or words("evolve.no_problems")),
        *([model.TextBlock("\n".join([words("evolve.slow_steps"), *slow]))] if slow else []),
    )


def signals_card(
    signals: Sequence[SignalRecord], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    lines = [
        f"- {formats.date_time(each.fired_at, zone)} {signal_line(each, words).removeprefix('- ')}"
        for each in signals
    ]
    return model.titled_card(
        words("evolve.history_title"), model.TextBlock("\n".join(lines) or words("evolve.none_yet"))
    )


def signal_line(signal: SignalRecord, words: TextCatalog) -> str:
    """One signal with its figures and its outcome."""
    what = words(
        "evolve.fired",
        what=words(f"evolve.signal.{signal.kind}"),
        hits=signal.figures.get("hits", 0),
        window=signal.figures.get("window", 0),
    )
    name = f" · {_code(signal.name)}" if signal.name else ""
    key = f"evolve.note.{signal.note}"
    note = words(key) if words.has(key) else formats.escape_markdown(signal.note, _MAX_REASON)
    outcome = words(f"evolve.outcome.{signal.outcome}")
    return f"- {what}{name}: {outcome}" + (f" ({note})" if note else "")


def prompt_data(prompt: PromptInfo) -> Mapping[str, Any]:
    return {
        "name": prompt.label,
        "kind": prompt.ref.kind.value,
        "active": prompt.number,
        "content": prompt.content,
        "trial": None if prompt.figures is None else figures_data(prompt.figures),
        "versions": [
            {
                "number": each.number,
                "state": each.state.value,
                "parent": each.parent,
                "author": each.author,
                "reason": each.reason,
                "ended": each.end_reason,
                "created_at": each.created_at.isoformat(),
            }
            for each in prompt.versions
        ],
    }


def signal_data(signal: SignalRecord) -> Mapping[str, Any]:
    return {
        "kind": signal.kind.value,
        "name": signal.name,
        "figures": dict(signal.figures),
        "outcome": signal.outcome.value,
        "note": signal.note,
        "fired_at": signal.fired_at.isoformat(),
    }


def _settled_line(version: PromptVersion, verdict: TrialVerdict, words: TextCatalog) -> str:
    return words(f"evolve.settled.{verdict}", **_version_facts(version))


def _prompt_line(prompt: PromptInfo, words: TextCatalog) -> str:
    name = _code(prompt.label)
    parts = [_number_text(prompt.number, words)]
    if prompt.open is not None:
        state = words(f"prompt.state.{prompt.open.state}")
        parts.append(words("prompt.line_open", n=prompt.open.number, state=state))
    return f"- {name}: {' · '.join(parts)}"


def _version_line(version: PromptVersion, words: TextCatalog, zone: ZoneInfo) -> str:
    state = words(f"prompt.state.{version.state}")
    reason = formats.escape_markdown(formats.single_line(version.reason, 160), 160)
    at = formats.date_time(version.created_at, zone)
    line = words("prompt.version_line", n=version.number, state=state, at=at, reason=reason)
    if version.state is VersionState.RETIRED and version.end_reason:
        line += f" {words(f'prompt.end.{version.end_reason}')}"
    return line


def _code(text: str) -> str:
    return f"`{formats.code_text(text, _MAX_NAME)}`"


def _number_text(number: int, words: TextCatalog) -> str:
    return words("prompt.as_written") if number == ORIGINAL else words("prompt.number", n=number)


def _kind_of(version: PromptVersion) -> str:
    return "trial" if version.state.is_open else "active"


def _version_facts(version: PromptVersion) -> dict[str, object]:
    return {"name": formats.single_line(version.ref.label, _MAX_NAME), "n": version.number}


def _figures_blocks(figures: TrialFigures | None, words: TextCatalog) -> list[model.Block]:
    if figures is None:
        return []
    return [model.TextBlock("\n".join(figures_lines(figures_data(figures), words)))]


def _arm_data(arm: TrialArm) -> Mapping[str, Any]:
    return {
        "tasks": arm.tasks,
        "successes": arm.successes,
        "micros": round(arm.mean_micros),
        "seconds": round(arm.mean_seconds, 1),
    }
