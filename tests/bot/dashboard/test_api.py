"""The HTTP API: what each route answers, and to whom."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from bot.dashboard.api.table import ROUTES, document
from bot.dashboard.problems import without_commands
from cards.catalog import catalog_for
from handlers.command_table import COMMANDS
from storage.records.approvals import ApprovalKind
from storage.records.people import Channel, Language, PersonRole
from tests.bot.dashboard.world import DashboardWorld

API = "/api/v1"
_GROUPS = 8
HOSTILE = "<img src=x onerror=1> '; DROP TABLE tasks; -- \u202e{0} {{x}} %00 ../../etc 漢字 🙂"


async def create(api: httpx.AsyncClient, text: str = "water the plants", **more: Any) -> str:
    made = await api.post(f"{API}/tasks", json={"text": text, **more})
    assert made.status_code == 201, made.text
    return str(made.json()["task"]["id"])


def check_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["type"].startswith("urn:shiftboss:problem:")
    assert problem["title"]
    assert problem["detail"]
    return problem


def test_the_document_is_valid_and_has_every_route() -> None:
    validate(document())

    paths = document()["paths"]
    assert {(path, method.upper()) for path in paths for method in paths[path]} == {
        (each.path, each.method) for each in ROUTES
    }
    names = [paths[each.path][each.method.lower()]["operationId"] for each in ROUTES]
    assert len(set(names)) == len(names)
    assert all(each.summary for each in ROUTES)


@pytest.mark.parametrize("group", range(_GROUPS))
async def test_every_route_refuses_strangers_and_what_is_not_theirs(
    world: DashboardWorld, group: int
) -> None:
    """A store for each route would take longer than what is tried."""
    for route in ROUTES[group::_GROUPS]:
        await _refuse_strangers(world, route)


async def _refuse_strangers(world: DashboardWorld, route: Any) -> None:
    parts = dict.fromkeys(
        ("task_id", "approval_id", "entry_id", "schedule_id", "trigger_id"), "zzzzzz"
    )
    path = route.path.format(**parts, name="no-such-workflow", version="1")

    check_problem(await world.client().request(route.method, path, content=b"{}"), 401)
    wrong = world.client(authorization="Bearer sbt_no")
    check_problem(await wrong.request(route.method, path), 401)
    if route.media == "text/event-stream":
        return
    ann = world.program("ann", content_type="application/json")
    member = await ann.request(route.method, path)
    if route.role is PersonRole.OWNER:
        check_problem(member, 403)
    elif "{" in route.path and route.body is None:
        check_problem(member, 404)
    assert member.status_code < 500
    if route.body is None:
        owner = await world.program("olga").request(route.method, path)
        assert owner.status_code in ({404} if "{" in route.path else {200, 201, 202, 204, 422})
        return
    # Rights come before the body.
    sender = "olga" if route.role is PersonRole.OWNER else "ann"
    ann = world.program(sender, content_type="application/json")
    for rubbish in (b"{", b"[]", b'"x"', b"\xff", b'{"x": "\\ud800"}', b'{"nope": 1}', b"NaN"):
        answer = await ann.request(route.method, path, content=rubbish)
        check_problem(answer, 422 if rubbish in {b"[]", b'"x"', b'{"nope": 1}'} else 400)
    huge = b'{"text": "' + b"x" * 10_000_000 + b'"}'
    check_problem(await ann.request(route.method, path, content=huge), 413)
    plain = world.program(sender, content_type="text/plain")
    check_problem(await plain.request(route.method, path, content=b"{}"), 415)


async def test_tasks_are_created_listed_shown_and_steered(world: DashboardWorld) -> None:
    api = world.program()
    id_ = await create(api, title="Plants", priority="urgent")

    shown = (await api.get(f"{API}/tasks/{id_}")).json()
    steps = [
        await api.post(f"{API}/tasks/{id_}/pause", json={"reason": "later"}),
        await api.post(f"{API}/tasks/{id_}/priority", json={"priority": "normal"}),
        await api.post(f"{API}/tasks/{id_}/messages", json={"text": "use rain water"}),
        await api.post(f"{API}/tasks/{id_}/resume", json={}),
        await api.post(f"{API}/tasks/{id_}/stop"),
    ]
    again = await api.post(f"{API}/tasks/{id_}/pause", json={}, headers={"accept-language": "zh"})
    retried = await api.post(f"{API}/tasks/{id_}/retry")
    events = (await api.get(f"{API}/tasks/{id_}/events")).json()["events"]
    graph = (await api.get(f"{API}/tasks/{id_}/graph")).json()
    trace = (await api.get(f"{API}/tasks/{id_}/trace")).json()

    assert (shown["task"]["title"], shown["task"]["priority"]) == ("Plants", "urgent")
    assert [each.status_code for each in steps] == [200] * 5, [each.text for each in steps]
    assert [each.json()["status"] for each in steps][-1] == "cancelled"
    problem = check_problem(again, 409)
    assert problem["type"] == "urn:shiftboss:problem:wrong-state"
    assert any("\u4e00" <= char <= "\u9fff" for char in problem["detail"])
    assert retried.json()["status"] == "pending"
    assert events[0]["kind"] == "created"
    assert graph["version"] == 0
    assert trace["spans"]


async def test_the_same_idempotency_key_is_the_same_change(world: DashboardWorld) -> None:
    api = world.program()
    key = {"idempotency-key": "a key of mine"}

    made = [
        (await api.post(f"{API}/tasks", json={"text": "once"}, headers=key)).json()["task"]["id"]
        for _ in range(3)
    ]
    other = await create(api, "once")
    told = [
        await api.post(f"{API}/tasks/{other}/messages", json={"text": "x"}, headers=key)
        for _ in range(2)
    ]
    of_ann = await world.program("ann").post(f"{API}/tasks", json={"text": "b"}, headers=key)
    bad = await api.post(f"{API}/tasks", json={"text": "x"}, headers={"idempotency-key": "k" * 300})

    assert len(set(made)) == 1
    assert of_ann.json()["task"]["id"] not in made
    assert [each.status_code for each in told] == [200, 200]
    check_problem(bad, 400)
    assert len((await api.get(f"{API}/tasks")).json()["tasks"]) == 3


async def test_pages_stay_the_same_while_tasks_come_and_change(world: DashboardWorld) -> None:
    api = world.program()
    ids = [await create(api, f"task {n}") for n in range(7)]

    first = (await api.get(f"{API}/tasks", params={"limit": 3})).json()
    await api.post(f"{API}/tasks/{ids[6]}/stop")
    await create(api, "newer")
    second = (await api.get(f"{API}/tasks", params={"limit": 3, "cursor": first["next"]})).json()
    third = (await api.get(f"{API}/tasks", params={"limit": 3, "cursor": second["next"]})).json()
    seen = [each["id"] for page in (first, second, third) for each in page["tasks"]]

    assert seen == ids[::-1]
    assert third["next"] is None


@pytest.mark.parametrize(
    ("path", "noun", "texts"),
    [
        ("memory", "memories", [f"the shed number {n} has a blue door" for n in range(7)]),
        (
            "schedules",
            "schedules",
            [f"remind me every day at {n + 8} to water the roses" for n in range(7)],
        ),
    ],
)
async def test_pages_of_other_lists_stay_the_same_too(
    world: DashboardWorld, path: str, noun: str, texts: list[str]
) -> None:
    api, ids = world.program("ann"), []
    for text in texts:
        made = await api.post(f"{API}/{path}", json={"text": text})
        assert made.status_code == 201, made.text
        ids.append(made.json()["id"])

    async def page(cursor: str) -> dict[str, Any]:
        answer = await api.get(f"{API}/{path}", params={"limit": 3, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    first = await page("")
    assert (await api.delete(f"{API}/{path}/{ids[5]}")).status_code == 204
    newer = texts[0].replace("number 0", "number 31").replace("at 8 ", "at 20 ")
    made = await api.post(f"{API}/{path}", json={"text": newer})
    assert made.status_code == 201, made.text
    second = await page(first["next"])
    third = await page(second["next"])

    pages = (first, second, third)
    assert [each["id"] for shown in pages for each in shown[noun]] == ids[::-1]
    assert third["next"] is None
    for cursor in ("x", "WyJ4Il0", "WyIxIiwiMiJd", "WyIyMDI2LTAxLTAxIiwieCJd", "W10", "WyItMSJd"):
        check_problem(await api.get(f"{API}/{path}", params={"cursor": cursor}), 400)


async def test_pages_of_approvals_go_on_after_the_last_that_was_shown(
    world: DashboardWorld,
) -> None:
    store, now = world.core.repositories, world.core.clock.now()
    api, chat = world.program("olga"), await world.core.get_local_chat()
    for n in range(5):
        at = now + timedelta(seconds=n // 2)
        await store.pairings.get_or_create(Channel.TELEGRAM, f"x{n}", f"Nr {n}", chat.id, now=at)
    whole = (await api.get(f"{API}/approvals")).json()

    first = (await api.get(f"{API}/approvals", params={"limit": 2})).json()
    decided = f"{API}/approvals/{first['approvals'][0]['id']}/decision"
    assert (await api.post(decided, json={"approve": False})).status_code == 200
    rest = (await api.get(f"{API}/approvals", params={"cursor": first["next"]})).json()

    assert len(whole["approvals"]) == 5
    assert whole["next"] is None
    assert first["approvals"] + rest["approvals"] == whole["approvals"]
    assert rest["next"] is None


async def test_a_schedule_runs_once_with_the_same_key(world: DashboardWorld) -> None:
    api, key = world.program("ann"), {"idempotency-key": "run it"}
    made = await api.post(f"{API}/schedules", json={"text": "every day at 9:00 write a haiku"})
    path = f"{API}/schedules/{made.json()['id']}"

    async def act(action: str, **headers: str) -> None:
        done = await api.post(f"{path}/actions", json={"action": action}, headers=headers)
        assert done.status_code == 200, done.text

    async def firings() -> list[str]:
        return [each["state"] for each in (await api.get(f"{path}/firings")).json()["firings"]]

    for _ in range(3):
        await act("run", **key)
    once = await firings()
    await act("run", **{"idempotency-key": "again"})
    await act("run")
    thrice = await firings()
    for _ in range(3):
        await act("skip", **{"idempotency-key": "skip it"})

    assert (len(once), len(thrice), len(await firings())) == (1, 3, 4)


def test_no_detail_of_a_problem_names_a_command_of_the_chat() -> None:
    for language in Language:
        words = catalog_for(language)
        texts = list(words.templates(("error.",)))
        assert sum("`/" in text for text in texts) > 50
        for text in texts:
            detail = without_commands(text, words)
            named = re.findall(r"(?<![\w/.:}])/([a-z]+)", detail)
            assert detail
            assert not [word for word in named if COMMANDS.find(word)], text


async def test_tasks_are_filtered_and_searched(world: DashboardWorld) -> None:
    api = world.program()
    plants, report = await create(api, "Water 100% of the plants"), await create(api, "写周报")
    await api.post(f"{API}/tasks/{report}/stop")

    async def found(**query: str) -> list[str]:
        answer = await api.get(f"{API}/tasks", params=query)
        return [each["id"] for each in answer.json()["tasks"]]

    assert await found(text="100%") == [plants]
    assert await found(text="周报") == [report]
    assert await found(text="_") == []
    assert await found(status="cancelled") == [report]
    assert await found(status="cancelled, pending") == [report, plants]


@pytest.mark.parametrize(
    "query",
    [
        *("cursor=x", "cursor=W10", "cursor=WyJhIiwiYiJd", "cursor=WyIyMDI2LTAxLTAxIiwiYiJd"),
        *("cursor=%FF", "limit=0", "limit=1e9", "limit=x", "status=nope", "nope=1"),
        f"text={'x' * 300}",
    ],
)
async def test_rubbish_in_the_query_is_refused(world: DashboardWorld, query: str) -> None:
    answer = await world.program().get(f"{API}/tasks?{query}")

    assert answer.status_code in {400, 422}
    check_problem(answer, answer.status_code)


async def test_members_see_and_steer_their_own_tasks_only(world: DashboardWorld) -> None:
    ann, bob, olga = (world.program(name) for name in ("ann", "bob", "olga"))
    of_ann, of_bob = await create(ann, "a"), await create(bob, "b")

    lists = [
        {each["id"] for each in (await api.get(f"{API}/tasks")).json()["tasks"]}
        for api in (ann, bob, olga)
    ]
    foreign = [
        await ann.get(f"{API}/tasks/{of_bob}{part}") for part in ("", "/events", "/graph", "/trace")
    ]
    foreign += [
        await ann.post(f"{API}/tasks/{of_bob}/{verb}", json=body)
        for verb, body in (
            *(("pause", {}), ("resume", {}), ("replan", {}), ("messages", {"text": "x"})),
            *(("priority", {"priority": "normal"}), ("steps", {"steps": ["x"]})),
            ("eval", {"expression": "1"}),
        )
    ]
    foreign += [await ann.post(f"{API}/tasks/{of_bob}/{verb}") for verb in ("stop", "retry")]
    foreign.append(await ann.get(f"{API}/events", params={"task": of_bob}))

    assert lists == [{of_ann}, {of_bob}, {of_ann, of_bob}]
    for each in foreign:
        check_problem(each, 404)
    assert (await olga.post(f"{API}/tasks/{of_bob}/pause", json={})).status_code == 200


async def test_hostile_texts_come_back_as_they_were(world: DashboardWorld) -> None:
    api = world.program()

    id_ = await create(api, HOSTILE, title=HOSTILE)
    shown = (await api.get(f"{API}/tasks/{id_}")).json()
    nul = await api.post(f"{API}/tasks", json={"text": "a\0b"})
    remembered = await api.post(f"{API}/memory", json={"text": HOSTILE})

    assert shown["instruction"] == HOSTILE
    check_problem(nul, 422)
    assert remembered.status_code == 201


async def test_a_browser_needs_the_same_origin_and_a_program_none(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    body = {"text": "from a page"}

    same = await browser.post(f"{API}/tasks", json=body)
    foreign = await browser.post(
        f"{API}/tasks", json=body, headers={"origin": "https://evil.example"}
    )
    del browser.headers["origin"]
    none = await browser.post(f"{API}/tasks", json=body)
    with_token = await world.program("olga", origin="https://evil.example").get(f"{API}/tasks")

    assert same.status_code == 201
    check_problem(foreign, 403)
    check_problem(none, 403)
    assert with_token.status_code == 200  # reading is safe: there is no CORS


async def test_only_approvers_see_and_decide_requests(world: DashboardWorld) -> None:
    store, now = world.core.repositories, world.core.clock.now()
    chat = await world.core.get_local_chat()
    await store.pairings.get_or_create(Channel.TELEGRAM, "x9", "Stranger", chat.id, now=now)
    ann, olga = world.program("ann"), world.program("olga")
    (waiting,) = (await olga.get(f"{API}/approvals")).json()["approvals"]

    hidden = [await ann.get(f"{API}/approvals"), await ann.get(f"{API}/approvals/{waiting['id']}")]
    refused = await ann.post(f"{API}/approvals/{waiting['id']}/decision", json={"approve": True})
    decided = await olga.post(f"{API}/approvals/{waiting['id']}/decision", json={"approve": True})
    second = await olga.post(f"{API}/approvals/{waiting['id']}/decision", json={"approve": False})

    assert waiting["kind"] == ApprovalKind.PAIRING
    assert hidden[0].json() == {"approvals": [], "next": None}
    check_problem(hidden[1], 404)
    check_problem(refused, 404)
    assert decided.json()["state"] == "approved"
    check_problem(second, 409)


async def test_memory_is_added_searched_edited_and_forgotten(world: DashboardWorld) -> None:
    olga, ann = world.program("olga"), world.program("ann")
    key = {"idempotency-key": "k1"}
    added = [
        (await olga.post(f"{API}/memory", json={"text": "The cat is Tilly"}, headers=key)).json()
        for _ in range(2)
    ]
    path = f"{API}/memory/{added[0]['id']}"

    found = (await olga.get(f"{API}/memory", params={"text": "Tilly"})).json()["memories"]
    of_ann = (await ann.get(f"{API}/memory", params={"text": "Tilly"})).json()["memories"]
    narrowed = [
        len((await olga.get(f"{API}/memory", params={"text": "Tilly", **each})).json()["memories"])
        for each in (
            {"kind": "longterm", "scope": "me"},
            {"kind": "handbook"},
            {"kind": "archived"},
            {"scope": "global"},
        )
    ]
    foreign = [
        await ann.get(path),
        await ann.put(path, json={"text": "x", "revision": 1}),
        await ann.delete(path),
    ]
    # Finding it counted as a use.
    revision = (await olga.get(path)).json()["revision"]
    edited = await olga.put(path, json={"text": "The cat is Otto", "revision": revision})
    stale = await olga.put(path, json={"text": "x", "revision": revision})
    gone = await olga.delete(path)
    await olga.put(f"{API}/memory/mode", json={"mode": "incognito"})
    mode = (await olga.get(f"{API}/memory/mode")).json()
    unknown = await olga.put(f"{API}/memory/mode", json={"mode": "maybe"})
    await olga.put(f"{API}/memory/mode", json={"mode": "on"})

    assert mode == {"mode": "incognito"}
    check_problem(unknown, 422)
    assert added[0] == added[1], "a repeat changes nothing, the revision neither"
    assert narrowed == [1, 0, 0, 0]
    assert [each["id"] for each in found] == [added[0]["id"]]
    assert of_ann == []
    for each in foreign:
        check_problem(each, 404)
    assert edited.status_code == 200, edited.text
    assert edited.json()["text"] == "The cat is Otto"
    check_problem(stale, 409)
    assert gone.status_code == 204
    check_problem(await olga.get(path), 404)


async def test_schedules_are_made_from_words_and_changed(world: DashboardWorld) -> None:
    ann, bob = world.program("ann"), world.program("bob")
    made = await ann.post(f"{API}/schedules", json={"text": "every day at 9 write the report"})
    path = f"{API}/schedules/{made.json()['id']}"

    unclear = await ann.post(f"{API}/schedules", json={"text": "hello"})
    paused = await ann.post(f"{path}/actions", json={"action": "pause"})
    resumed = await ann.post(f"{path}/actions", json={"action": "resume"})
    log = await ann.get(f"{path}/firings")
    foreign = [await bob.get(path), await bob.delete(path), await bob.get(f"{path}/firings")]
    deleted = await ann.delete(path)

    assert made.status_code == 201
    assert made.json()["next_due"]
    check_problem(unclear, 422)
    assert paused.json()["state"] == "paused"
    assert resumed.json()["next_due"]
    assert log.json() == {"firings": []}
    for each in foreign:
        check_problem(each, 404)
    assert deleted.status_code == 204


WORKFLOW = """
name: Greeting
description: says hello
inputs:
  who: {type: text}
