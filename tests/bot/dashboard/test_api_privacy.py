"""Nobody learns from the HTTP API what belongs to another, nor that it exists. The routes are read
from the OpenAPI document, so that a new one is asked too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from bot.dashboard.api.table import ROUTES, document
from storage.approvals import NewApproval, add_approval
from storage.ids import IdGenerator
from storage.records.approvals import ApprovalKind
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, ChatKind
from tests.bot.dashboard.world import DashboardWorld

API = "/api/v1"
SECRET = "qwertzuiop"
"""In all that Bob has; nobody sends it."""
WORD = "tulips"
"""Beside it, for those who search."""
SHARED = {"name", "version"}
"""Parts of paths that name what belongs to everybody, such as a workflow."""
WORKFLOW = """
name: Greeting
inputs:
  who: {type: text}
nodes:
  - {id: ok, type: human, name: "Greet {{inputs.who}}?"}
  - {id: hello, type: task, prompt: "Say hello to {{ inputs.who }}"}
edges:
  - {from: ok, to: hello}
"""


async def test_no_route_tells_a_member_what_belongs_to_another(world: DashboardWorld) -> None:
    owned = await _give_to_bob(world)
    before = await _look(world, owned)
    tried = [each for each in _operations() if _foreign_parts(each[1])]

    for method, path, operation in tried:
        await _check_is_hidden(world, owned, method, path, operation)
    for path, operation in _lists():
        await _check_list(world, owned, path, operation)

    assert {part for _, path, _ in tried for part in _foreign_parts(path)} == set(owned)
    assert await _look(world, owned) == before, "nothing of Bob's was changed"
    assert all(SECRET in shown for shown in before.values()), "what is hidden exists"


async def test_no_route_shows_an_owner_personal_memories(world: DashboardWorld) -> None:
    """Owners see and steer tasks, but what somebody told the program about themselves is theirs."""
    owned = await _give_to_bob(world)
    olga = world.program("olga")

    for method, path, operation in _operations():
        if _foreign_parts(path) == ["entry_id"]:
            await _check_is_hidden(world, owned, method, path, operation, name="olga")
    for query in ({}, {"text": WORD}, {"about": "bob"}, {"scope": "me"}, {"scope": "global"}):
        shown = await olga.get(f"{API}/memory", params=query)
        assert SECRET not in shown.text, query


async def test_tokens_that_ended_open_no_route(world: DashboardWorld) -> None:
    store = world.core.repositories
    owned = await _give_to_bob(world)
    bob = world.program("bob")
    assert (await bob.get(f"{API}/tasks/{owned['task_id']}")).status_code == 200

    await store.people.remove(world.people["bob"].id)

    for route in ROUTES:
        path = route.path.format(**owned, name="greeting", version="1")
        answer = await bob.request(route.method, path, json={})
        assert answer.status_code in {401, 429}, f"{route.method} {path}: {answer.text}"
        assert SECRET not in answer.text


async def _give_to_bob(world: DashboardWorld) -> dict[str, str]:
    """One of each thing that a path can name: its id by the path's part."""
    bob, olga = world.program("bob"), world.program("olga")
    text = f"the {SECRET} of the {WORD}"
    assert (await olga.put(f"{API}/workflows/greeting", json={"text": WORKFLOW})).is_success
    run = await bob.post(f"{API}/workflows/greeting/runs", json={"inputs": {"who": text}})
    memory = await bob.post(f"{API}/memory", json={"text": f"I like {text}", "scope": "me"})
    words = f"every day at 9 write about {text}"
    schedule = await bob.post(f"{API}/schedules", json={"text": words})
    trigger = await olga.post(
        f"{API}/triggers", json={"kind": "message", "workflow": "greeting", "pattern": SECRET}
    )
    for made in (run, memory, schedule, trigger):
        assert made.status_code == 201, made.text
    return {
        "task_id": run.json()["id"],
        "approval_id": await _ask_bob(world, text),
        "entry_id": memory.json()["id"],
        "schedule_id": schedule.json()["id"],
        "trigger_id": trigger.json()["id"],
    }


