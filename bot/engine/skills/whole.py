"""All that a skill's files say, in one file: what an owner reads before letting it in. Blocking."""

from __future__ import annotations

import os
from pathlib import Path

from bot.engine.skills.folder import Contents
from cards.model import File
from storage.records.workers.skills import Skill

FOLDER = "files/skills"
"""In the data directory; one file for each hash that was looked at."""


def written_out(home: Path, skill: Skill, contents: Contents) -> File:
    """Raises OSError. Written once for a hash, in place whole."""
    name = f"{skill.name}.md"
    path = f"{FOLDER}/{contents.hash[:32]}/{name}"
    data = b"".join(_told(contents))
    target = home / path
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{os.urandom(4).hex()}.part")
    temporary.write_bytes(data)
    temporary.replace(target)
    return File(path=path, name=name, size=len(data))


def _told(contents: Contents) -> list[bytes]:
    """SKILL.md first, then every other file under its name."""
    parts = [contents.data[contents.skill_md]]
    for file in contents.files:
        if file.name != contents.skill_md:
            head = f"\n\n===== {file.name} · {file.size} bytes · sha256 {file.digest} =====\n\n"
            parts += [head.encode("utf-8", "replace"), _readable(contents.data[file.name])]
    return parts


def _readable(data: bytes) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        return b"[not text]"
    return data
