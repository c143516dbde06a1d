"""Written tool calls are read in the forms of all model families, and nothing else is taken for
one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.llm.written_calls import MAX_CALLS, HeldText, read_calls
from bot.engine.llm.written_forms import parse_repaired_json
from tests.case_tables import all_cases

TOOLS = {
    "write": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "lines": {"type": "integer"},
        },
        "required": ["path"],
    },
    "list": {"type": "object", "properties": {}},
}
JSON = '{"name": "write", "arguments": {"path": "a", "content": "b"}}'
TAGS = "<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</parameter>"

WRITTEN: dict[str, str] = {
    "Hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "Hermes, cut off": f"<tool_call>{JSON}",
    "Hermes, a brace forgotten": f"<tool_call>{JSON[:-1]}</tool_call>",
    "Hermes, single quotes": f"<tool_call>{JSON.replace(chr(34), chr(39))}</tool_call>",
    "Hermes, a result made up": f"<tool_call>{JSON}</tool_call>\n<tool_response>ok</tool_response>",
    "Qwen coder": f"<tool_call>\n<function=write>\n{TAGS}\n</function>\n</tool_call>",
    "Llama": '<function=write>{"path": "a", "content": "b"}</function>',
    "Llama's tag": f"<|python_tag|>{JSON.replace('arguments', 'parameters')}<|eom_id|>",
    "Mistral": f"[TOOL_CALLS][{JSON}]",
    "Mistral's new form": '[TOOL_CALLS]write{"path": "a", "content": "b"}',
    "GLM": "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n"
    "<arg_key>content</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
    "invoke": '<invoke name="write"><parameter name="path">a</parameter>'
    '<parameter name="content">b</parameter></invoke>',
    "own tags": "<write>\n<path>a</path>\n<content>b</content>\n</write>",
    "Gemini's code": '```tool_code\nprint(default_api.write(path="a", content="b"))\n```',
    "a block": f"```json\n{JSON}\n```",
    "bare": JSON,
    "a list": f"[{JSON}]",
    "OpenAI's form": '{"type": "function", "function": {"name": "functions.write",'
    ' "arguments": "{\\"path\\": \\"a\\", \\"content\\": \\"b\\"}"}}',
    "ReAct": 'Action: write\nAction Input: {"path": "a", "content": "b"}',
    "behind a thought": f"<think>I <b>will</b> {{write}}.</think>\n{JSON}",
    "behind a lead-in": f"I write it now:\n<tool_call>{JSON}</tool_call>",
}
NONE = {
    "words": "I will write it.",
    "no known tool": '{"name": "fly", "arguments": {"path": "a"}}',
    "no arguments": '{"name": "write"}',
    "another object": '{"name": "Bob", "age": 3}',
    "an example with words before": f"Say:\n```json\n{JSON}\n```",
    "an example with words behind": f"```json\n{JSON}\n```\nThat writes.",
    "words behind a tag": f"<tool_call>{JSON}</tool_call> is a call.",
    "in backticks": f"Use `<tool_call>{JSON}</tool_call>`",
    "behind a long text": f"{'long ' * 200}\n<tool_call>{JSON}</tool_call>",
    "code that is no call": "```tool_code\nimport os\nos.remove('a')\n```",
    "code with a computed argument": "```tool_code\nwrite(path=open('x').read())\n```",
}  # fmt: skip


@all_cases("name", WRITTEN)
def test_a_call_is_read_however_it_is_written(name: str) -> None:
    found = read_calls(WRITTEN[name], TOOLS, text_is_answer=True, is_asked=True)

    assert found is not None
    assert found.calls == [("write", {"path": "a", "content": "b"})]


@pytest.mark.parametrize("name", NONE)
def test_other_text_is_no_call(name: str) -> None:
    assert read_calls(NONE[name], TOOLS, text_is_answer=True) is None


@pytest.mark.parametrize("code", [JSON, f"[{JSON}]", "write(path='a')"])
def test_a_plain_block_is_an_answer_unless_calls_were_asked_for(code: str) -> None:
    text = f"```json\n{code}\n```"

    assert read_calls(text, TOOLS, text_is_answer=True) is None
    assert read_calls(text, TOOLS, text_is_answer=False) is not None
    assert read_calls(text, TOOLS, text_is_answer=True, is_asked=True) is not None


def test_only_a_marked_call_of_a_known_tool_is_certain() -> None:
    texts = [
        f"<tool_call>{JSON}</tool_call>",
        JSON,
        "<write><path>a</path></write>",
        '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
    ]
    found = [read_calls(text, TOOLS, text_is_answer=True) for text in texts]

    assert [each and each.is_certain for each in found] == [True, False, False, False]


def test_several_calls_are_read_and_arguments_get_their_types() -> None:
    one = "<function=write><parameter=path>1</parameter><parameter=lines>3</parameter></function>"

    found = read_calls(f"{one}\n<list></list>", TOOLS, text_is_answer=True)

    assert found is not None
    assert found.calls == [("write", {"path": "1", "lines": 3}), ("list", {})]


def test_where_words_are_no_answer_a_block_behind_words_is_a_call() -> None:
    found = read_calls(NONE["an example with words before"], TOOLS, text_is_answer=False)

    assert found is not None
    assert found.lead_in == "Say:"


@pytest.mark.parametrize("name", sorted(WRITTEN.keys() - {"ReAct", "behind a thought"}))
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_call_is_held_back_while_it_streams(name: str, size: int) -> None:
    held, text = HeldText(TOOLS), WRITTEN[name]

    shown = "".join(held.feed(text[at : at + size]) for at in range(0, len(text), size))

    assert shown.strip() in {"", "I write it now:"}
    assert shown + held.rest == text


pieces = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<function=write>", "<parameter=path>", "</parameter>"),
        *("{", "}", "[", '"name":', '"write"', "```", "tool_code\n", "\n", "<write>", "<path>"),
        *("Action: write\n", "a"),
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(pieces, max_size=40).map("".join)))
def test_any_text_is_calls_or_none_and_nothing_is_lost(text: str) -> None:
    found = read_calls(text, TOOLS, text_is_answer=True)
    held = HeldText(TOOLS)
    shown = "".join(map(held.feed, text))

    assert found is None or 0 < len(found.calls) <= MAX_CALLS
    assert shown + held.rest == text


@pytest.mark.parametrize(
    "piece",
    [
        *("{", "[", "<tool_call>", "<function=write>", "<parameter=path>", '{"name":', "```\n"),
        *("```tool_code\n", "<think>", "<write><path>", "[TOOL_CALLS]", "<arg_key>a</arg_key>"),
        *("Action: write\nAction Input: ", "{\n", "[\n", '{"a"\n', "```json\n{\n", " ", "\n "),
        "```" + " " * 50_000,
    ],
)
def test_a_text_of_any_size_takes_no_time_to_speak_of(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    held = HeldText(TOOLS)
    for at in range(0, len(text), 10_000):
        held.feed(text[at : at + 10_000])

    assert len(held.rest) <= len(text)
    HeldText(TOOLS).feed(text)
    for each in (text, text * 10):
        read_calls(each, TOOLS, text_is_answer=False)


@pytest.mark.parametrize("start", ["{\n" * 100_000, "{x\n" * 20 + "x " * 100_000])
def test_a_text_is_repaired_a_few_times_at_most(
    start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repaired: list[int] = []

    def counting(text: str) -> object:
        repaired.append(len(text))
        return parse_repaired_json(text)

    monkeypatch.setattr("bot.engine.llm.written_calls.parse_repaired_json", counting)
    read_calls(start, TOOLS, text_is_answer=False)

    assert sum(repaired) <= 7 * len(start)
