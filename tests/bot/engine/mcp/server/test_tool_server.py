"""Every message of an MCP client gets an answer."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pytest

from bot.cli.local_execution import serve_stdio
from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind
from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.tool_server import MAX_RESULT_CHARS, answer_message
from storage.errors import StoreUnavailable


def tool(told: str = "", *, broken: bool = False) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        if broken:
            raise StoreUnavailable("disk full at /a/path")
        return told or f"heard {arguments['text']}"

    schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 100}},
        "required": ["text"],
        "additionalProperties": False,
    }
    return AgentTool(name="say", description="Says.", schema=schema, run=run, kind=CallKind.READ)


def called(name: object = "say", **arguments: object) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def test_what_is_not_offered_needs_no_store() -> None:
    """Newer clients ask for it first."""
    told = protocol.answer_without_tools({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})

    assert told["error"]["code"] == protocol.METHOD_NOT_FOUND


async def test_a_client_gets_a_version_it_knows_the_list_and_its_answers() -> None:
    hello = {"id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}}
    newer = {"id": 1, "method": "initialize", "params": {"protocolVersion": "2199-01-01"}}

    met = await answer_message([tool()], hello)
    offered = await answer_message([tool()], {"id": "a", "method": "tools/list"})
    told = await answer_message([tool()], called(text="you"))

    assert met["result"]["protocolVersion"] == "2024-11-05"
    assert (await answer_message([], newer))["result"][
        "protocolVersion"
    ] == protocol.PROTOCOL_VERSIONS[0]
    assert [each["name"] for each in offered["result"]["tools"]] == ["say"]
    assert offered["result"]["tools"][0]["annotations"]["readOnlyHint"] is True
    assert offered["id"] == "a"
    assert told["result"] == {"content": [{"type": "text", "text": "heard you"}], "isError": False}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([], protocol.INVALID_REQUEST),
        ("tools/list", protocol.INVALID_REQUEST),
        (None, protocol.INVALID_REQUEST),
        ({"id": 1}, protocol.INVALID_REQUEST),
        ({"id": 1, "method": 5}, protocol.INVALID_REQUEST),
        ({"id": None, "method": "ping"}, protocol.INVALID_REQUEST),
        ({"id": {"a": 1}, "method": "ping"}, protocol.INVALID_REQUEST),
        ({"id": True, "method": "ping"}, protocol.INVALID_REQUEST),
        ({"id": 1, "method": "tools/call", "params": []}, protocol.INVALID_PARAMS),
        ({"id": 1, "method": "prompts/list"}, protocol.METHOD_NOT_FOUND),
        (called("no-such-tool"), protocol.INVALID_PARAMS),
        (called({"a": 1}), protocol.INVALID_PARAMS),
    ],
)
async def test_what_cannot_be_answered_is_refused(message: Any, code: int) -> None:
    assert (await answer_message([tool()], message))["error"]["code"] == code


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/initialized"},
        {"method": "tools/call", "params": {}},
        {"id": 3, "result": {}},
        {"id": 3, "error": {"code": 1, "message": "no"}},
    ],
)
async def test_what_wants_no_answer_gets_none(message: Any) -> None:
    assert await answer_message([tool()], message) is protocol.NO_ANSWER


@pytest.mark.parametrize(
    "arguments", [{}, {"text": 5}, {"text": "x" * 101}, {"text": "a", "more": 1}]
)
async def test_a_model_is_told_what_is_wrong_with_its_arguments(arguments: Any) -> None:
    told = (await answer_message([tool()], called(**arguments)))["result"]

    assert told["isError"] is True
    assert told["content"][0]["text"].startswith(ERROR_PREFIX)


async def test_arguments_of_no_shape_are_told_to_the_model_too() -> None:
    message = called()
    message["params"]["arguments"] = ["a"]

    assert (await answer_message([tool()], message))["result"]["isError"] is True


async def test_a_store_that_fails_says_nothing_of_itself() -> None:
    told = (await answer_message([tool(broken=True)], called(text="a")))["result"]

    assert told["isError"] is True
    assert "/a/path" not in told["content"][0]["text"]


async def test_what_a_tool_tells_is_cut() -> None:
    told = (await answer_message([tool("x" * (MAX_RESULT_CHARS * 2))], called(text="a")))["result"]

    text = told["content"][0]["text"]
    assert len(text) < MAX_RESULT_CHARS + 100
    assert "[cut" in text


def lines(sent: bytes) -> list[Any]:
    """The answer of a server over stdio."""
    goes = BytesIO()
    serve_stdio(lambda message: {"heard": message}, BytesIO(sent), goes)
    return [protocol.parse_message(line) for line in goes.getvalue().splitlines()]


def test_what_is_no_json_is_refused_and_what_follows_it_is_heard() -> None:
    told = lines(b'{"id": 1}\n\n  \n{nonsense\n' + b"[" * 100_000 + b'\n\xff\xfe\n{"id": 2}\n')

    codes = [each["error"]["code"] for each in told[1:-1]]
    assert told[0] == {"heard": {"id": 1}}
    assert codes == [protocol.PARSE_ERROR] * 3
    assert told[-1] == {"heard": {"id": 2}}


def test_a_line_that_is_too_long_is_left_out() -> None:
    told = lines(b'"' + b"x" * (protocol.MAX_MESSAGE_BYTES * 3) + b'"\n{"id": 2}\n')

    assert [each.get("error", {}).get("code") for each in told] == [protocol.INVALID_REQUEST, None]


def test_a_closed_pipe_ends_it() -> None:
    class Closed(BytesIO):
        def write(self, _data: Any) -> int:
            raise BrokenPipeError

    serve_stdio(lambda _: {}, BytesIO(b'{"id": 1}\n{"id": 2}\n'), Closed())


def test_a_last_line_without_an_end_is_heard() -> None:
    assert lines(b'{"id": 2}') == [{"heard": {"id": 2}}]
