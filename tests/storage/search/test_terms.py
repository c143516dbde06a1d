"""Stored texts are found by their own words, whatever these are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.search.lexicon import SYNONYM_FILE, stem
from storage.search.terms import (
    ASKS_ASSISTANT,
    ASKS_SELF,
    query_terms,
    requested_speaker,
    split_trailing_questions,
    tokenize,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def look(query: str) -> set[str]:
    """The words that it asks for as they stand, and the days."""
    weights = query_terms(query, now=NOW, zone=UTC)
    return {term for term, weight in weights.items() if weight >= 1 and term[0] != "@"}


@given(st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    found = list(tokenize(text))
    look(text)

    assert all(0 < len(term) <= 80 for term in found)
    assert not any(term.startswith("=") for term in found)


@given(st.text(alphabet="的我abcXYZ 花生部署12.,é'’ﬁ㍿", min_size=1, max_size=60))
def test_what_is_stored_is_found_by_its_own_words(text: str) -> None:
    if words := set(tokenize(text)):
        assert look(text) & (words | {word for word in look(text) if word.startswith("=")})


@pytest.mark.parametrize(
    "text", ["a " * 5_000_000, "花" * 10_000_000, "ﷺ" * 1_000_000, "9" * 10_000_000, "'" * 999_999]
)
def test_a_huge_text_has_a_bounded_number_of_words(text: str) -> None:
    assert sum(1 for _ in tokenize(text)) <= 80_000
    assert len(query_terms(text, now=NOW, zone=UTC)) <= 5_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("went", "going"),
        ("bought", "buys"),
        ("children", "child"),
        ("running", "ran"),
        ("studies", "studying"),
        ("adopted", "adoption"),
        ("celebrated", "celebration"),
        ("hiking", "hiked"),
        ("stopped", "stop"),
        ("happily", "happiness"),
        ("families", "family"),
        ("wives", "wife"),
        ("boxes", "box"),
        ("photos", "pics"),
    ],
)
def test_forms_of_a_word_are_one(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("bus", "but"), ("king", "kid"), ("red", "rid"), ("paris", "party")]
)
def test_other_words_are_not(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_width_case_accents_and_possession_make_no_difference() -> None:
    assert set(tokenize("Ｃａｆé")) == set(tokenize("CAFE")) == set(tokenize("cafe's"))


def test_chinese_is_found_by_two_characters_in_the_middle() -> None:
    assert "生酱" in set(tokenize("我喜欢花生酱和茶"))
    assert look("花生酱") <= set(tokenize("我喜欢花生酱和茶"))


def test_fillers_of_a_question_find_nothing() -> None:
    assert look("你还记得我的展览吗？") == {"展", "览", "展览"}
    assert look("Where did I tell you about the exhibition?") == {stem("exhibition")}


def test_a_question_of_fillers_alone_is_taken_as_it_stands() -> None:
    assert look("你是谁")


def test_a_day_is_told_by_the_clock_of_the_boss() -> None:
    late = datetime(2026, 11, 21, 20, tzinfo=UTC)
    shanghai = timezone(timedelta(hours=8))

    assert "=2026-11-21" in query_terms("昨天吃了什么", now=late, zone=shanghai)
    assert "=2026-11-20" in query_terms("昨天吃了什么", now=late, zone=UTC)


@pytest.mark.parametrize(
    ("text", "says", "asks"),
    [
        ("I sold it. And you?", "I sold it. ", "And you?"),
        ("Really?! Who told you that?", "", "Really?! Who told you that?"),
        ("Who told you? Never mind.", "Who told you? Never mind.", ""),
        ("猫好了。你呢？", "猫好了。", "你呢？"),
        ("It cost 3.50, can you believe it? :)", "", "It cost 3.50, can you believe it? :)"),
        ("", "", ""),
    ],
)
def test_what_a_turn_asks_at_its_end_is_told_from_what_it_says(
    text: str, says: str, asks: str
) -> None:
    assert split_trailing_questions(text) == (says, asks)


def test_a_question_looks_for_other_words_for_the_same_thing() -> None:
    question = "Which instrument did she purchase when her aunt passed away?"
    found = query_terms(question, now=NOW, zone=UTC)

    assert found[stem("buy")] < found[stem("purchase")]
    assert {stem("violin"), stem("died")} <= found.keys()


@given(st.text(alphabet="a ?.！？\n", max_size=40))
def test_nothing_is_lost_between_what_is_said_and_what_is_asked(text: str) -> None:
    assert "".join(split_trailing_questions(text)) == text


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("Which book did you suggest to me?", ASKS_ASSISTANT),
        ("What was your advice for my knee?", ASKS_ASSISTANT),
        ("What did I tell you about my knee?", ASKS_SELF),
        ("Do you still remember where I was born?", ASKS_SELF),
        ("Can you tell me my landlord's name?", ASKS_SELF),
        ("你给我推荐了哪本书？", ASKS_ASSISTANT),
        ("你还记得我的生日吗？", ASKS_SELF),
        ("我跟你说过的餐厅叫什么？", ASKS_SELF),
        ("Where was Ann born?", None),
    ],
)
def test_whose_words_are_asked_for(query: str, wanted: str | None) -> None:
    assert requested_speaker(query) == wanted


def test_a_family_of_words_has_words_that_forms_alone_would_not_find() -> None:
    text = SYNONYM_FILE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]

    assert len(lines) == len(set(lines))
    for line in lines:
        assert line == line.lower()
        assert len({stem(word) for word in line.replace(":", " ").split()}) > 1, line
