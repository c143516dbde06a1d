"""Reviews worded as reviewers word them: each decides as a person would read it, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.workflow.expressions.evaluator import evaluate
from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.node_runs import parse_answer_values

APPROVED = [
    "Approved: True",
    '{"approved": true}',
    'Looks fine.\n```\n{"approved": true, "notes": "two typos"}\n```',
    "~~~JSON\n{'Approved': True,}\n~~~",
    '```json5\n{approved: "yes"}\n```',
    "I read all of it.\n\n**Approved:** yes, with two small nits below.",
    "approved = TRUE",
    "* approved: `true`",
    "| check | result |\n|---|---|\n| approved | yes |",
    "Approved? Yes.",
    "APPROVED: true\n\nThe naming could be better, but that can wait.",
    "You want approved: true or approved: false at the end. All tests pass.\n\napproved: true",
    "First pass:\napproved: false\n\nAfter the fix:\napproved: true",
    "LGTM 👍",
    "LGTM, ship it!",
    "The diff is small and well tested.\n\nVerdict: Approved",
    "**Decision:** approve. Nice work on the error paths.",
    "Looks good to me overall.",
    "approved：true",
    "结论：通过",
    "整体没有问题。\n\n是否通过：是",
    "**审核结果：** 通过 ✅",
    "代码清晰，测试完整。\n批准。",
    "没问题，可以合并。",
    "｛“approved”：true｝",
    "approved：是",
]
REJECTED = [
    "approved: false",
    '{"approved": "false"}',
    '{"Approved": "No"}',
    "Approved: no — the retry loop never ends.",
    '```json\n{"result": {"approved": false, "notes": "3 tests fail"}}\n```',
    "Not approved: 3 tests fail.",
    "I can't approve this yet: the migration drops a column.",
    "Changes requested. See the comments on lines 4 and 9.",
    "Verdict: needs work",
    "Verdict: rejected.",
    "Request changes: the lock is taken twice.",
    "Please do not merge.\napproved: false, but close.",
    "Approved: ❌ The summary misses the second chapter.",
    "approved：false",
    '{"approved": "否"}',
    "结论：不通过。第二章缺少数据来源。",
    "审核结果：未通过，请补充测试。",
    "需要修改：开头太长。",
    "驳回，理由如下：没有处理空列表。",
    "是否通过：否",
]
UNDECIDED = [
    "Approved: true, but only if the tests pass.",
    "approved: true/false",
    "Seen. approved: true, I think.",
    "approved: true or approved: false",
    "I'd approve this once the two blocking comments are fixed.",
    "LGTM, but please fix the race before merging.",
    "Approved after the changelog is updated.",
    "Approve.\nHowever, one blocker remains: the key is logged.",
    '{"approved": "partially"}',
    '{"approved": "yes, provided that legal signs off"}',
    '{"approved": null}',
    '{"notes": "good structure, weak ending"}',
    "Good structure, weak ending. I am torn.",
    "Verdict: approved.\n\nVerdict: rejected.",
    "The approved budget is 3,000 dollars.",
    "原则上通过，但需要先补充测试。",
    "approved：待定",
    "通过阅读代码，我发现了 3 个问题。",
    "基本可以，细节再看看。",
    "如果测试都能过，就可以合并。",
    "",
]


@pytest.mark.parametrize("condition", ["review.approved", "review.approved == true"])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *((text, True) for text in APPROVED),
        *((text, False) for text in REJECTED),
        *((text, None) for text in UNDECIDED),
    ],
)
def test_a_review_decides_as_it_is_meant(text: str, wanted: bool | None, condition: str) -> None:
    names = {"review": dict(parse_answer_values(text))}

    try:
        said = evaluate(f"{condition} ? 1 : 0", names)
    except ExpressionError:
        said = None

    assert said == (None if wanted is None else int(wanted))


_MARKS = st.sampled_from(["{}", "**{}**", "`{}`", "_{}_"])
_CASES = st.sampled_from([str.lower, str.upper, str.title, str.capitalize])
_BEFORE = st.sampled_from(["", "All seen.\n", "全部看过。\n", "score: 3\n\n"])


@dataclass(frozen=True)
class _Pair:
    """A name and a word as somebody may write them."""

    name: str
    said: tuple[str, bool]
    sign: str
    marks: tuple[str, str]
    case: Callable[[str], str]
    before: str

    @property
    def text(self) -> str:
        name, word = self.case(self.name), self.case(self.said[0])
        return f"{self.before}{self.marks[0].format(name)}{self.sign}{self.marks[1].format(word)}"


_WORDS = [
    ("true", True),
    ("yes", True),
    ("是", True),
    ("false", False),
    ("no", False),
    ("否", False),
]


@given(
    st.builds(
        _Pair,
        name=st.sampled_from(["approved", "needs_work", "ok"]),
        said=st.sampled_from(_WORDS),
        sign=st.sampled_from([": ", ":", "：", " = ", "＝", " :  "]),
        marks=st.tuples(_MARKS, _MARKS),
        case=_CASES,
        before=_BEFORE,
    )
)
def test_a_pair_is_read_in_any_case_marks_and_punctuation(pair: _Pair) -> None:
    names = {"a": dict(parse_answer_values(pair.text))}

    assert evaluate(f"a.{pair.name} == true", names) is pair.said[1]


@given(
    value=st.sampled_from([True, False, "true", "False", "no", "yes", "否", "是"]),
    fence=st.sampled_from(
        ["{}", "```json\n{}\n```", "```\n{}\n```", "~~~JSON5\n{}\n~~~", "So: {}."]
    ),
    key=st.sampled_from(["approved", "Approved", "APPROVED", "is_approved"]),
    wrap=st.booleans(),
)
def test_json_is_read_in_any_fence_or_none(
    value: bool | str, fence: str, key: str, wrap: bool
) -> None:
    body: dict[str, object] = {key: value, "notes": "n"}
    text = fence.format(json.dumps({"result": body} if wrap else body, ensure_ascii=False))
    wanted = value in {True, "true", "yes", "是"}

    assert evaluate("a.approved == true", {"a": dict(parse_answer_values(text))}) is wanted


@given(st.text(max_size=400) | st.text("{}[]\"':,=|`~\n aprovedtrufls0否是，：", max_size=400))
def test_any_text_gives_values_that_can_be_stored(text: str) -> None:
    values = dict(parse_answer_values(text))

    assert json.loads(json.dumps(values)) == values
    assert not any(name.startswith("@") for name in values)


_RUBBISH = ("{", "```\n", "a: true or ", '{"a":', "approved", "**", "-", "“", "a: yes, ", " ", "先")


@pytest.mark.parametrize("piece", _RUBBISH)
def test_huge_rubbish_gives_next_to_nothing(piece: str) -> None:
    assert len(parse_answer_values(piece * (20_000 // len(piece)))) <= 1
