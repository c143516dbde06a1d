"""A login that is refused only when the CLI is asked: who stands in does the work, as for one that
is not installed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bot.engine.agent.talk import Conversations
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.acp.agents_file import AgentsFile
from bot.engine.llm.acp.clis import Clis
from bot.engine.llm.acp.machine.refusals import KEPT
from bot.engine.llm.registry import Registry, registry
from cards.views.backends import how
from cards.words import Words, words_for
from handlers.ports import BackendFailure, Question
from storage.records.people import Language
from storage.records.status import BackendReport
from storage.records.tasks import TaskStatus, TaskView
from storage.sessions import SessionRepo
from tests.bot.engine.llm.acp.test_clis import write
from tests.emulators.acp.cli import FakeCli, result
from tests.engine_world import BOSS, CHAT, Engine, engine, no_wait

LOCKED = {"login": True}
AT_THE_PROMPT = [{"say": "One moment."}, {"refuse": "Authentication required"}]
PLAN = result({"plan": "Write it.", "steps": [{"title": 'write "x" to a.txt'}]})


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def known(cli: FakeCli, *, fallback: str = "offline", clock: Seconds | None = None) -> Registry:
    write(cli)
    house = cli.house(clock=clock or Seconds())
    return registry(clis=Clis(AgentsFile(cli.root), house), fallback=fallback)


def how_of(report: BackendReport, words: Words) -> str:
    return next(how(each, words) for each in report.backends if each.name == "fake")


async def done(world: Engine) -> TaskView:
    return await world.until(
        await world.add('write "x" to a.txt', backend="fake"),
        TaskStatus.COMPLETED,
        TaskStatus.BLOCKED,
        TaskStatus.FAILED,
    )


def prepared(cli: FakeCli, how: str) -> None:
    if how == "as the session opens":
        cli.will([], **LOCKED)
    elif how == "at the first prompt":
        cli.will(AT_THE_PROMPT)
    else:
        cli.will([PLAN], AT_THE_PROMPT)


@pytest.mark.parametrize(
    "how", ["as the session opens", "at the first prompt", "after the plan was made"]
)
async def test_a_task_is_done_by_who_stands_in(cli: FakeCli, how: str) -> None:
    prepared(cli, how)
    async with engine(cli.root, backends=known(cli)) as world:
        view = await done(world)

        assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
        async with world.db.read() as view_of:
            session = await SessionRepo(world.db).open(f"task:{view.task.id}", tx=view_of)
        assert session is not None
        assert session.backend == "offline"


async def test_the_next_task_does_not_ask_it_again(cli: FakeCli) -> None:
    cli.will([], **LOCKED)
    async with engine(cli.root, backends=known(cli)) as world:
        await done(world)
        await done(world)

    assert len(cli.received("session/new", "pragmatist")) == 1


async def test_it_is_asked_again_once_somebody_logged_in_or_after_some_minutes(
    cli: FakeCli,
) -> None:
    clock = Seconds()
    models = known(cli, clock=clock)
    file = cli.root / "agents.yaml"
    logins = "  fake:\n    logins: [.fake/login.json]"
    file.write_text(file.read_text().replace("  fake:", logins))
    login = cli.home("pragmatist") / ".fake" / "login.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    cli.will([], **LOCKED)
    async with engine(cli.root, backends=models) as world:
        await done(world)

    assert models.choose("", "fake").why == "backend.cli_login"
    clock.now += KEPT
    assert models.choose("", "fake").backend.name == "fake"

    await models.report("fake")
    assert models.choose("", "fake").backend.name == "offline"
    login.rename(login.with_name("old.json"))
    (login.parent / "login.json").write_text('{"new": 1}')
    assert models.choose("", "fake").backend.name == "fake"


async def test_the_list_says_so_and_a_try_that_works_takes_it_back(cli: FakeCli) -> None:
    models = known(cli)
    cli.will([], **LOCKED)
    async with engine(cli.root, backends=models) as world:
        await done(world)

    report = await models.report()
    assert report is not None
    assert [each.problem for each in report.backends if each.name == "fake"] == [
        "backend.cli_login"
    ]
    for language in Language:
        assert "agents/fake" in how_of(report, words_for(language))
    cli.will([PLAN])
    health = await models.ready("fake")
    assert health is not None
    assert health.problem == ""
    assert models.choose("", "fake").backend.name == "fake"


async def test_where_nobody_stands_in_the_task_is_blocked_with_the_reason(cli: FakeCli) -> None:
    cli.will([], **LOCKED)
    async with engine(cli.root, backends=known(cli, fallback="")) as world:
        view = await done(world)

    assert view.task.status is TaskStatus.BLOCKED
    assert "not logged in" in view.task.status_reason
    assert len(cli.received("session/new", "pragmatist")) == 1


@asynccontextmanager
async def talking(cli: FakeCli, models: Registry) -> AsyncGenerator[Conversations, None]:
    async with engine(cli.root, backends=models, running=False) as world:
        yield Conversations(
            db=world.db,
            sessions=SessionRepo(world.db),
            desk=world.desk,
            home=cli.root,
            bench=Workbench(),
            now=world.clock,
            sleep=no_wait,
        )


def question() -> Question:
    return Question(
        person=BOSS,
        chat=CHAT,
        text="hi",
        language=Language.ENGLISH,
        source="inbox:1",
        backend="fake",
    )


async def unseen(_text: str) -> None:
    pass


async def test_talk_is_answered_by_who_stands_in_and_says_so(cli: FakeCli) -> None:
    cli.will(AT_THE_PROMPT)
    async with talking(cli, known(cli)) as talk:
        answer = await talk.answer(question(), unseen)

    assert "One moment." not in answer.text
    (note,) = answer.notes
    assert "fake cannot work now, so offline does this" in note
    assert "not logged in" in note


async def test_talk_that_nobody_can_answer_says_what_to_do_after_one_try(cli: FakeCli) -> None:
    cli.will([], **LOCKED)
    async with talking(cli, known(cli, fallback="")) as talk:
        with pytest.raises(BackendFailure) as caught:
            await talk.answer(question(), unseen)

    assert "cli_login" in str(caught.value)
    assert len(cli.received("session/new", "pragmatist")) == 1
