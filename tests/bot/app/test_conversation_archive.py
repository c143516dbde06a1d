"""Who may look back into what: by chat, by person, by task."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bot.app.repositories import RepositorySet, build_repositories
from bot.app.workers import build_session_accounts, build_worker_history
from bot.config.settings import Settings
from bot.engine.agent.memory_hooks import WorkerHistory
from bot.engine.memory.conversation_archive.service import ConversationHistoryService
from bot.engine.workers.spec import CostAccount
from bot.transports.ports import SystemClock
from storage.memory.cells import CompactionJobRepo
from storage.records.people import Chat, Person
from storage.records.tasks import NewTask, TaskId, TaskPriority
from storage.records.workers import NewSubagent
from storage.subagents import SubagentRepo
from tests.bot.engine.memory.conversation_archive.archive_builders import (
    assistant_message,
    user_message,
)
from tests.engine_harness import BOSS, CHAT, GROUP, MATE, START, open_seeded_database


@dataclass
class HistorySetup:
    store: RepositorySet
    past: WorkerHistory
    service: ConversationHistoryService

    async def say(self, key: str, text: str) -> None:
        async with self.store.db.write() as tx:
            session = await self.store.sessions.start(
                tx, id=f"{key}-1", key=key, backend="fake", model="", now=START
            )
            rows = [user_message(text), assistant_message("noted")]
            await self.store.sessions.append_messages(tx, session.id, rows, tokens=9, now=START)

    async def finds(self, person: Person, chat: Chat) -> set[str]:
        found = (await self.service.search(person, chat, ["secret"], 50)).lines
        return {line.text.removeprefix("secret of ") for line in found}


@asynccontextmanager
async def build_history(home: Path) -> AsyncGenerator[HistorySetup, None]:
    async with AsyncExitStack() as stack:
        db = await open_seeded_database(home / "shiftboss.db", stack)
        store = build_repositories(db, SystemClock())
        past = build_worker_history(Settings.model_validate({"SHIFTBOSS_HOME": home}), store)
        yield HistorySetup(
            store,
            past,
            ConversationHistoryService(
                history=past.history,
                db=db,
                sessions=store.sessions,
                now=lambda: START,
                redact=lambda text: text.replace("hunter2", "•"),
            ),
        )


async def add_task(store: RepositorySet, name: str, chat: Chat, maker: Person) -> None:
    new = NewTask(
        title=name,
        instruction=name,
        priority=TaskPriority.IMPORTANT,
        chat_id=chat.id,
        created_by=maker.id,
        source=name,
    )
    async with store.db.write() as tx:
        await store.work.tasks.create(tx, new, id=TaskId(name), now=START)


async def test_a_group_hears_itself_and_a_person_in_private_all_that_is_theirs(
    tmp_path: Path,
) -> None:
    async with build_history(tmp_path) as h:
        await add_task(h.store, "tttttt", CHAT, BOSS)
        await add_task(h.store, "gggggg", GROUP, MATE)
        await h.say(f"chat:{CHAT.id}", "secret of the boss")
        await h.say(f"chat:{GROUP.id}", "secret of the group")
        await h.say("task:tttttt", "secret of a private task")
        await h.say("task:gggggg", "secret of a group task")
        await h.say("compact", "secret of the house")

        assert await h.finds(BOSS, CHAT) == {"the boss", "a private task"}
        assert await h.finds(BOSS, GROUP) == {"the group", "a group task"}
        assert await h.finds(MATE, GROUP) == {"the group", "a group task"}


async def start_subagent(
    store: RepositorySet, name: str, chat: Chat, maker: Person, task: str = ""
) -> None:
    async with store.db.write() as tx:
        new = NewSubagent(
            source=name,
            parent_session=f"task:{task}-1" if task else f"chat:{chat.id}-1",
            task_id=TaskId(task) if task else None,
            path="",
            chat_id=chat.id,
            person_id=maker.id,
            depth=1,
            label=name,
            prompt=name,
            persona="",
            keep=True,
        )
        await SubagentRepo(store.db).add(tx, new, id=name, now=START)


async def test_helpers_are_heard_by_those_who_hear_whoever_sent_them_off(tmp_path: Path) -> None:
    async with build_history(tmp_path) as h:
        await add_task(h.store, "tttttt", CHAT, BOSS)
        await add_task(h.store, "gggggg", GROUP, MATE)
        for key in (f"chat:{CHAT.id}", f"chat:{GROUP.id}", "task:tttttt", "task:gggggg"):
            await h.say(key, "nothing")
        await start_subagent(h.store, "h1", CHAT, BOSS, task="tttttt")
        await start_subagent(h.store, "h2", GROUP, MATE, task="gggggg")
        await start_subagent(h.store, "h3", CHAT, BOSS)
        await start_subagent(h.store, "h4", GROUP, MATE)
        for number in range(1, 5):
            await h.say(f"helper:h{number}", f"secret of h{number}")

        assert await h.finds(BOSS, CHAT) == {"h1", "h3"}
        assert await h.finds(BOSS, GROUP) == await h.finds(MATE, GROUP) == {"h2", "h4"}
        tasks = {
            line.text.removeprefix("secret of "): line.task
            for line in (await h.service.search(BOSS, CHAT, ["secret"], 9)).lines
        }
        assert tasks == {"h1": "tttttt", "h3": ""}
        worker = CostAccount(person=BOSS.id, chat=GROUP.id, task=TaskId("gggggg"))
        heard = await h.past.history.search.search_words(
            await h.past.access_for(worker), ["secret"], 9
        )
        assert {each.snippet for each in heard} == {"secret of h2", "secret of h4"}
        nobody = await h.past.access_for(CostAccount(person=None, chat=None))
        assert not await h.past.history.search.search_words(nobody, ["secret"], 9)


async def test_summaries_of_a_helper_are_charged_to_whom_it_works_for(tmp_path: Path) -> None:
    async with build_history(tmp_path) as h:
        await add_task(h.store, "tttttt", CHAT, BOSS)
        await h.say("task:tttttt", "nothing")
        await start_subagent(h.store, "h1", CHAT, BOSS, task="tttttt")
        accounts = build_session_accounts(h.store)
        account = CostAccount(person=BOSS.id, chat=CHAT.id, task=TaskId("tttttt"))

        assert await accounts.find("helper:h1") == account
        assert await accounts.find("task:tttttt:Critic/b1") == account
        assert await accounts.find(f"chat:{CHAT.id}") == replace(account, task=None)


async def test_a_tasks_worker_hears_what_all_may_hear_who_see_the_task(tmp_path: Path) -> None:
    async with build_history(tmp_path) as h:
        await add_task(h.store, "tttttt", CHAT, BOSS)
        await add_task(h.store, "gggggg", GROUP, BOSS)
        mine = await h.past.access_for(
            CostAccount(person=BOSS.id, chat=CHAT.id, task=TaskId("tttttt"))
        )
        groups = await h.past.access_for(
            CostAccount(person=BOSS.id, chat=GROUP.id, task=TaskId("gggggg"))
        )
        nobody = await h.past.access_for(CostAccount(person=None, chat=None))

        assert (mine.chat, mine.person) == (CHAT.id, BOSS.id)
        assert (groups.chat, groups.person) == (GROUP.id, None)
        assert (nobody.chat, nobody.person, nobody.task_visibility) == (None, None, None)


async def test_what_is_shown_says_where_it_was_and_hides_secrets(tmp_path: Path) -> None:
    async with build_history(tmp_path) as h:
        await add_task(h.store, "tttttt", CHAT, BOSS)
        await h.say("task:tttttt:Critic/b1", "secret of hunter2")
        (line,) = (await h.service.search(BOSS, CHAT, ["secret"], 5)).lines
        await h.say(f"chat:{CHAT.id}", "hello")
        last = await h.service.list_recent(BOSS, CHAT, 5)

        assert (line.task, line.elsewhere, line.by_bot) == ("tttttt", True, True)
        assert line.text == "secret of •"
        assert [each.by_bot for each in last] == [True, False, True, True], "nobody said it"


async def test_a_conversation_under_way_can_be_ordered_shorter(tmp_path: Path) -> None:
    async with build_history(tmp_path) as h:
        assert not await h.service.compact(CHAT.id)
        await h.say(f"chat:{CHAT.id}", "hello")
        assert await h.service.compact(CHAT.id)
        (debt,) = await CompactionJobRepo(h.store.db).list_due(START, 5)

        assert (debt.session_id, debt.is_forced) == (f"chat:{CHAT.id}-1", True)
        assert h.past.history.growth.wake_event.is_set()
