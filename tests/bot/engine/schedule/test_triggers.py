"""Triggers: one task for each event, whatever comes twice, and nothing for what does not fit."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from starlette.applications import Starlette
from starlette.testclient import TestClient

from bot.engine.schedule.triggers import HOOKS_PER_MINUTE, TriggerService, match_pattern
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.transports.web.hooks import hook_route
from handlers.errors import UserError
from storage import schema
from storage.errors import StoreUnavailable
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.people import Language, PersonRole
from storage.records.tasks import Task
from storage.records.triggers import NewTrigger, Trigger, TriggerKind
from storage.shared_files import OneFolder
from storage.triggers import TriggerRepo
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import WorkflowWorld, workflow_world
from tests.engine_harness import BOSS, CHAT, ManualClock
from tests.waiting import WAIT_SECONDS

NOTE = """\
name: Note
inputs: [{name: topic}, {name: n, type: number, default: 1}, {name: file, required: false}]
nodes: [{id: write, name: "Write {{inputs.topic}} {{inputs.n}}"}]
"""


@dataclass
class TriggerWorld:
    here: WorkflowWorld
    service: TriggerService

    async def add(self, kind: TriggerKind, **how: Any) -> tuple[Trigger, str]:
        new = NewTrigger(kind=kind, workflow="note", chat_id=CHAT.id, owner_id=BOSS.id)
        return await self.service.add(replace(new, **how))

    async def titles(self) -> list[str]:
        rows = await self.here.engine.db.fetch_all(select(schema.tasks).order_by("created_at"))
        return [row.title for row in rows]


@asynccontextmanager
async def trigger_world(
    home: Path, clock: ManualClock | None = None
) -> AsyncGenerator[TriggerWorld, None]:
    library = WorkflowLibrary(home)
    await library.save("note", NOTE, replace=True)
    clock = clock or ManualClock()
    async with workflow_world(home, clock=clock, start_dispatcher=False) as here:
        db, ids = here.engine.db, IdGenerator()
        names = iter(f"tr{n}" for n in range(1_000))
        yield TriggerWorld(
            here=here,
            service=TriggerService(
                db=db,
                triggers=TriggerRepo(db),
                task_repo=here.engine.store.tasks,
                people=PeopleRepo(db, ids, ChatRepo(db, ids)),
                tasks=here.engine.tasks,
                workflows=library,
                files=OneFolder(),
                home=home,
                web_url="http://boss.test/",
                now=clock,
                new_id=lambda: next(names),
                on_tasks=lambda: None,
            ),
        )


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("deploy {what}", "Deploy the  shop now", {"what": "the shop now"}),
        ("deploy {what} to {where}", "deploy shop to eu", {"what": "shop", "where": "eu"}),
        ("deploy {what} to {where}", "deploy shop eu", None),
        ("deploy {what}", "deploy", None),
        ("please * build", "please now build", {}),
        ("build *", "build it all", {}),
        ("build", "build it", None),
        ("部署 {what}", "部署 商店", {"what": "商店"}),
    ],
)
def test_a_message_matches_word_by_word(
    pattern: str, text: str, found: dict[str, str] | None
) -> None:
    assert match_pattern(pattern, text) == found


async def test_a_message_starts_one_task_of_its_sender(tmp_path: Path) -> None:
    async with trigger_world(tmp_path) as world:
        trigger, _ = await world.add(TriggerKind.MESSAGE, pattern="note {topic}", sender="owner")

        async def say(text: str, source: str, role: PersonRole = PersonRole.OWNER) -> Task | None:
            by = replace(BOSS, role=role)
            return await world.service.on_message(text, chat=CHAT.id, by=by, source=source)

        made = await say("note otters", "m1")
        again = await say("note otters", "m1")
        assert made is not None
        assert again is not None
        assert again.id == made.id
        assert await say("note otters", "m2", PersonRole.MEMBER) is None
        assert await say("otters", "m3") is None
        await world.service.set_enabled(trigger.id, enabled=False)
        assert await say("note otters", "m4") is None
        await world.service.remove(trigger.id)
        assert await world.service.list() == []
        assert await world.titles() == ["Note: otters"]


async def test_a_note_is_in_the_language_of_the_owner(tmp_path: Path) -> None:
    async with trigger_world(tmp_path) as world:
        await world.add(TriggerKind.MESSAGE, pattern="note {n}")
        await world.service.people.set_language(BOSS, Language.CHINESE)
        with pytest.raises(UserError):
            await world.service.on_message("note otters", chat=CHAT.id, by=BOSS, source="m1")
        (view,) = await world.service.list()

        assert view.last is not None
        assert view.last.note == "这些输入缺少或无效：n, topic"


async def test_a_new_file_starts_one_task_with_the_file(tmp_path: Path) -> None:
    folder, home = tmp_path / "in", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / "old.txt").write_text("old")
    clock = ManualClock()
    async with trigger_world(home, clock) as world:
        trigger, _ = await world.add(
            TriggerKind.FILE, folder=str(folder), inputs={"topic": "a file"}
        )
        (folder / "new.txt").write_text("new")
        (folder / "link").symlink_to("/etc/passwd")
        (folder / ".hidden").write_text("x")
        (folder / "sub").mkdir()
        os.mkfifo(folder / "pipe")
        now = clock().timestamp()
        for name in ("new.txt", ".hidden"):
            os.utime(folder / name, (now, now))

        await world.service.look_for_files(trigger)
        assert await world.titles() == []
        clock.advance(seconds=5)
        for _ in range(2):
            await world.service.look_for_files(trigger)

        (task,) = await world.here.engine.db.fetch_all(select(schema.tasks))
        (copy,) = task.files
        assert Path(copy).name == "new.txt"
        assert (home / copy).read_text() == "new"


async def test_an_outage_of_the_store_ends_neither_the_program_nor_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    async with trigger_world(tmp_path) as world:
        await world.add(TriggerKind.FILE, folder=str(folder), inputs={"topic": "x"})
        (folder / "a.txt").write_text("a")
        os.utime(folder / "a.txt", (0, 0))
        service, asked = world.service, asyncio.Event()

        class Unavailable(TriggerRepo):
            async def list_enabled(self, *_args: Any, **_named: Any) -> Any:
                service.triggers = whole
                asked.set()
                raise StoreUnavailable("the disk is full")

        whole, service.triggers = service.triggers, Unavailable(service.db)
        monkeypatch.setattr("bot.engine.schedule.triggers._POLL_SECONDS", 0.01)
        watching = asyncio.create_task(service.run())
        await asked.wait()
        async with asyncio.timeout(WAIT_SECONDS):
            while not await world.titles():
                assert not watching.done()
                await asyncio.sleep(0.01)
        watching.cancel()


async def test_a_folder_with_too_many_files_starts_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.engine.schedule.triggers._MAX_FILES", 2)
    home, folder = tmp_path / "home", tmp_path / "in"
    home.mkdir()
    folder.mkdir()
    async with trigger_world(home) as world:
        how = {"folder": str(folder), "inputs": {"topic": "f"}}
        trigger, _ = await world.add(TriggerKind.FILE, **how)
        for name in ("a", "b", "c"):
            (folder / name).write_text(name)
            os.utime(folder / name, (0, 0))
        with pytest.raises(UserError) as refused:
            await world.add(TriggerKind.FILE, folder=str(folder))
        for _ in range(2):
            await world.service.look_for_files(trigger)
        (view,) = await world.service.list()
        assert await world.titles() == []
        (folder / "c").unlink()
        await world.service.look_for_files(trigger)

        assert refused.value.key == "trigger_crowded"
        assert view.last is not None
        assert "more than 2 files" in view.last.note
        assert len(await world.titles()) == 2


@pytest.mark.parametrize("nth", [1, 2])
async def test_a_file_starts_one_task_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    folder, home, clock = tmp_path / "in", tmp_path / "home", ManualClock()
    folder.mkdir()
    home.mkdir()
    async with trigger_world(home, clock) as world:
        trigger, _ = await world.add(TriggerKind.FILE, folder=str(folder), inputs={"topic": "f"})
        for name in ("a", "b"):
            (folder / name).write_text(name)
            os.utime(folder / name, (0, 0))
        death = CrashAfterCommit(nth)
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(world.service.look_for_files(trigger))
    async with trigger_world(home, clock) as world:
        await world.service.look_for_files(trigger)
        assert sorted(await world.titles()) == ["Note: f · a", "Note: f · b"]


async def test_a_webhook_starts_one_task_for_each_event(tmp_path: Path) -> None:
    clock = ManualClock()
    async with trigger_world(tmp_path, clock) as world:
        trigger, address = await world.add(TriggerKind.WEBHOOK)
        assert address.startswith("http://boss.test/hooks/")
        token = address.rpartition("/")[2]
        assert token not in str(await world.service.list())

        async def post(body: object, kind: str = "application/json", key: str = "") -> int:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            got = await world.service.receive(token, raw, content_type=kind, key=key)
            return got.status

        assert await post({"topic": "otters", "n": 2, "x": [1]}) == 202
        assert await post({"topic": "otters", "n": 2, "x": [1]}) == 200
        assert await post({"topic": "otters"}, key="k1") == 202
        assert await post({"topic": "seals"}, key="k1") == 200
        assert await post(b"topic=owls&n=4", "application/x-www-form-urlencoded") == 202
        assert await post({"topic": "x", "n": "many"}) == 422
        assert await post({"n": 1}) == 422
        assert await post(b"{", "application/json; charset=utf-8") == 400
        assert await post(b"[" * 100_000) == 400
        assert await post(b"\xff\xfe") == 400
        assert await post(b"<x/>", "application/xml") == 415
        assert await post(b"x" * 300_000, "text/plain") == 413
        titles = ["Note: otters · 2", "Note: otters", "Note: owls · 4"]
        assert sorted(await world.titles()) == sorted(titles)

        told = [await post({"topic": "otters"}, key="k1") for _ in range(HOOKS_PER_MINUTE)]
        assert told[-1] == 429
        clock.advance(minutes=2)
        assert await post({"topic": "otters"}, key="k1") == 200
        _, renewed = await world.service.renew_token(trigger.id)
        assert await post({"topic": "late"}) == 404
        token = renewed.rpartition("/")[2]
        assert await post({"topic": "late"}) == 202
        await world.service.set_enabled(trigger.id, enabled=False)
        assert await post({"topic": "later"}) == 404


async def test_the_same_body_starts_one_task_in_ten_minutes_whenever_they_begin(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    clock.advance(minutes=7)
    async with trigger_world(tmp_path, clock) as world:
        _, address = await world.add(TriggerKind.WEBHOOK)
        token, told = address.rpartition("/")[2], []
        for _ in range(21):
            got = await world.service.receive(
                token, b'{"topic": "otters"}', content_type="application/json", key=""
            )
            told.append(got.status)
            clock.advance(minutes=1)

    assert told == [202, *[200] * 9, 202, *[200] * 9, 202]


async def test_two_requests_at_once_start_one_task(tmp_path: Path) -> None:
    async with trigger_world(tmp_path) as world:
        _, address = await world.add(TriggerKind.WEBHOOK)
        token, body = address.rpartition("/")[2], b'{"topic": "otters"}'
        got = await asyncio.gather(
            *(
                world.service.receive(token, body, content_type="application/json", key="k")
                for _ in range(4)
            )
        )

        assert sorted(each.status for each in got) == [200, 200, 200, 202]
        assert len({each.task_id for each in got}) == 1
        assert await world.titles() == ["Note: otters"]


async def test_what_could_never_start_is_refused(tmp_path: Path) -> None:
    async with trigger_world(tmp_path) as world:
        for kind, how, error in (
            (TriggerKind.MESSAGE, {}, "trigger_pattern"),
            (TriggerKind.FILE, {"folder": "in"}, "trigger_folder"),
            (TriggerKind.FILE, {"folder": "/nowhere/at/all"}, "trigger_folder"),
            (TriggerKind.WEBHOOK, {"inputs": {"nobody": "x"}}, "trigger_input"),
        ):
            with pytest.raises(UserError) as refused:
                await world.add(kind, **how)

            assert refused.value.key == error
        assert await world.service.list() == []


def test_the_address_takes_only_small_posts() -> None:
    class Result:
        status, task_id, note = 202, "t1", ""

    seen: list[tuple[str, bytes, str, str]] = []

    async def receive(token: str, body: bytes, *, content_type: str, key: str) -> Result:
        seen.append((token, body, content_type, key))
        return Result()

    client = TestClient(Starlette(routes=[hook_route(receive)]))
    headers = {"content-type": "text/plain", "x-github-delivery": "d1"}

    assert client.post("/hooks/abc", content=b"hi", headers=headers).json() == {"task": "t1"}
    assert client.post("/hooks/abc", content=b"x" * 10_000_000).status_code == 413
    assert client.post(f"/hooks/{'a' * 200}", content=b"hi").status_code == 404
    assert client.get("/hooks/abc").status_code == 405
    assert seen == [("abc", b"hi", "text/plain", "d1")]
