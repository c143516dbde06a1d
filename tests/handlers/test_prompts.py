"""/prompt shows versions of prompts and goes back; /evolve looks for better ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storage.records.people import Language
from storage.records.prompt_versions import EvolutionMode, PromptVersion, VersionState
from tests.fakes.prompts import make_version
from tests.handlers.router_harness import RouterHarness, text_of

OWNER: dict[str, Any] = {"who": "x-olga", "chat": "c0"}


def a_desk(*versions: PromptVersion, language: Language = Language.ENGLISH) -> RouterHarness:
    desk = RouterHarness(language=language)
    prompts = desk.world.prompts
    prompts.reviewer = replace(prompts.reviewer, versions=versions)
    return desk


async def test_all_prompts_are_listed_with_the_version_in_use() -> None:
    trial = make_version(id=2, number=2, state=VersionState.TRIAL)

    shown = text_of(await a_desk(make_version(), trial).send_message("/prompt list"))

    assert "reviewer: version 1 · version 2 on trial" in shown
    assert "pragmatist: as written" in shown
    assert "skill:weekly: as written" in shown


async def test_one_is_shown_with_its_text_and_versions() -> None:
    shown = text_of(await a_desk(make_version()).send_message("/prompt show reviewer"))

    assert "Read the whole change first." in shown
    assert "It misses parts of the change." in shown


@pytest.mark.parametrize("numbers", ["", " 0 1"])
async def test_a_change_is_shown_as_a_diff(numbers: str) -> None:
    desk = a_desk(make_version())

    shown = text_of(await desk.send_message(f"/prompt diff reviewer{numbers}"))

    assert "+Read the whole change first." in shown


async def test_an_owner_goes_back() -> None:
    desk = a_desk(make_version())

    reply = await desk.send_message("/prompt rollback reviewer", **OWNER)

    assert desk.world.prompts.rolled_back == ["reviewer"]
    assert "Version 1 of reviewer is no longer used" in text_of(reply)


@pytest.mark.parametrize("text", ["/prompt rollback reviewer", "/evolve", "/evolve analyze"])
async def test_members_neither_go_back_nor_look(text: str) -> None:
    desk = a_desk(make_version())

    await desk.send_message(text)

    assert desk.world.prompts.rolled_back == []
    assert desk.world.prompts.cycles == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/prompt show nobody", "No prompt named nobody"),
        ("/prompt show weekly", "which one you mean: skill:weekly, workflow:weekly"),
        ("/prompt rollback skill:weekly", "skill:weekly is used as it is written"),
        ("/prompt diff reviewer 0 9", "reviewer has no version 9"),
        ("/prompt diff reviewer 1", "/prompt [list"),
        ("/prompt nope", "/prompt [list"),
        ("/prompt rollback pragmatist", "pragmatist is used as it is written"),
        ("/evolve nope", "/evolve [analyze"),
    ],
)
async def test_bad_input_says_what_to_do(text: str, told: str) -> None:
    desk = a_desk(make_version())

    assert told in text_of(await desk.send_message(text, **OWNER))


async def test_a_look_says_what_was_found_and_done() -> None:
    shown = text_of(await a_desk().send_message("/evolve", **OWNER))

    assert "Looked at 20 tasks, 14 succeeded." in shown
    assert "steps need more than three retries, 4 of 20 tasks" in shown
    assert "reviewer, version 1: worse on trial, rolled back" in shown


async def test_a_look_while_it_is_off_says_how_to_switch_it_on() -> None:
    desk = a_desk()
    desk.world.prompts.mode = EvolutionMode.OFF

    assert "SHIFTBOSS_EVOLVE=ask" in text_of(await desk.send_message("/evolve", **OWNER))


async def test_figures_and_history_are_shown() -> None:
    desk = a_desk()

    assert "14 / 20" in text_of(await desk.send_message("/evolve analyze", **OWNER))
    assert "another change of it is open" in text_of(
        await desk.send_message("/evolve history", **OWNER)
    )


@pytest.mark.parametrize("text", ["/提示词", "/提示词 show reviewer", "/进化", "/进化 分析"])
async def test_all_is_said_in_chinese_too(text: str) -> None:
    desk = a_desk(make_version(), language=Language.CHINESE)

    assert any(
        "\u4e00" <= each <= "\u9fff" for each in text_of(await desk.send_message(text, **OWNER))
    )
