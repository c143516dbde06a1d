"""What is asked of a model, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bot.engine.agent.account import Account
from bot.engine.agent.budget import Purse
from bot.engine.llm.base import Limits, McpServer, Mode, Picture, Purpose, RunResult, Tool
from bot.engine.llm.calls import Permission, Permit
from storage.records.people import Language
from storage.records.workers.spans import ModelCall
from storage.sessions import Session
from storage.usage import Bill


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is wanted of the model. `facts` are what the prompt was made from; `parent` is the
    span under which it is asked."""

    purpose: Purpose
    prompt: str
    system: str
    language: Language
    account: Account
    facts: Mapping[str, Any]
    workspace: Path | None = None
    pictures: tuple[Picture, ...] = ()
    tools: tuple[Tool, ...] = ()
    result: type[BaseModel] | None = None
    limits: Limits = field(default_factory=Limits)
    mode: Mode = Mode.EXECUTE
    permit: Permit | None = None
    answers: Mapping[str, Permission] = field(default_factory=dict)
    servers: tuple[McpServer, ...] = ()
    goes_on: str | None = None
    """Said instead of `prompt` where the session stopped in the middle of this very thing."""
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of it. Nothing of a reply is kept until it is booked. `answered` says that its
    run began with the answers its session waited for."""

    result: RunResult
    session: Session
    bill: Bill
    purse: Purse | None = None
    answered: bool = False
    span: ModelCall | None = None
