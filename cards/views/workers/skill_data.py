"""Skills as plain JSON values, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cards.views.workers.skills import told
from cards.words import Words
from storage.records.workers.skills import Listed, SkillShelf


def shelf_data(shelf: SkillShelf, words: Words) -> Mapping[str, Any]:
    return {
        "skills": [skill_data(each, words) for each in shelf.skills],
        "bad": [
            {
                "name": each.name,
                "source": each.source.value,
                "path": each.path,
                "faults": told(each.faults, words),
            }
            for each in shelf.bad
        ],
        "left_out": shelf.left_out,
    }


def skill_data(listed: Listed, words: Words) -> Mapping[str, Any]:
    skill = listed.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "source": skill.source.value,
        "path": skill.path,
        "hash": skill.hash,
        "state": listed.state.value,
        "usable": listed.usable,
        "shadowed": listed.shadowed,
        "lacks": {each.key: list(each.names) for each in skill.lacks},
        "size": skill.size,
        "files": [each.name for each in skill.files],
        "scripts": [each.name for each in skill.scripts],
        "triggers": list(skill.triggers),
        "ignored": list(skill.ignored),
        "notes": told(skill.notes, words),
    }
