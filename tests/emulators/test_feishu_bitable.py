"""The emulated Bitable keeps the platform's promises, and client and emulator speak as the SDK."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, get_args, get_origin
from uuid import uuid4

import httpx
import pytest

from bot.sync.ports import (
    BaseId,
    CellValue,
    FieldId,
    FieldOption,
    FieldType,
    NewTableField,
    TableField,
    TableRef,
)
from bot.transports.feishu.api import FeishuApi, build_http_client
from bot.transports.feishu.bitable import FeishuTableService
from tests.emulators.feishu.app_client import FeishuAppClient
from tests.emulators.feishu.bitable import FeishuBase
from tests.emulators.feishu.emulator import FeishuEmulator

_MODELS = "lark_oapi.api.{}.v1.model"
_BARE = (
    "lark_oapi",
    "lark_oapi.api",
    *(f"lark_oapi.api.{each}{end}" for each in ("bitable", "drive") for end in ("", ".v1")),
    *(_MODELS.format(each) for each in ("bitable", "drive")),
)
_CALLS = {
    "bitable": (
        *("create_app", "get_app", "list_app_table", "create_app_table", "delete_app_table"),
        *(f"{verb}_app_table_field" for verb in ("list", "create", "update")),
        *("list_app_table_view", "create_app_table_view", "search_app_table_record"),
        *(f"batch_{verb}_app_table_record" for verb in ("create", "update", "delete", "get")),
    ),
    "drive": (
        *("list_permission_member", "create_permission_member"),
        *("get_subscribe_file", "subscribe_file"),
    ),
}


@pytest.fixture
async def fs() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator() as emulator:
        yield emulator


@pytest.fixture
async def app(fs: FeishuEmulator) -> AsyncIterator[FeishuAppClient]:
    async with httpx.AsyncClient(base_url=fs.domain) as http:
        app = FeishuAppClient(fs, http)
        await app.login()
        yield app


@pytest.fixture
def load_sdk() -> Iterator[Callable[[str, str], ModuleType]]:
    """Loads modules of the SDK without all that its packages load."""
    added = []
    for name in _BARE:
        if name not in sys.modules:
            spec = find_spec(name)
            assert spec is not None
            module = ModuleType(name)
            module.__path__ = list(spec.submodule_search_locations or ())
            sys.modules[name] = module
            added.append(name)
    try:
        yield lambda area, name: importlib.import_module(f"{_MODELS.format(area)}.{name}")
    finally:
        for name in added:
            del sys.modules[name]


def _class(module: ModuleType, end: str) -> Any:
    """The class of a generated module, found by its name."""
    wanted = module.__name__.rpartition(".")[2].replace("_", "") + end.lower()
    return next(value for name, value in vars(module).items() if name.lower() == wanted)


def _misfits(kind: Any, value: Any, at: str) -> list[str]:
    """Where a JSON value is not of a type that the SDK declares."""
    if value is None or kind in (Any, None):
        return []
    if get_origin(kind) is list:
        if not isinstance(value, list):
            return [f"{at}: no list"]
        (item,) = get_args(kind)
        return [each for one in value for each in _misfits(item, one, f"{at}[]")]
    if get_origin(kind) is dict:
        return [] if isinstance(value, dict) else [f"{at}: no object"]
    if kind in (str, int, bool, float):
        return [] if isinstance(value, kind) else [f"{at}: {value!r} is no {kind.__name__}"]
    types = kind._types
    found = [f"{at}.{name}: unknown" for name in value if name not in types]
    for name in value.keys() & types.keys():
        found += _misfits(types[name], value[name], f"{at}.{name}")
    return found


async def test_requests_answers_and_events_have_the_shapes_of_the_sdk(
    fs: FeishuEmulator, load_sdk: Callable[[str, str], ModuleType]
) -> None:
    answers: list[tuple[str, str, Any]] = []

    async def note(response: httpx.Response) -> None:
        body = json.loads(await response.aread())
        answers.append((response.request.method, response.request.url.path, body.get("data")))

    async with build_http_client(fs.domain) as client:
        client.event_hooks["response"].append(note)
        await _use_everything(fs, client)
    misfits, seen = list[str](), set[str]()
    for area, names in _CALLS.items():
        for name in names:
            request = load_sdk(area, f"{name}_request")
            builder = _class(request, "Builder")()
            built = builder.build()
            pattern = re.compile(re.sub(r":\w+", "[^/]+", built.uri))
            for sent, (method, path, data) in zip(fs.requests[1:], answers[1:], strict=True):
                if method != built.http_method.name or not pattern.fullmatch(path):
                    continue
                seen.add(name)
                misfits += [f"{name}?{each}" for each in sent.query if not hasattr(builder, each)]
                if sent.json is not None:
                    misfits += _misfits(_body_class(request), sent.json, name)
                answer = load_sdk(area, f"{name}_response")
                misfits += _misfits(_class(answer, "")._types.get("data"), data, name)

    assert misfits == []
    assert seen == {name for names in _CALLS.values() for name in names}
    kinds = {each.event_type: each.body["event"] for each in fs.pushes}
    for kind, event in kinds.items():
        module = load_sdk("drive", "p2_" + kind.replace(".", "_"))
        data = _class(module, "")._types["event"]
        assert _misfits(data, event, kind) == []
    assert len(kinds) == 2


def _body_class(request: ModuleType) -> Any:
    """The class of the request's body, which the module imports beside those of its base."""
    base = {"BaseRequest", "HttpMethod", "AccessTokenType"}
    own = _class(request, "").__name__
    return next(
        value
        for name, value in vars(request).items()
        if (hasattr(value, "_types") and name not in base and not name.startswith(own))
        or name == f"{own}Body"
    )


