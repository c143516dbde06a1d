"""The OpenAPI 3.1 document of all routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from bot.dashboard.api.routing import ApiModel, ApiRoute, PageQuery

_REF = "#/components/schemas/{model}"


class FieldProblem(ApiModel):
    field: str
    message: str


class Problem(ApiModel):
    """An error as RFC 9457 describes it. `detail` says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list)


def build_document(routes: Sequence[ApiRoute], version: str) -> dict[str, Any]:
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Problem, "serialization")]
    for route in routes:
        models += [(each, "validation") for each in (route.body,) if each]
        models += [(each, "serialization") for each in (route.answer,) if each]
    refs, schemas = models_json_schema(list(dict.fromkeys(models)), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shiftboss", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: ApiRoute, refs: Any) -> dict[str, Any]:
    good: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        schema = refs[route.answer, "serialization"]
        good["content"] = {"application/json": {"schema": schema}}
    elif route.status != 204:  # noqa: PLR2004 - no content
        good["content"] = {route.media: {"schema": {"type": "string"}}}
    problem = {"application/problem+json": {"schema": refs[Problem, "serialization"]}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {
            str(route.status): good,
            "default": {"description": "A problem", "content": problem},
        },
    }
    if route.body is not None:
        content = {"application/json": {"schema": refs[route.body, "validation"]}}
        operation["requestBody"] = {"content": content, "required": True}
    return operation


def _parameters(route: ApiRoute) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.path_parts
    ]
    if route.query is not None:
        schema = (route.query or PageQuery).model_json_schema()
        for name, each in schema["properties"].items():
            known = {key: value for key, value in each.items() if key != "title"}
            if "$ref" in known:
                known = schema["$defs"][known["$ref"].rpartition("/")[2]]
            required = name in schema.get("required", ())
            found.append({"name": name, "in": "query", "required": required, "schema": known})
    if route.method != "GET":
        key = {"name": "Idempotency-Key", "in": "header", "required": False}
        found.append({**key, "schema": {"type": "string", "maxLength": 200}})
    if route.guarded:
        guard = {"name": "If-Match", "in": "header", "required": False}
        about = "the `hash` that the change is based on, or `*`; without it, nothing is replaced"
        found.append({**guard, "description": about, "schema": {"type": "string"}})
    return found
