"""Coding CLIs for journeys: what fake ones are to do, as entries of agents.yaml."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.emulators.acp.fake_cli import AGENT_SCRIPT, result_reply

COMMAND = "npm publish"
PLAN = result_reply({"plan": "Build and publish.", "steps": [{"title": "Build it"}]})
PLAN_UPDATE = {
    "update": {
        "sessionUpdate": "plan",
        "entries": [
            {"content": "Look around", "status": "completed"},
            {"content": "Change the version", "status": "in_progress"},
        ],
    }
}
EDIT_UPDATE = {
    "update": {
        "sessionUpdate": "tool_call",
        "toolCallId": "edit-1",
        "title": "Edit package.json",
        "kind": "edit",
        "status": "completed",
        "content": [{"type": "diff", "path": "package.json", "oldText": "1.0", "newText": "1.1"}],
    }
}


def step_done(text: str) -> dict[str, Any]:
    return result_reply({"status": "done", "summary": text})


def agent_entry(*turns: Sequence[Mapping[str, Any]], **scenario: Any) -> dict[str, Any]:
    """An entry of agents.yaml: all that it needs is put into its home, as it is held in there."""
    return {
        "command": [
            "/bin/sh",
            "-c",
            'exec python3 -S -E "$HOME/agent.py" "$HOME/scenario.json"',
        ],
        "modes": {"plan": "plan", "execute": "default", "review": "plan"},
        "files": {
            "agent.py": AGENT_SCRIPT.read_text(),
            "scenario.json": json.dumps({"turns": [list(turn) for turn in turns], **scenario}),
        },
    }


def write_agents_file(home: Path, **agents: Mapping[str, Any]) -> Path:
    """A home where these are known."""
    home.mkdir(exist_ok=True)
    (home / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    return home
