"""Habits of work that have names: what each means to who has it."""

from __future__ import annotations

from collections.abc import Mapping

TRAITS = (
    "code_style",
    "comments",
    "errors",
    "naming",
    "abstraction",
    "patterns",
    "documentation",
)

_MEANING: Mapping[str, Mapping[str, str]] = {
    "code_style": {
        "plain": "the shortest code that reads well; no cleverness",
        "layered": "clear modules with narrow interfaces between them",
        "polished": "consistent to the last line; nothing left half done",
        "guarded": "inputs checked at every border, least privilege",
        "scripted": "idempotent scripts, safe to run twice",
        "throwaway": "small experiments that answer one question",
    },
    "comments": {
        "none": "none, unless asked",
        "few": "only where the reason is not plain",
        "why": "reasons and decisions, never what the code says itself",
        "full": "every public part documented",
    },
    "errors": {
        "boundary": "handled where they enter; inside, let them rise",
        "every_path": "every path handled and tested",
        "fail_fast": "stop at the first doubt, with a clear message",
        "fail_safe": "refuse by default; never leak detail",
        "retry": "retry what passes, undo what does not",
    },
    "naming": {
        "short": "short and usual",
        "domain": "the words of the domain",
        "precise": "exact, even if longer",
    },
    "abstraction": {
        "low": "none before the third use",
        "medium": "where it removes real repetition",
        "high": "designed up front, behind interfaces",
    },
    "patterns": {
        "needed": "only where they make it simpler",
        "established": "the established ones, by name",
        "house": "those the project already has",
    },
    "documentation": {
        "short": "a few lines on how to use it",
        "decisions": "what was decided and why",
        "full": "complete, with examples",
        "findings": "a report of what was found, with places",
        "runbook": "steps to run, check and undo",
    },
}


def said(traits: Mapping[str, str]) -> str:
    """The traits as lines for a model. A value without a name is said as it is."""
    lines = [
        f"- {trait.replace('_', ' ')}: {_MEANING[trait].get(traits[trait], traits[trait])}"
        for trait in TRAITS
        if traits.get(trait)
    ]
    return "\n".join(["How you work:", *lines]) if lines else ""


def names_of(trait: str) -> tuple[str, ...]:
    return tuple(_MEANING[trait])
