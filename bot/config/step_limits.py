"""Ranges of the limits of one step, wherever they are set: settings, personas, workflows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

TURNS_RANGE = 1, 500
TOKENS_RANGE = 1_000, 2_000_000
SECONDS_RANGE = 10, 86_400

StepTurns = Annotated[int, Field(ge=TURNS_RANGE[0], le=TURNS_RANGE[1])]
StepTokens = Annotated[int, Field(ge=TOKENS_RANGE[0], le=TOKENS_RANGE[1])]
StepSeconds = Annotated[float, Field(ge=SECONDS_RANGE[0], le=SECONDS_RANGE[1])]
