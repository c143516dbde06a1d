"""What a tool said, made fit for a model: without secrets, and of a length that it can read."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.engine.llm import workspace as folder
from bot.engine.llm.base import Tool

MOST = 30_000
"""Characters of one output that a model reads."""

_HEAD = MOST // 3
# A tool that keeps to the limit by itself adds a line or two of its own.
_SPARE = 2_000
_LARGEST = 20_000_000
_NOTE = "[•••• stands for a secret that was taken out here: do not write it back]"


def guarded(tool: Tool, workspace: Path, mask: Callable[[str], str]) -> Tool:
    """The same tool: its output is masked and then capped, what people are shown of it masked."""

    async def run(arguments: Mapping[str, Any]) -> str:
        told = await tool.run(arguments)
        return await asyncio.to_thread(fit, told, workspace, tool.name, mask)

    async def detail(arguments: Mapping[str, Any]) -> str:
        told = await tool.detail(arguments) if tool.detail else ""
        return await asyncio.to_thread(mask, told)

    return replace(tool, run=run, detail=detail if tool.detail else None)


def fit(told: str, workspace: Path, name: str, mask: Callable[[str], str]) -> str:
    """Blocking."""
    masked = mask(told)
    shown = capped(masked, workspace, name)
    return shown if masked == told else f"{shown}\n{_NOTE}"


def capped(text: str, workspace: Path, name: str) -> str:
    """Beginning and end of what is too long, and where the whole of it is. Blocking."""
    if len(text) <= MOST + _SPARE:
        return text
    kept = _kept(text, workspace, name)
    left_out = len(text) - MOST
    note = f"\n[… {left_out} characters are left out here; {kept}]\n"
    return f"{text[:_HEAD]}{note}{text[_HEAD - MOST :]}"


def _kept(text: str, workspace: Path, name: str) -> str:
    data = text.encode("utf-8", "replace")
    digest = hashlib.sha256(data).hexdigest()[:10]
    try:
        folder.write_text(workspace, f"{folder.OURS}/.gitignore", "*\n")
        path = folder.write_bytes(
            workspace, f"{folder.OURS}/{name}-{digest}.txt", data, limit=_LARGEST
        )
    except (folder.PathRefused, OSError):
        return "they could not be kept"
    return f"the whole of it is in {path}"
