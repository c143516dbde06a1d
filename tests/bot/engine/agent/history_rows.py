"""Histories as a model API leaves them, whole and broken."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def user_row(text: str) -> dict[str, Any]:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


def answer_row(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts)}


def results_row(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts)}


def call_part(call_id: str) -> dict[str, Any]:
    return {
        "part_kind": "tool-call",
        "tool_name": "read",
        "args": {"path": "a"},
        "tool_call_id": call_id,
    }


def result_part(call_id: str, text: str) -> dict[str, Any]:
    return {
        "part_kind": "tool-return",
        "tool_name": "read",
        "content": text,
        "tool_call_id": call_id,
    }


@st.composite
def row_histories(draw: st.DrawFn) -> list[Any]:
    """Rounds of question, calls, results and answer, with some parts gone, and some rows odd."""
    rows: list[Any] = []
    for n in range(draw(st.integers(0, 25))):
        if draw(st.integers(0, 9)):
            rows.append(user_row(f"#q{n}"))
        ids = [f"c{n}-{i}" for i in range(draw(st.integers(0, 3)))]
        if draw(st.integers(0, 9)):
            text = {"part_kind": "text", "content": f"#a{n}"}
            rows.append(answer_row(*([text] if draw(st.booleans()) else []), *map(call_part, ids)))
        size = draw(st.sampled_from([3, 300, 3_999, 4_001, 9_000]))
        kept = [each for each in ids if draw(st.integers(0, 5))]
        together = draw(st.booleans())
        results = [result_part(each, str(n % 10) * size) for each in draw(st.permutations(kept))]
        if results and together:
            rows.append(results_row(*results))
        else:
            rows += [results_row(each) for each in results]
        if not draw(st.integers(0, 15)):
            rows.append(draw(st.sampled_from([None, {"kind": "request"}, {"said": "x"}, 3])))
    return rows
