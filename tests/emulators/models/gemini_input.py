"""The requests that the Gemini API accepts and refuses."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from tests.emulators.models.script import RequestRejected

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_REQUEST = frozenset(
    [
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "safetySettings",
        "generationConfig",
        "cachedContent",
        "model",
        "labels",
        "serviceTier",
        "store",
    ]
)
_CONFIG = frozenset(
    [
        "temperature",
        "topP",
        "topK",
        "candidateCount",
        "maxOutputTokens",
        "stopSequences",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "_responseJsonSchema",
        "presencePenalty",
        "frequencyPenalty",
        "responseLogprobs",
        "logprobs",
        "seed",
        "responseModalities",
        "speechConfig",
        "imageConfig",
        "thinkingConfig",
        "mediaResolution",
        "enableEnhancedCivicAnswers",
    ]
)
_PART = frozenset(
    [
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    ]
)
_BESIDE = frozenset(
    ["thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"]
)
_SCHEMA = frozenset(
    [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxItems",
        "minItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
        "items",
        "minimum",
        "maximum",
        "additionalProperties",
    ]
)
_UNSIGNED = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
"""The signature that the API's makers allow for calls that were never signed."""

_SEALED = b"emulated thoughts "
_HOTTEST = 2
_MADE_UP = "* GenerateContentRequest."

Part = Mapping[str, Any]


def api_error(status: int, message: str, kind: str = "") -> RequestRejected:
    return RequestRejected(status, message, kind=kind or STATUS.get(status, "UNKNOWN"))


def needs_signatures(model: str) -> bool:
    return model.startswith("gemini-3")


def signature(number: int) -> str:
    return b64encode(_SEALED + str(number).encode()).decode()


def check_config(body: Mapping[str, Any], model: str, offered: Mapping[str, Any]) -> None:
    _known(body, _REQUEST, "")
    config = body.get("generationConfig") or {}
    _known(config, _CONFIG, "generation_config")
    if not 0 <= config.get("temperature", 1) <= _HOTTEST:
        raise api_error(
            400,
            f"{_MADE_UP}generation_config.temperature: temperature must be in the range"
            " [0.0, 2.0].\n",
        )
    json_only = config.get("responseMimeType") == "application/json"
    forms = [name for name in ("responseSchema", "responseJsonSchema") if config.get(name)]
    if len(forms) > 1:
        raise api_error(400, "Only one of response_schema and response_json_schema may be set.")
    if forms and not json_only:
        raise api_error(
            400,
            f"{_MADE_UP}generation_config.response_schema: only allowed when the response mime"
            " type is application/json.\n",
        )
    if json_only and offered and not needs_signatures(model):
        message = "Function calling with a response mime type: 'application/json' is unsupported"
        raise api_error(400, message)
    _check_thinking(config.get("thinkingConfig") or {}, model)


def check_contents(body: Mapping[str, Any], model: str) -> None:
    contents = body.get("contents")
    if not contents:
        raise api_error(400, f"{_MADE_UP}contents: contents is not specified\n")
    for at, one in enumerate(contents):
        if one.get("role", "user") not in {"user", "model"}:
            raise api_error(400, "Please use a valid role: user, model.")
        if not one.get("parts"):
            raise api_error(400, f"{_MADE_UP}contents[{at}].parts: parts must not be empty.\n")
        for inner, part in enumerate(one["parts"]):
            _check_part(part, f"contents[{at}].parts[{inner}]")
    _check_order(contents)
    if needs_signatures(model):
        _check_signatures(contents)