async def _ask_bob(world: DashboardWorld, text: str) -> str:
    """A request that he alone may decide, in a group; the other members read it there only."""
    store, now, bob = world.core.repositories, world.core.clock.now(), world.people["bob"]
    place = ChatAddress(channel=Channel.TELEGRAM, chat="-5", kind=ChatKind.GROUP, title="Team")
    async with store.db.write() as tx:
        group = await store.chats.get_or_create(tx, place, MessageSender(external_id="bob"), now)
        asked = await add_approval(
            tx,
            NewApproval(
                kind=ApprovalKind.TOOL,
                chat_id=group.id,
                title=text,
                detail=text,
                payload={"tool": "run_command", "pattern": "make"},
                approvers=(bob.id,),
                expires_at=now + timedelta(hours=1),
            ),
            ids=IdGenerator(),
            now=now,
        )
    return asked.id


async def _look(world: DashboardWorld, owned: Mapping[str, str]) -> dict[str, str]:
    """All of it, as those see it whom it belongs to."""
    bob, olga = world.program("bob"), world.program("olga")
    return {
        "task_id": (await bob.get(f"{API}/tasks/{owned['task_id']}")).text,
        "approval_id": (await bob.get(f"{API}/approvals/{owned['approval_id']}")).text,
        "entry_id": (await bob.get(f"{API}/memory/{owned['entry_id']}")).text,
        "schedule_id": (await bob.get(f"{API}/schedules/{owned['schedule_id']}")).text,
        "trigger_id": (await olga.get(f"{API}/triggers")).text,
    }


async def _check_is_hidden(
    world: DashboardWorld,
    owned: Mapping[str, str],
    method: str,
    path: str,
    operation: Mapping[str, Any],
    *,
    name: str = "ann",
) -> None:
    """What exists and what does not are answered in the same words, whatever is sent along."""
    api = world.program(name)
    own = {**owned, "name": "greeting", "version": "1"}
    none = {part: id_ if part in SHARED else "zzzzzz" for part, id_ in own.items()}
    for body in _bodies(operation):
        answers = []
        for parts in (own, none):
            answer = await api.request(method.upper(), path.format(**parts), json=body)
            told = answer.text
            for part in _foreign_parts(path):
                told = told.replace(parts[part], "ID")
            answers.append((answer.status_code, answer.headers["content-type"], told))
        assert answers[0] == answers[1], f"{method} {path} {body}"
        assert answers[0][0] in {403, 404}, f"{method} {path} {body}: {answers[0]}"
        assert SECRET not in answers[0][2]


async def _check_list(
    world: DashboardWorld, owned: Mapping[str, str], path: str, operation: Mapping[str, Any]
) -> None:
    ann = world.program("ann")
    named = [each for each in operation["parameters"] if each["in"] == "query"]
    texts = [each["name"] for each in named if each["schema"].get("type") == "string"]
    values = (WORD, "bob", "greeting", *owned.values(), world.people["bob"].id)
    queries: list[dict[str, str]] = [{}, *({key: value} for key in texts for value in values)]
    for query in queries:
        answer = await ann.get(path, params=query)
        assert SECRET not in answer.text, f"{path} {query}"
        assert answer.status_code < 500, f"{path} {query}"


def _operations() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def _lists() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is read without an id, but for the stream, which does not end."""
    for method, path, operation in _operations():
        is_stream = "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
        if method == "get" and "{" not in path and not is_stream:
            yield path, operation


def _foreign_parts(path: str) -> list[str]:
    return [each for each in re.findall(r"\{(\w+)\}", path) if each not in SHARED]


def _bodies(operation: Mapping[str, Any]) -> list[Any]:
    """Valid ones with each value that is one of a few; None if there is no body."""
    if "requestBody" not in operation:
        return [None]
    schema = _resolve(operation["requestBody"]["content"]["application/json"]["schema"])
    wanted = {
        name: _values(_resolve(each))
        for name, each in schema["properties"].items()
        if name in schema.get("required", ()) or "enum" in _resolve(each)
    }
    return [
        dict(zip(wanted, chosen, strict=True)) for chosen in itertools.product(*wanted.values())
    ]


def _resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = document()["components"]["schemas"][schema["$ref"].split("/")[-1]]
    return found


def _values(schema: Mapping[str, Any]) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])
    match schema["type"]:
        case "boolean":
            return [True, False]
        case "integer":
            return [schema.get("minimum", 1)]
        case "array":
            return [_values(_resolve(schema["items"]))]
        case "object":
            return [{}]
        case _:
            return ["hello"]
