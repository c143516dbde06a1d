"""Pruned, a history is shorter and still whole where it matters: pairs, order, the last turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessagesTypeAdapter

from bot.engine.agent.session_history import (
    BYTES_PER_TOKEN,
    HISTORY_SHARE,
    MAX_RESULT_CHARS,
    NO_RESULT,
    PRUNE_STEP,
    WHOLE_TURNS,
    prune_history,
)
from bot.engine.llm import stored_messages
from tests.bot.engine.agent.history_rows import (
    answer_row,
    call_part,
    result_part,
    results_row,
    row_histories,
    user_row,
)
from tests.thoroughness import sampled


def ids(rows: Sequence[Any]) -> list[str]:
    """Calls and results in order, `+` for a call and `-` for a result."""
    found = []
    for row in rows:
        for part in row["parts"]:
            if part["part_kind"] == "tool-call":
                found.append(f"+{part['tool_call_id']}")
            elif part["part_kind"] == "tool-return":
                found.append(f"-{part['tool_call_id']}")
    return found


def texts(rows: Sequence[Any]) -> list[str]:
    return [str(part.get("content")) for row in rows for part in row["parts"]]


def turn(n: int, size: int = 10) -> list[dict[str, Any]]:
    """A question, a call with a result of that size, and an answer."""
    return [
        user_row(f"question {n}"),
        answer_row(call_part(f"c{n}")),
        results_row(result_part(f"c{n}", str(n) * size)),
        answer_row({"part_kind": "text", "content": f"answer {n}"}),
    ]


def test_a_short_history_stays_as_it_is() -> None:
    history = [row for n in range(3) for row in turn(n)]

    assert prune_history(history) == tuple(history)


def test_old_results_keep_their_ends_and_the_last_turns_stay_whole() -> None:
    history = [row for n in range(10) for row in turn(n, 5000 // len(str(n)))]

    short = prune_history(history)

    lengths = [len(each) for each in texts(short) if len(each) > 100]
    # Two answers of the model a round: of 20, 16 are a whole number of steps.
    assert lengths == [3032] * 8 + [5000] * 2
    first = next(each for each in texts(short) if len(each) > 100)
    assert first == "0" * 1500 + "\n[… 2000 characters left out …]\n" + "0" * 1500


def test_a_history_too_long_loses_its_oldest_turns_and_says_so() -> None:
    history = [row for n in range(40) for row in turn(n, 1500)]

    short = prune_history(history, context_tokens=20_000)

    assert sum(map(stored_messages.text_bytes, short)) <= 20_000 * HISTORY_SHARE * BYTES_PER_TOKEN
    assert "earlier messages of this conversation are left out]" in texts(short)[0]
    assert list(short[1:]) == history[len(history) - len(short) + 1 :]


def test_from_turn_to_turn_the_beginning_stays_the_same() -> None:
    """So that the model's cache of it stays good: it changes once in a step at most."""
    history: list[dict[str, Any]] = []
    changes = 0
    before: tuple[Any, ...] = ()
    for n in range(80):
        history += turn(n, 3000)
        now = prune_history(history, context_tokens=100_000)
        changes += now[: len(before)] != before
        before = now

    assert 0 < changes <= 2 * (160 // PRUNE_STEP)


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    history = [
        user_row("q"),
        answer_row(call_part("a"), call_part("b")),
        results_row(result_part("b", "x")),
        user_row("go on"),
    ]

    short = prune_history(history)

    assert ids(short) == ["+a", "+b", "-a", "-b"]
    assert NO_RESULT in texts(short)


def test_calls_that_are_being_answered_stay_open() -> None:
    history = [
        user_row("q"),
        answer_row(call_part("a"), call_part("b")),
        results_row(result_part("b", "x")),
    ]

    assert prune_history(history, open_calls=True) == tuple(history)
    assert ids(prune_history(history)) == ["+a", "+b", "-a", "-b"]


def test_results_may_come_in_several_messages() -> None:
    history = [
        user_row("q"),
        answer_row(call_part("a"), call_part("b")),
        results_row(result_part("b", "x")),
        results_row(result_part("a", "y")),
    ]

    assert prune_history(history) == tuple(history)


def test_a_result_that_nobody_asked_for_is_left_out() -> None:
    history = [
        user_row("q"),
        results_row(result_part("ghost", "boo")),
        answer_row(call_part("a")),
        results_row(result_part("a", "x")),
    ]
    history += [
        results_row(result_part("a", "again"), {"part_kind": "user-prompt", "content": "and"})
    ]

    assert ids(prune_history(history)) == ["+a", "-a"]
    assert "and" in texts(prune_history(history))


def test_rows_that_are_no_messages_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bad: list[Any] = [None, 7, {"kind": "request"}, {"kind": "response", "parts": [{}]}, "text"]

    assert prune_history([*bad, user_row("q")]) == (user_row("q"),)
    assert "5 rows" in caplog.text


def test_another_backends_history_is_left_to_it() -> None:
    history = [{"said": "x"}, {"system": True}]

    assert prune_history(history) == tuple(history)


def test_a_picture_weighs_little_whatever_its_bytes() -> None:
    picture = {"kind": "binary", "data": "A" * 5_000_000, "media_type": "image/png"}
    row = user_row("look")
    row["parts"][0]["content"] = ["look", picture]

    assert stored_messages.text_bytes(row) < 10_000
    assert prune_history([row, *turn(1)]) == (row, *turn(1))


@settings(max_examples=sampled(150, 70), deadline=None)
@given(history=row_histories(), context=st.sampled_from([500, 4_000, 200_000]))
def test_any_history_keeps_pairs_order_the_last_turns_and_the_budget(
    history: list[Any], context: int
) -> None:
    short = prune_history(history, context_tokens=context)

    if not any(map(stored_messages.is_message, history)):
        assert list(short) == history
        return
    assert prune_history(short, context_tokens=context) == short  # nothing more to do
    ModelMessagesTypeAdapter.validate_json(json.dumps(list(short)))
    _has_pairs(short)
    assert _order(short) == [each for each in _order(history) if each in set(_order(short))]
    budget = context * HISTORY_SHARE * BYTES_PER_TOKEN
    answers = [row for row in short if row["kind"] == "response"]
    everything = [
        row for row in history if stored_messages.is_message(row) and row["kind"] == "response"
    ]
    assert answers == everything[len(everything) - len(answers) :]
    assert len(answers) >= min(WHOLE_TURNS, len(everything))
    if len(answers) > WHOLE_TURNS:
        assert sum(map(stored_messages.text_bytes, short)) <= budget
    _has_whole_end(history, short)


@settings(max_examples=sampled(60, 40), deadline=None)
@given(history=row_histories())
def test_pruning_changes_nothing_that_is_stored(history: list[Any]) -> None:
    before = json.dumps(history)

    prune_history(history, context_tokens=500)

    assert json.dumps(history) == before


def _has_pairs(rows: Sequence[Any]) -> None:
    """Each answer's calls have their results before the next answer, and nothing else has."""
    open_calls: list[str] = []
    for row in rows:
        if row["kind"] == "response":
            assert open_calls == []
            open_calls = [call_id for call_id, _ in stored_messages.requested_calls(row)]
            continue
        for part in row["parts"]:
            if call_id := stored_messages.answered_call_id(part):
                open_calls.remove(call_id)
    assert open_calls == []


def _order(rows: Sequence[Any]) -> list[str]:
    """Marks of everything that was said, in order; each is said once."""
    return [
        part["content"]
        for row in rows
        if stored_messages.is_message(row)
        for part in row["parts"]
        if part["part_kind"] in {"text", "user-prompt"} and "#" in str(part["content"])
    ]


def _has_whole_end(history: Sequence[Any], short: Sequence[Any]) -> None:
    """No result in the last turns is shortened."""
    marks = {
        part["content"]
        for row in history
        if stored_messages.is_message(row)
        for part in row["parts"]
        if part["part_kind"] == "tool-return"
    }
    answers = [n for n, row in enumerate(short) if row["kind"] == "response"][-WHOLE_TURNS:]
    for row in short[answers[0] :] if answers else ():
        for part in row["parts"]:
            if part["part_kind"] == "tool-return" and len(part["content"]) < MAX_RESULT_CHARS:
                assert part["content"] in marks | {NO_RESULT}
