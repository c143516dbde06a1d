"""/backend: who can do the work, and who does it in this chat."""

from __future__ import annotations

import pytest

from storage.records.people import ChatId, ChatSettings, Language
from storage.records.system import ModelChoice
from tests.builders import OFFLINE
from tests.fakes.services import FakeModels
from tests.handlers.router_harness import RouterHarness, text_of

CODEX = ModelChoice(backend="codex", model="", problem="backend.cli_missing")


async def test_without_a_name_all_are_listed_with_how_they_are_doing() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/backend")

    assert "anthropic" in text_of(reply)
    assert reply.data is not None
    assert [each["name"] for each in reply.data["backends"]] == ["offline", "anthropic", "openai"]


async def test_one_is_tried_out_by_name() -> None:
    reply = await RouterHarness().send_message("/backend check openai")

    assert reply.data is not None
    assert [each["name"] for each in reply.data["backends"]] == ["openai"]


async def test_an_unknown_one_is_not_tried_out() -> None:
    reply = await RouterHarness().send_message("/backend check nonsense")

    assert not reply.good
    assert "nonsense" in text_of(reply)


@pytest.mark.parametrize("language", list(Language))
async def test_an_unknown_name_gets_all_there_are_with_how_they_are_doing(
    language: Language,
) -> None:
    desk = RouterHarness(language=language, models=FakeModels(OFFLINE, CODEX))

    reply = await desk.send_message("/backend nope")

    assert not reply.good
    assert all(part in text_of(reply) for part in ("nope", "✅ offline", "⚠️ codex"))
    assert reply.data is not None
    assert "nope" in reply.data["error"]
    assert desk.world.people.chats[ChatId("c1")].settings == ChatSettings()


@pytest.mark.parametrize("language", list(Language))
async def test_one_that_cannot_work_is_refused_with_how_to_get_it_and_nothing_is_changed(
    language: Language,
) -> None:
    models = FakeModels(OFFLINE, CODEX)
    models.facts = {"name": "codex", "command": "codex-acp", "get": "npm install -g codex"}
    desk = RouterHarness(language=language, models=models)

    reply = await desk.send_message("/backend codex")

    assert not reply.good
    assert all(part in text_of(reply) for part in ("codex-acp", "npm install -g codex"))
    assert desk.world.people.chats[ChatId("c1")].settings == ChatSettings()


async def test_a_name_chooses_for_this_chat() -> None:
    desk = RouterHarness()

    await desk.send_message("/backend openai")

    settings = desk.world.people.chats[ChatId("c1")].settings
    assert settings.backend == "openai"


def with_a_cli_that_is_missing(language: Language, *, instead: str = "") -> RouterHarness:
    models = FakeModels(OFFLINE, CODEX)
    models.facts = {"name": "codex", "command": "codex-acp", "get": "npm install -g codex"}
    models.clis, models.instead = {"codex"}, instead
    return RouterHarness(language=language, models=models)


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("instead", ["", "offline"])
@pytest.mark.parametrize("said", ["/model codex", "/model @codex", "/backend codex"])
async def test_a_cli_that_cannot_work_is_chosen_for_no_chat_also_where_somebody_stands_in(
    language: Language, instead: str, said: str
) -> None:
    desk = with_a_cli_that_is_missing(language, instead=instead)

    reply = await desk.send_message(said)

    assert not reply.good
    assert all(part in text_of(reply) for part in ("codex-acp", "npm install -g codex"))
    assert desk.world.people.chats[ChatId("c1")].settings == ChatSettings()


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("said", ["@codex /run build it", "/run @codex build it", "@codex hello"])
async def test_a_message_for_a_cli_that_cannot_work_begins_nothing(
    language: Language, said: str
) -> None:
    desk = with_a_cli_that_is_missing(language)

    reply = await desk.send_message(said)

    assert not reply.good
    assert all(part in text_of(reply) for part in ("codex-acp", "npm install -g codex"))
    assert not desk.world.tasks.created
    assert not desk.world.talk.questions


@pytest.mark.parametrize("said", ["@codex /run build it", "/run @codex build it"])
async def test_a_message_for_it_is_taken_where_somebody_stands_in(said: str) -> None:
    desk = with_a_cli_that_is_missing(Language.ENGLISH, instead="offline")

    await desk.send_message(said)

    (task,) = desk.world.tasks.created
    assert task.backend == "codex"