async def _use_everything(fs: FeishuEmulator, client: httpx.AsyncClient) -> None:
    api = FeishuApi(
        client=client,
        app_id=fs.app_id,
        app_secret=fs.app_secret,
        now=fs.clock.now,
        on_call=lambda: None,
    )
    service = FeishuTableService(api, web_domain=fs.domain)
    base = await service.create_base("Work")
    await service.get_base(base.id)
    await service.share_with(base.id, fs.user("Anna").open_id)
    await service.subscribe_changes(base.id)
    columns = [
        NewTableField(name="Title", type=FieldType.TEXT),
        NewTableField(name="Status", type=FieldType.SINGLE_SELECT, options=("New", "Done")),
        NewTableField(name="Who", type=FieldType.PERSON),
        NewTableField(name="Changed", type=FieldType.MODIFIED_TIME),
    ]
    table = await service.create_table(base.id, "Tasks", columns, view="All")
    ref = TableRef(base=base.id, table=table)
    await service.create_view(ref, "Board", kind="kanban")
    await service.list_views(ref)
    await service.create_field(ref, NewTableField(name="Due", type=FieldType.DATE))
    fields = {each.name: each for each in await service.list_fields(ref)}
    status = fields["Status"]
    more = (*status.options, FieldOption(name="Paused"))
    await service.update_field(
        ref, TableField(id=status.id, name="State", type=status.type, options=more)
    )
    row: dict[FieldId, CellValue] = {
        fields["Title"].id: "x",
        status.id: "Paused",
        fields["Who"].id: (fs.user("Anna").open_id,),
        fields["Due"].id: 1_800_000_000_000,
    }
    made = await service.create_records(ref, [row], client_token=str(uuid4()))
    await service.update_records(ref, {made[0]: {fields["Title"].id: "y"}})
    await service.get_records(ref, made)
    await service.search(ref, modified_since=0)
    await service.delete_records(ref, made)
    default = next(each for each in await service.list_tables(base.id) if each.id != table)
    await service.delete_table(TableRef(base=BaseId(base.id), table=default.id))


# --- what the platform refuses ---------------------------------------------------------------