nodes:
  - {id: hello, type: task, prompt: "Say hello to {{ inputs.who }}"}
"""


async def test_an_expression_is_evaluated_in_a_run(world: DashboardWorld) -> None:
    olga = world.program("olga")
    await olga.put(f"{API}/workflows/greeting", json={"text": WORKFLOW})
    run = await olga.post(f"{API}/workflows/greeting/runs", json={"inputs": {"who": "Bob"}})
    path = f"{API}/tasks/{run.json()['id']}/eval"

    found = (await olga.post(path, json={"expression": "inputs.who + '!'"})).json()
    unknown = (await olga.post(path, json={"expression": "inputs.whom"})).json()
    without_plan = await olga.post(
        f"{API}/tasks/{await create(olga, 'a')}/eval", json={"expression": "1"}
    )

    assert (found["value"], found["type"], found["error"]) == ("Bob!", "text", "")
    assert "whom" in unknown["error"]
    check_problem(without_plan, 422)


async def test_workflows_are_validated_saved_run_and_deleted(world: DashboardWorld) -> None:
    olga, ann = world.program("olga"), world.program("ann")
    path = f"{API}/workflows/greeting"
    other = WORKFLOW.replace("says hello", "says good day")

    bad = await ann.post(f"{API}/workflows/validate", json={"text": "nodes:\n  - {id: a, typ: x}"})
    good = (await ann.post(f"{API}/workflows/validate", json={"text": WORKFLOW})).json()
    refused = check_problem(await olga.put(path, json={"text": "name: x\nnodes:\n\t- a: b"}), 422)
    made = await olga.put(path, json={"text": WORKFLOW})
    taken = await olga.put(path, json={"text": other})
    seen = {"if-match": f'"{made.json()["hash"]}"'}
    changed = await olga.put(path, json={"text": other}, headers=seen)
    stale = [
        await olga.put(path, json={"text": WORKFLOW}, headers=seen),
        await olga.put(path, json={"text": WORKFLOW}, headers={"if-match": "nonsense"}),
        await olga.delete(path, headers=seen),
    ]
    source = (await olga.get(f"{path}/source")).json()
    missing = await ann.post(f"{path}/runs", json={})
    dry = await ann.post(f"{path}/dry-run", json={"inputs": {"who": "Bob"}})
    misfit = await ann.post(
        f"{path}/dry-run", json={"inputs": {"who": "Bob"}, "given": "nobody: x"}
    )
    untested = await ann.post(f"{path}/tests")
    key = {"idempotency-key": "k"}
    runs = [
        await ann.post(f"{path}/runs", json={"inputs": {"who": "Bob"}}, headers=key)
        for _ in range(2)
    ]
    listed = (await ann.get(f"{API}/workflows")).json()
    foreign = [
        *(await ann.put(path, json={"text": other}), await ann.delete(path)),
        await ann.get(f"{path}/source"),
    ]
    gone = await olga.delete(path, headers={"if-match": source["hash"]})

    fault = next(each for each in bad.json()["diagnostics"] if each["field"] == "typ")
    assert (fault["line"], fault["column"], fault["written"]) == (2, 13, "typ")
    assert (fault["severity"], fault["suggestion"]) == ("error", "type")
    assert good["drawing"].startswith("<svg")
    assert "<style" not in good["drawing"]
    assert refused["errors"][0]["field"] == "text:3:1"
    assert made.status_code == changed.status_code == 200, changed.text
    check_problem(taken, 409)
    for each in stale:
        assert check_problem(each, 409)["type"].endswith(("-changed", "-conflict"))
    assert (source["text"], source["hash"]) == (other, changed.json()["hash"])
    check_problem(missing, 422)
    assert (dry.status_code, dry.json()["end"]) == (200, "completed"), dry.text
    assert "Bob" in dry.json()["nodes"][1]["prompt"]
    for each in (misfit, untested):
        assert each.json()["type"].startswith("urn:shiftboss:problem:"), each.text
    assert runs[0].status_code == 201, runs[0].text
    assert runs[0].json()["id"] == runs[1].json()["id"]
    assert [each["description"] for each in listed["workflows"]] == ["says good day"]
    for each in foreign:
        check_problem(each, 403)
    assert gone.status_code == 204
    check_problem(await olga.get(f"{path}/source"), 404)


async def test_hostile_workflows_are_told_and_harm_no_other(world: DashboardWorld) -> None:
    api = world.program("olga")
    folder = world.core.settings.home / "workflows"
    folder.mkdir(exist_ok=True)
    bomb = "a: &a [x,x]\nb: &b [*a,*a]\n" + "\n".join(f"c{n}: [*b,*b]" for n in range(50))
    (folder / "bomb.yaml").write_text(bomb, encoding="utf-8")
    (folder / "good.yaml").write_text(WORKFLOW, encoding="utf-8")
    many = "name: x\nnodes:\n" + "".join(f"  - {{id: n{n}, type: q}}\n" for n in range(2_000))

    listed = (await api.get(f"{API}/workflows")).json()
    told = [
        await api.post(f"{API}/workflows/validate", json={"text": text})
        for text in (bomb, "[" * 90_000, "\t" * 90_000, "\x1b" * 90_000, many, HOSTILE)
    ]
    names = ("../x", "..%2Fx", "a%00b", ".x", "a.b", "readme", "x" * 65, "%F0%9F%99%82", "a b")
    refused = [await api.put(f"{API}/workflows/{name}", json={"text": WORKFLOW}) for name in names]

    assert [each["name"] for each in listed["workflows"]] == ["good"]
    assert [each["name"] for each in listed["invalid"]] == ["bomb"]
    assert {"yaml_alias"} <= {each["code"] for each in listed["invalid"][0]["diagnostics"]}
    for each in told:
        assert each.json()["workflow"] is None
        assert 1 <= len(each.json()["diagnostics"]) <= 20
        assert len(each.content) < 20_000
    for each in refused:
        assert each.status_code in {404, 405, 422}, each.text
    assert sorted(each.name for each in folder.iterdir()) == ["bomb.yaml", "good.yaml"]


async def test_people_costs_and_health(world: DashboardWorld) -> None:
    olga, ann = world.program("olga"), world.program("ann")

    people = (await olga.get(f"{API}/people")).json()["people"]
    me = (await ann.get(f"{API}/people/me")).json()
    costs = (await ann.get(f"{API}/costs", params={"period": "today"})).json()
    health = (await olga.get(f"{API}/health")).json()

    assert {each["person"]["name"] for each in people} >= {"Olga", "Ann", "Bob"}
    assert (me["name"], me["role"]) == ("Ann", "member")
    assert costs["total"]["calls"] == 0
    assert health["channels"][0] == {"channel": "web", "problem": ""}


async def test_unknown_paths_and_methods_are_problems_too(world: DashboardWorld) -> None:
    api = world.program()

    check_problem(await api.get(f"{API}/nope"), 404)
    check_problem(await api.get(f"{API}/"), 404)
    wrong = await api.delete(f"{API}/tasks")
    check_problem(wrong, 405)
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    check_problem(await api.post(f"{API}/tasks", content=b"[" * 100_000), 415)
    deep = {"content-type": "application/json"}
    check_problem(await api.post(f"{API}/tasks", content=b"[" * 100_000, headers=deep), 400)


async def test_rights_end_for_a_token_that_is_in_use(world: DashboardWorld) -> None:
    olga, store = world.program("olga"), world.core.repositories
    before = await olga.get(f"{API}/people")

    await store.people.demote(world.people["olga"].id)

    assert before.status_code == 200
    check_problem(await olga.get(f"{API}/people"), 403)
    assert (await olga.get(f"{API}/tasks")).status_code == 200
