"""Defines the port of versions of prompts and the search for better ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.records.evolution import CycleReport, EvolutionAnalysis, PromptInfo
from storage.records.people import Person
from storage.records.prompt_versions import PromptVersion, SignalRecord


class PromptVersionPort(Protocol):
    """Names are those of personas. Implementations must check in every change that `by` is an
    owner, and raise NotAllowed otherwise."""

    async def list_prompts(self) -> Sequence[PromptInfo]:
        """All prompts that may have versions, those that have some first."""

    async def find_prompt(self, name: str) -> PromptInfo | None: ...

    async def roll_back(self, name: str, *, by: Person) -> PromptVersion | None:
        """End the trial, or else return from the active version to the one before. Takes effect at
        once. Returns the version that is no longer used, None if there is none."""

    async def run_cycle(self, *, by: Person) -> CycleReport:
        """Look for signals and settle trials now. May call a model."""

    async def analyze(self) -> EvolutionAnalysis:
        """The latest tasks in figures; calls no model."""

    async def list_signals(self, limit: int) -> Sequence[SignalRecord]:
        """Those that fired last, newest first."""