def _table(fs: FeishuEmulator) -> tuple[FeishuBase, str]:
    """A base, and the path of its only table."""
    base = fs.bitable.new_base("Work")
    (table,) = base.tables
    return base, f"/bitable/v1/apps/{base.token}/tables/{table}"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"文本": 7}, 1254060),
        ({"数": "7"}, 1254061),
        ({"数": True}, 1254061),
        ({"单选": ["a"]}, 1254062),
        ({"日期": "2026-01-01"}, 1254064),
        ({"人": [{"id": "ou_nobody"}]}, 1254066),
        ({"附件": "file"}, 1254069),
        ({"公式": "x"}, 1254015),
        ({"nothing": "x"}, 1254045),
        ("x", 1254001),
    ],
)
async def test_a_wrong_value_refuses_the_whole_call(
    app: FeishuAppClient, fields: Any, code: int
) -> None:
    base, path = _table(app.fs)
    table = base.table("数据表")
    new = [("数", 2), ("人", 11), ("公式", 20)]
    extra = app.fs.bitable.new_table(base, "extra", new, "x")
    table.columns += extra.columns
    before = len(table.live)

    records = [{"fields": {"文本": "fine"}}, {"fields": fields}]
    status, found, _ = await app.call(
        "POST", f"{path}/records/batch_create", json={"records": records}
    )

    assert found == code
    assert status == (400 if code == 1254015 else 200)
    assert len(table.live) == before


async def test_limits_are_told_with_http_200(app: FeishuAppClient) -> None:
    base, path = _table(app.fs)
    table = base.table("数据表")
    ids = [row.record_id for row in table.live]
    many: list[Any] = [{"fields": {}}] * 1001

    async def code(call: str, body: Any, query: str = "") -> tuple[int, int]:
        app.fs.advance(1)
        return (await app.call("POST", f"{path}/records/{call}{query}", json=body))[:2]

    assert await code("batch_create", {"records": many}) == (200, 1254104)
    assert await code("batch_delete", {"records": ids * 101}) == (200, 1254104)
    assert await code("batch_get", {"record_ids": ids * 21}) == (200, 1254001)
    assert await code("search", {}, "?page_size=501") == (400, 99992402)
    assert await code("batch_create", {"records": many[:1]}, "?client_token=x") == (200, 1254001)
    app.fs.bitable.max_rows = 5
    assert await code("batch_create", {"records": many[:1]}) == (200, 1254103)
    gone = {"records": [ids[0], "recNothing"]}
    assert await code("batch_delete", gone) == (200, 1254043)
    assert len(table.live) == 5


async def test_a_page_has_twenty_rows_unless_more_are_asked_for(app: FeishuAppClient) -> None:
    base, path = _table(app.fs)
    for _ in range(20):
        app.fs.bitable.insert(base.table("数据表"), {}, app.fs.bot_id)

    _, _, page = await app.call("POST", f"{path}/records/search", json={})

    assert (len(page["items"]), page["total"], page["has_more"]) == (20, 25, True)


async def test_a_write_during_another_to_the_same_table_is_refused(app: FeishuAppClient) -> None:
    base, path = _table(app.fs)
    app.fs.bitable.write_seconds = 60.0
    base.table("数据表").busy_until = app.fs.clock.now() + 60

    body: dict[str, Any] = {"records": [{"fields": {}}]}
    assert (await app.call("POST", f"{path}/records/batch_create", json=body))[:2] == (200, 1254291)


async def test_reads_lag_behind_writes(app: FeishuAppClient) -> None:
    base, path = _table(app.fs)
    app.fs.bitable.read_lag = 2.0
    body = {"records": [{"fields": {"文本": "new"}}]}
    _, _, made = await app.call("POST", f"{path}/records/batch_create", json=body)
    asked = {"record_ids": [made["records"][0]["record_id"]]}

    _, _, early = await app.call("POST", f"{path}/records/batch_get", json=asked)
    app.fs.advance(2)
    _, _, late = await app.call("POST", f"{path}/records/batch_get", json=asked)

    assert early["absent_record_ids"] == asked["record_ids"]
    assert late["records"][0]["fields"]["文本"] == [{"text": "new", "type": "text"}]
    assert base.table("数据表").live
