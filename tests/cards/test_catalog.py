"""Every text exists in both languages, with the same facts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from cards.catalog import catalog_for
from storage.records.people import Language
from tests.cards.untranslated_words import foreign_words
from tests.case_tables import all_cases

TEXTS = Path(__file__).parents[2] / "cards" / "texts"
FILES = sorted(path.name for path in (TEXTS / "en").glob("*.toml"))


def leaves(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def read(language: str, name: str) -> dict[str, str]:
    return leaves(tomllib.loads((TEXTS / language / name).read_text(encoding="utf-8")))


def facts(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_both_languages_have_the_same_files() -> None:
    chinese = sorted(path.name for path in (TEXTS / "zh").glob("*.toml"))

    assert chinese == FILES


@all_cases("name", FILES)
def test_a_file_has_the_same_keys_in_both_languages(name: str) -> None:
    assert read("en", name).keys() == read("zh", name).keys()


@all_cases("name", FILES)
def test_a_text_needs_the_same_facts_in_both_languages(name: str) -> None:
    english, chinese = read("en", name), read("zh", name)

    different = {key for key in english if facts(english[key]) != facts(chinese.get(key, ""))}

    # A plural may leave the number out where one language says it in words.
    assert {key for key in different if not key.endswith((".one", ".other"))} == set()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("language", list(Language))
def test_no_text_is_empty(language: Language, name: str) -> None:
    empty = {key for key, text in read(language, name).items() if not text.strip()}

    assert {key for key in empty if not key.endswith(".usage")} == set()


@all_cases("name", FILES)
def test_chinese_texts_are_chinese(name: str) -> None:
    english, chinese = read("en", name), read("zh", name)

    def speaks(text: str) -> bool:
        plain = "".join(part for part, *_ in Formatter().parse(text))
        return sum(char.isalpha() and char.isascii() for char in plain) > 25

    same = {key for key in english if speaks(english[key]) and english[key] == chinese.get(key)}

    assert same == set()


@pytest.mark.parametrize("language", list(Language))
def test_all_catalogues_load_together(language: Language) -> None:
    assert catalog_for(language).has("error.unexpected.title")


@pytest.mark.parametrize("other", ["员工", "本聊天", "这个聊天", "您"])
def test_one_thing_has_one_name_in_chinese(other: str) -> None:
    """执行者 works, 本会话 is the chat one is in, and the reader is 你."""
    texts = {f"{name}:{key}": text for name in FILES for key, text in read("zh", name).items()}

    assert {key for key, text in texts.items() if other in text} == set()


@all_cases("name", FILES)
def test_chinese_texts_have_latin_letters_for_names_only(name: str) -> None:
    # Commands, and a workflow to begin with, whose fields are English.
    code = (".usage", ".starter")
    texts = {key: text for key, text in read("zh", name).items() if not key.endswith(code)}

    found = {key: words for key, text in texts.items() if (words := foreign_words(text))}

    assert found == {}
