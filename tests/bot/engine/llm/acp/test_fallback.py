"""A login that is refused only when the CLI is asked: who stands in does the work, as for one that
is not installed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.llm.acp.agent_config import AcpAgentsFile
from bot.engine.llm.acp.backend import REFUSAL_TTL, AcpBackends
from bot.engine.llm.backend_registry import BackendRegistry, build_registry
from cards.catalog import TextCatalog, catalog_for
from cards.views.backends import setup_hint
from handlers.errors import BackendFailure
from handlers.ports import ChatQuestion
from storage.records.people import Language
from storage.records.system import BackendReport
from storage.records.tasks import TaskStatus, TaskView
from storage.sessions import SessionRepo
from tests.agent_builders import make_context_builder, make_conversation
from tests.bot.engine.llm.acp.test_agent_config import write_agents_file
from tests.emulators.acp.fake_cli import FakeCli, result_reply
from tests.engine_harness import BOSS, CHAT, EngineHarness, no_sleep, run_engine

LOCKED = {"login": True}
AT_THE_PROMPT = [{"say": "One moment."}, {"refuse": "Authentication required"}]
PLAN = result_reply({"plan": "Write it.", "steps": [{"title": 'write "x" to a.txt'}]})


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def registry_with_fallback(
    cli: FakeCli, *, fallbacks: tuple[str, ...] = ("offline",), clock: FakeClock | None = None
) -> BackendRegistry:
    write_agents_file(cli)
    house = cli.runtime(clock=clock or FakeClock())
    return build_registry(clis=AcpBackends(AcpAgentsFile(cli.root), house), fallbacks=fallbacks)


def report_text(report: BackendReport, words: TextCatalog) -> str:
    return next(setup_hint(each, words) for each in report.backends if each.name == "fake")


async def finished_view(world: EngineHarness) -> TaskView:
    return await world.until(
        await world.create_task('write "x" to a.txt', backend="fake"),
        TaskStatus.COMPLETED,
        TaskStatus.BLOCKED,
        TaskStatus.FAILED,
    )


def refuse_by(cli: FakeCli, how: str) -> None:
    if how == "as the session opens":
        cli.script([], **LOCKED)
    elif how == "at the first prompt":
        cli.script(AT_THE_PROMPT)
    else:
        cli.script([PLAN], AT_THE_PROMPT)


@pytest.mark.parametrize(
    "how", ["as the session opens", "at the first prompt", "after the plan was made"]
)
async def test_a_task_is_done_by_who_stands_in(cli: FakeCli, how: str) -> None:
    refuse_by(cli, how)
    async with run_engine(cli.root, backends=registry_with_fallback(cli)) as world:
        view = await finished_view(world)

        assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
        async with world.db.read() as view_of:
            session = await SessionRepo(world.db).find_open(f"task:{view.task.id}", tx=view_of)
        assert session is not None
        assert session.backend == "offline"


async def test_the_next_task_does_not_ask_it_again(cli: FakeCli) -> None:
    cli.script([], **LOCKED)
    async with run_engine(cli.root, backends=registry_with_fallback(cli)) as world:
        await finished_view(world)
        await finished_view(world)

    assert len(cli.received("session/new", "pragmatist")) == 1


async def test_it_is_asked_again_once_somebody_logged_in_or_after_some_minutes(
    cli: FakeCli,
) -> None:
    clock = FakeClock()
    models = registry_with_fallback(cli, clock=clock)
    file = cli.root / "agents.yaml"
    logins = "  fake:\n    logins: [.fake/login.json]"
    file.write_text(file.read_text().replace("  fake:", logins))
    login = cli.home("pragmatist") / ".fake" / "login.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    cli.script([], **LOCKED)
    async with run_engine(cli.root, backends=models) as world:
        await finished_view(world)

    assert models.select_backend("", "fake").fallback_reason == "backend.cli_login"
    clock.now += REFUSAL_TTL
    assert models.select_backend("", "fake").backend.name == "fake"

    await models.report("fake")
    assert models.select_backend("", "fake").backend.name == "offline"
    login.rename(login.with_name("old.json"))
    (login.parent / "login.json").write_text('{"new": 1}')
    assert models.select_backend("", "fake").backend.name == "fake"


async def test_the_list_says_so_and_a_try_that_works_takes_it_back(cli: FakeCli) -> None:
    models = registry_with_fallback(cli)
    cli.script([], **LOCKED)
    async with run_engine(cli.root, backends=models) as world:
        await finished_view(world)

    report = await models.report()
    assert report is not None
    assert [each.problem for each in report.backends if each.name == "fake"] == [
        "backend.cli_login"
    ]
    for language in Language:
        assert "agents/fake" in report_text(report, catalog_for(language))
    cli.script([PLAN])
    health = await models.get_health("fake")
    assert health is not None
    assert health.problem == ""
    assert models.select_backend("", "fake").backend.name == "fake"


async def test_where_nobody_stands_in_the_task_is_blocked_with_the_reason(cli: FakeCli) -> None:
    cli.script([], **LOCKED)
    async with run_engine(cli.root, backends=registry_with_fallback(cli, fallbacks=())) as world:
        view = await finished_view(world)

    assert view.task.status is TaskStatus.BLOCKED
    assert "not logged in" in view.task.status_reason
    assert len(cli.received("session/new", "pragmatist")) == 1


@asynccontextmanager
async def talking(
    cli: FakeCli, models: BackendRegistry
) -> AsyncGenerator[ConversationService, None]:
    async with run_engine(cli.root, backends=models, start_dispatcher=False) as world:
        yield make_conversation(
            db=world.db,
            sessions=SessionRepo(world.db),
            gateway=world.gateway,
            data_dir=cli.root,
            context_builder=make_context_builder(),
            now=world.clock,
            sleep=no_sleep,
        )


def question() -> ChatQuestion:
    return ChatQuestion(
        person=BOSS,
        chat=CHAT,
        text="hi",
        language=Language.ENGLISH,
        source="inbox:1",
        backend="fake",
    )


async def ignore(_text: str) -> None:
    pass


async def test_talk_is_answered_by_who_stands_in_and_says_so(cli: FakeCli) -> None:
    cli.script(AT_THE_PROMPT)
    async with talking(cli, registry_with_fallback(cli)) as talk:
        answer = await talk.answer(question(), ignore)

    assert "One moment." not in answer.text
    (note,) = answer.notes
    assert "fake is unavailable, so offline is used instead" in note
    assert "not logged in" in note


async def test_talk_that_nobody_can_answer_says_what_to_do_after_one_try(cli: FakeCli) -> None:
    cli.script([], **LOCKED)
    async with talking(cli, registry_with_fallback(cli, fallbacks=())) as talk:
        with pytest.raises(BackendFailure) as caught:
            await talk.answer(question(), ignore)

    assert "cli_login" in str(caught.value)
    assert len(cli.received("session/new", "pragmatist")) == 1
