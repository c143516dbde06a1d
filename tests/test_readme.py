"""The two READMEs say the same: sections, steps, tables, commands and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
_OTHER_LANGUAGE = {"README.md", "README.zh.md"}
_EXAMPLE = re.compile(r"^/run .*(haiku\.md|a\.txt)$")


def outline(text: str) -> list[str]:
    """The level of each heading, list item and table row, and the code blocks, in order."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    marks = re.findall(r"^(#+|\d+\.|-|\|)(?= |-)", text, re.MULTILINE)
    return [*marks, *blocks]


def code_spans(text: str) -> set[str]:
    return {
        f"/run {example[1]}" if (example := _EXAMPLE.match(code)) else code
        for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    }


def links(text: str) -> set[str]:
    return set(re.findall(r"\]\(([^)]+)\)", text)) - _OTHER_LANGUAGE


def test_both_languages_have_the_same_structure() -> None:
    assert outline(CHINESE) == outline(ENGLISH)


def test_both_languages_name_the_same_commands_settings_and_files() -> None:
    assert code_spans(CHINESE) ^ code_spans(ENGLISH) == set()


def test_both_languages_have_the_same_links_and_lead_to_each_other() -> None:
    assert links(CHINESE) == links(ENGLISH)
    assert "](README.zh.md)" in ENGLISH
    assert "](README.md)" in CHINESE


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_every_file_that_the_readme_links_exists(text: str) -> None:
    files = {link for link in links(text) if "://" not in link}

    assert [each for each in sorted(files) if not (ROOT / each).exists()] == []
