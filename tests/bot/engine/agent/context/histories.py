"""Histories as a model API leaves them, whole and broken."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def asked(text: str) -> dict[str, Any]:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts)}


def told(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts)}


def call(call_id: str) -> dict[str, Any]:
    return {
        "part_kind": "tool-call",
        "tool_name": "read",
        "args": {"path": "a"},
        "tool_call_id": call_id,
    }


def result(call_id: str, text: str) -> dict[str, Any]:
    return {
        "part_kind": "tool-return",
        "tool_name": "read",
        "content": text,
        "tool_call_id": call_id,
    }


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Rounds of question, calls, results and answer, with some parts gone, and some rows odd."""
    rows: list[Any] = []
    for n in range(draw(st.integers(0, 25))):
        if draw(st.integers(0, 9)):
            rows.append(asked(f"#q{n}"))
        ids = [f"c{n}-{i}" for i in range(draw(st.integers(0, 3)))]
        if draw(st.integers(0, 9)):
            text = {"part_kind": "text", "content": f"#a{n}"}
            rows.append(said(*([text] if draw(st.booleans()) else []), *map(call, ids)))
        size = draw(st.sampled_from([3, 300, 3_999, 4_001, 9_000]))
        kept = [each for each in ids if draw(st.integers(0, 5))]
        together = draw(st.booleans())
        results = [result(each, str(n % 10) * size) for each in draw(st.permutations(kept))]
        if results and together:
            rows.append(told(*results))
        else:
            rows += [told(each) for each in results]
        if not draw(st.integers(0, 15)):
            rows.append(draw(st.sampled_from([None, {"kind": "request"}, {"said": "x"}, 3])))
    return rows