def tools(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for place, one in _declared(body):
        name = str(one.get("name", ""))
        if not _NAME.fullmatch(name):
            raise api_error(
                400,
                f"{_MADE_UP}{place}.name: [Invalid function name. Must start with a letter or an"
                " underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.),"
                " colons (:), or dashes (-), with a maximum length of 64.]\n",
            )
        if name in found:
            raise api_error(400, f"Duplicate function declaration found: {name}")
        if "parameters" in one and "parametersJsonSchema" in one:
            message = f"{place}: only one of parameters and parameters_json_schema may be set."
            raise api_error(400, message)
        _check_schema(one.get("parameters") or {}, f"{place}.parameters")
        found[name] = one.get("parametersJsonSchema") or one.get("parameters") or {}
    return found


def must_call(body: Mapping[str, Any], offered: Mapping[str, Any]) -> str:
    told = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    allowed = told.get("allowedFunctionNames") or []
    if allowed and told.get("mode") not in {"ANY", "VALIDATED"}:
        raise api_error(
            400, "Allowed function names should be set only when function calling mode is ANY."
        )
    if unknown := [name for name in allowed if name not in offered]:
        raise api_error(400, f"Allowed function name {unknown[0]} is not declared.")
    if told.get("mode") != "ANY":
        return ""
    return str(allowed[0]) if len(allowed) == 1 else "*"


def system(body: Mapping[str, Any]) -> str:
    return _text((body.get("systemInstruction") or {}).get("parts") or ())


def conversation(
    body: Mapping[str, Any],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The user's text, and the results since, by tool."""
    said: list[str] = []
    results: list[tuple[str, str]] = []
    for one in body["contents"]:
        if one.get("role") == "model":
            continue
        answers = [part["functionResponse"] for part in one["parts"] if "functionResponse" in part]
        if not answers:
            said.append(_text(one["parts"]))
            results.clear()
        results += [(each["name"], str(each.get("response"))) for each in answers]
    return tuple(said), tuple(results)


def _declared(body: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    for at, tool in enumerate(body.get("tools") or ()):
        for inner, one in enumerate(tool.get("functionDeclarations") or ()):
            yield f"tools[{at}].function_declarations[{inner}]", one


def _check_thinking(told: Mapping[str, Any], model: str) -> None:
    if "thinkingLevel" in told and "thinkingBudget" in told:
        raise api_error(400, "You can only set only one of thinking budget and thinking level.")
    if "thinkingLevel" in told and not needs_signatures(model):
        raise api_error(400, "Thinking level is not supported for this model.")


def _check_schema(schema: Mapping[str, Any], place: str) -> None:
    """`parameters` are not JSON Schema, only some of it."""
    _known(schema, _SCHEMA, place)
    for name, inner in (schema.get("properties") or {}).items():
        _check_schema(inner, f"{place}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        _check_schema(schema["items"], f"{place}.items")


def _check_part(part: Part, place: str) -> None:
    _known(part, _PART | _BESIDE, place)
    data = [name for name in part if name in _PART]
    if not data:
        raise api_error(
            400,
            f"{_MADE_UP}{place}.data: required oneof field 'data' must have one initialized"
            " field\n",
        )
    if len(data) > 1:
        raise api_error(400, f"Proto field is not repeating, cannot start list: {place}.data")
    for kind in ("functionCall", "functionResponse"):
        if kind in part and not part[kind].get("name"):
            raise api_error(400, f"{_MADE_UP}{place}.{kind}.name: Name cannot be empty.\n")


def _check_order(contents: list[Mapping[str, Any]]) -> None:
    """Each turn of calls follows the user and is followed by as many results."""
    expected, before = 0, ""
    for one in contents:
        calls = sum("functionCall" in part for part in one["parts"])
        answers = sum("functionResponse" in part for part in one["parts"])
        if answers and not expected:
            raise api_error(
                400,
                "Please ensure that function response turn comes immediately after a function call"
                " turn.",
            )
        if answers != expected:
            raise api_error(
                400,
                "Please ensure that the number of function response parts is equal to the number"
                " of function call parts of the function call turn.",
            )
        if calls and before in {"", "model"}:
            raise api_error(
                400,
                "Please ensure that function call turn comes immediately after a user turn or"
                " after a function response turn.",
            )
        expected, before = calls, one.get("role", "user")


def _check_signatures(contents: list[Mapping[str, Any]]) -> None:
    """Each step of the turn under way begins with a signed call."""
    for at in range(len(contents) - 1, -1, -1):
        one = contents[at]
        calls = [part for part in one["parts"] if "functionCall" in part]
        if calls and not _is_signed(calls[0].get("thoughtSignature")):
            raise api_error(
                400,
                "Function call is missing a thought_signature in functionCall parts. This is"
                " required for tools to work correctly, and missing thought_signature may lead to"
                " degraded model performance. Additional data, function call"
                f" `default_api:{calls[0]['functionCall']['name']}` , position {at}.",
            )
        if one.get("role") != "model" and any("text" in part for part in one["parts"]):
            return


def _is_signed(told: object) -> bool:
    if not isinstance(told, str):
        return False
    try:
        return told in _UNSIGNED or b64decode(told, validate=True).startswith(_SEALED)
    except ValueError:
        return False


def _known(told: Mapping[str, Any], names: frozenset[str], place: str) -> None:
    for name in told:
        if name not in names and _camel(name) not in names:
            at = f" at '{place}'" if place else ""
            raise api_error(
                400, f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
            )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _text(parts: Any) -> str:
    return "\n".join(part["text"] for part in parts if part.get("text"))
