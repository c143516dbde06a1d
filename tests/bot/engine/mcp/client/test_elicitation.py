"""What an MCP server may ask a person for: a few plain values or a visit, never a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.tool_calls import CallAuthorizer, CallDecision, CallVerdict, ToolCall
from bot.engine.mcp.client.elicitation import ElicitationDeclined, Elicitor, parse_fields
from storage.records.people import Language


@dataclass
class Person:
    """Gives these answers; None is a no, and without any nobody answers in time, or ever."""

    answers: list[str | None]
    waits: bool = False
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[ToolCall] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)

    async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision:
        assert wait_seconds > 0
        self.asked.append(call)
        self.was_asked.set()
        if self.waits:
            await asyncio.Event().wait()
        if not self.answers:
            return CallDecision(verdict=CallVerdict.PENDING)
        answer = self.answers.pop(0)
        if answer is None:
            return CallDecision(verdict=CallVerdict.DENY, text="no")
        return CallDecision(verdict=CallVerdict.ANSWER, text=answer)

    async def record_outcome(
        self, call_id: str, *, succeeded: bool, outcome: str, size: int = 0
    ) -> None:
        self.ended.append((call_id, outcome))
        self.has_ended.set()

    def restart(self) -> CallAuthorizer:
        return self

    async def is_asked(
        self, request: Mapping[str, Any], language: Language = Language.ENGLISH
    ) -> dict[str, Any]:
        result = await Elicitor(permit=self, language=language).answer("shop", request)
        assert [call.call_id for call in self.asked] == [call_id for call_id, _ in self.ended]
        return result


def form(*required: str, message: str = "Which?", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"mode": "form", "message": message, "requestedSchema": schema}


async def test_each_field_is_a_question_and_answers_become_typed_values() -> None:
    person = Person(["Ann", "7", "2.5", "yes", "Large", "red, BLUE", "Skip"])
    sizes = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]

    result = await person.is_asked(
        form(
            "name",
            name={"type": "string", "title": "Your name", "description": "As on the card"},
            age={"type": "integer", "minimum": 1},
            weight={"type": "number"},
            gift={"type": "boolean"},
            size={"type": "string", "oneOf": sizes},
            colours={"type": "array", "items": {"enum": ["red", "blue"]}},
            note={"type": "string"},
        )
    )

    assert result == {
        "action": "accept",
        "content": {
            "name": "Ann",
            "age": 7,
            "weight": 2.5,
            "gift": True,
            "size": "l",
            "colours": ["red", "blue"],
        },
    }
    questions = [call.arguments for call in person.asked]
    assert questions[0]["question"] == (
        "MCP server shop asks: Which?\n\nYour name: As on the card (1/7)"
    )
    assert questions[0]["options"] == []
    assert questions[3]["options"] == ["Yes", "No", "Skip"]
    assert questions[4]["options"] == ["Small", "Large", "Skip"]
    assert "red, blue" in questions[5]["question"]


@pytest.mark.parametrize(
    ("schema", "wrong", "right", "value"),
    [
        ({"type": "integer", "maximum": 9}, "ten", "9", 9),
        ({"type": "integer", "maximum": 9}, "10", "9", 9),
        ({"type": "number"}, "inf", "1e3", 1000.0),
        ({"type": "boolean"}, "perhaps", "否", False),
        ({"type": "string", "enum": ["a", "b"]}, "c", "B", "b"),
        ({"type": "string", "minLength": 3}, "ab", "abc", "abc"),
        ({"type": "array", "items": {"enum": ["a"]}, "minItems": 1}, "b", "a", ["a"]),
    ],
)
async def test_a_wrong_answer_is_asked_for_again(
    schema: dict[str, Any], wrong: str, right: str, value: Any
) -> None:
    person = Person([wrong, right])

    result = await person.is_asked(form("it", it=schema))

    assert result == {"action": "accept", "content": {"it": value}}
    assert "does not fit" in person.asked[1].arguments["question"]


@pytest.mark.parametrize(
    ("answers", "action"),
    [([], "cancel"), ([None], "decline"), (["x", "y", "z"], "cancel"), (["1", None], "decline")],
)
async def test_without_an_answer_the_server_gets_nothing(
    answers: list[str | None], action: str
) -> None:
    number = {"type": "integer"}

    assert await Person(answers).is_asked(form("a", "b", a=number, b=number)) == {"action": action}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"password": {"type": "string"}}, "Hello"),
        ({"a": {"type": "string", "format": "password"}}, "Hello"),
        ({"a": {"type": "string", "title": "API  KEY".replace("  ", " ")}}, "Hello"),
        ({"a": {"type": "string"}}, "Please enter your access token"),
        ({"a": {"type": "string", "description": "你的密码"}}, "你好"),
        ({"a": {"type": "integer", "title": "Card number"}}, "Hello"),
        ({"a": {"type": "integer", "title": "PIN"}}, "Hello"),
    ],
)
async def test_secrets_are_never_asked_for(properties: dict[str, Any], message: str) -> None:
    person = Person(["hunter2"])

    with pytest.raises(ElicitationDeclined, match="secret"):
        await person.is_asked(form(message=message, **properties))
    assert person.asked == []


async def test_a_secret_in_disguise_is_one_and_ordinary_words_are_none() -> None:
    disguised = [
        *("passw\u200bord", "p\u0430ssw\u043erd", "p a s s w o r d", "p.a.s.s.w.o.r.d", "p@ssw0rd"),
        *(
            "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
            "passwo\u0301rd",
            "to\u00adken",
            "t0ken",
        ),
        *("Passwort", "mot de passe", "contraseña", "пароль", "パスワード", "비밀번호", "passkey"),
        *("one-time code", "Verification code", "ssh key", "session id", "seed words"),
        *("验 证 码", "验\u200b证码", "驗證碼", "動態密碼", "校验码"),
    ]
    plain = ["Passenger", "Zip code", "Keyboard", "Spin", "Rows on 2025-01-02", "姓名", "邮政编码"]

    def is_asked_for(label: str) -> bool:
        try:
            parse_fields({"properties": {"a": {"type": "string", "title": label}}}, "Hello")
        except ElicitationDeclined:
            return False
        return True

    assert [each for each in disguised if is_asked_for(each)] == []
    assert [each for each in plain if not is_asked_for(each)] == []


NESTED = {"type": "object", "properties": {"b": {"type": "string"}}}


@pytest.mark.parametrize(
    "request_",
    [
        form(a={}) | {"requestedSchema": {"properties": {str(n): {} for n in range(1_000)}}},
        form(a=NESTED),
        form(a={"type": "array", "items": {"type": "string"}}),
        form(a={"type": ["string", "null"]}),
        form(a="string"),
        form(a={"type": "string", "enum": [str(n) for n in range(1_000)]}),
        {"mode": "form", "message": "x", "requestedSchema": {"properties": []}},
        {"mode": "form", "message": "x", "requestedSchema": None},
    ],
    ids=["1000 fields", "nested", "list", "types", "no schema", "1000 choices", "list2", "none"],
)
async def test_more_than_a_short_form_is_declined(request_: dict[str, Any]) -> None:
    person = Person(["x"])

    with pytest.raises(ElicitationDeclined, match="form"):
        await person.is_asked(request_)
    assert person.asked == []


async def test_a_servers_words_stay_short_and_on_their_line() -> None:
    person = Person(["Yes"])
    message = "Sure?\x1b[31m\u202e\n\nMCP server bank asks: more " + "x" * 10_000

    result = await person.is_asked(form(message=message))

    (asked,) = person.asked
    assert result == {"action": "accept", "content": {}}
    assert asked.detail.startswith("MCP server shop asks: Sure? [31m MCP server bank")
    assert asked.detail.isprintable()
    assert len(asked.detail) < 700


async def test_a_visit_shows_the_whole_address_and_its_host() -> None:
    person = Person(["I opened it"])
    request = {"mode": "url", "message": "Sign in", "url": "https://bücher.example:8443/a?b=1"}

    assert await person.is_asked(request) == {"action": "accept"}
    (asked,) = person.asked
    assert "a page of xn--bcher-kva.example:8443: https://xn--bcher-kva.example:8443/a?b=1" in (
        asked.detail
    )


@pytest.mark.parametrize("answer", ["no", "I will not", None])
async def test_a_visit_that_is_not_agreed_to_is_declined(answer: str | None) -> None:
    request = {"mode": "url", "message": "Sign in", "url": "https://shop.example/"}

    assert await Person([answer]).is_asked(request) == {"action": "decline"}


@pytest.mark.parametrize(
    "url",
    [
        "http://shop.example/",
        "https://shop.example@evil.test/",
        "javascript:alert(1)",
        "",
        "file:/",
    ],
)
async def test_an_unsafe_address_is_not_shown(url: str) -> None:
    person = Person(["I opened it"])

    with pytest.raises(ElicitationDeclined, match="address"):
        await person.is_asked({"mode": "url", "message": "Sign in", "url": url})
    assert person.asked == []


async def test_people_are_asked_in_their_language() -> None:
    person = Person(["是"])

    result = await person.is_asked(form("ok", ok={"type": "boolean"}), Language.CHINESE)

    assert result == {"action": "accept", "content": {"ok": True}}
    assert "MCP 服务 shop 询问" in person.asked[0].detail
    assert person.asked[0].arguments["options"] == ["是", "否"]


_KEYS = ("type", "enum", "enumNames", "oneOf", "items", "const", "title", "format", "minLength")
_ANYTHING = st.recursive(
    st.none() | st.floats() | st.sampled_from(["string", "array", "integer", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner),
    max_leaves=12,
)


@given(properties=st.dictionaries(st.text(max_size=3), _ANYTHING, max_size=3), rest=_ANYTHING)
async def test_no_request_breaks_asking(properties: dict[str, Any], rest: Any) -> None:
    schema = {"properties": properties, "required": rest}
    person = Person(["1", "x", "y", "z", "1"])

    try:
        result = await person.is_asked({"message": rest, "requestedSchema": schema})
    except ElicitationDeclined:
        return
    assert result["action"] in {"accept", "cancel", "decline"}
