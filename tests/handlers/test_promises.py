"""What holds for every command, action and error, also those still to be written."""

from __future__ import annotations

import logging
import re
from typing import get_args

import pytest

from cards.actions import (
    Action,
    Answer,
    AskAboutPerson,
    AskAgain,
    AskMessage,
    Decide,
    EnableSkill,
    JustTalk,
    LetIn,
    ListTasks,
    MovePerson,
    NewTask,
    PauseTask,
    PickModel,
    PickPersona,
    ResumeTask,
    RetryTask,
    SaveSkill,
    SendMessage,
    SetPriority,
    ShowLogs,
    ShowSkill,
    ShowTask,
    StartTask,
    StopTask,
    UseSkill,
)
from cards.memory_actions import (
    CleanMemory,
    DecideMemory,
    EditMemory,
    ForgetMemory,
    ListMemories,
    MemoriesHelped,
    PinMemory,
    ShowMemory,
)
from cards.render.text import render
from cards.words import words_for
from cards.workflow_actions import (
    AskWorkflowName,
    DeleteWorkflow,
    FillWorkflow,
    KeepWorkflow,
    RunWorkflow,
    ShowWorkflow,
)
from handlers.errors import UserError, card_for
from handlers.ports import BackendFailure, Forbidden, Refusal
from handlers.registry import Command, Commands, DuplicateCommand
from handlers.request import Reply, Request
from handlers.table import COMMANDS, menu
from storage import errors
from storage.errors import StorageError
from storage.records.people import Language
from storage.records.tasks import Priority, TaskStatus
from tests.fake_skills import a_listed
from tests.handlers.desk import Desk, text_of
from tests.memory_fake import an_entry
from tests.samples import a_task, an_approval

EXAMPLES: dict[type, Action] = {
    type(action): action
    for action in (
        StartTask(text="write"),
        JustTalk(text="write"),
        NewTask(),
        ShowTask(task_id="k3m9qa"),
        ShowLogs(task_id="k3m9qa"),
        PauseTask(task_id="k3m9qa"),
        ResumeTask(task_id="p4used"),
        StopTask(task_id="k3m9qa"),
        LetIn(task_id="k3m9qa"),
        AskMessage(task_id="k3m9qa"),
        SendMessage(task_id="k3m9qa"),
        AskAgain(approval_id="ap7x2k"),
        RetryTask(task_id="f4iled"),
        SetPriority(task_id="k3m9qa", priority=Priority.URGENT),
        ListTasks(),
        Decide(approval_id="ap7x2k", approve=True),
        ShowSkill(name="weekly-report"),
        EnableSkill(name="weekly-report", hash="abcdef012345"),
        UseSkill(name="weekly-report", text="write"),
        SaveSkill(name="weekly-report", text="---"),
        PickModel(),
        PickPersona(name="tester"),
        AskAboutPerson(person_id="ann", remove=True),
        MovePerson(person_id="ann", remove=True),
        Answer(question_id="ap7x2k"),
        ShowWorkflow(name="review"),
        RunWorkflow(name="review"),
        FillWorkflow(name="review"),
        AskWorkflowName(task_id="d0neab"),
        KeepWorkflow(task_id="d0neab"),
        DeleteWorkflow(name="review"),
        ListMemories(),
        ShowMemory(entry_id="aa22"),
        ForgetMemory(entry_id="aa22"),
        PinMemory(entry_id="aa22", pinned=True),
        EditMemory(entry_id="aa22", revision=1),
        DecideMemory(entry_id="aa22", keep=True),
        MemoriesHelped(session="s1", turn=2),
        CleanMemory(),
    )
}

ERRORS: list[StorageError] = [
    errors.StoreUnavailable("disk full"),
    errors.StoreTooNew("9999"),
    errors.HomeBusy("/home/boss", "17"),
    errors.HomeUnusable("/home/boss", "read-only"),
    errors.NotFound("task", "k9"),
    errors.NotFound("approval", "k9"),
    errors.NotFound("pairing", "k9"),
    errors.NotFound("person", "k9"),
    errors.NotFound("session", "k9"),
    errors.NotFound("banana", "k9"),
    errors.AmbiguousId("k", ("k1", "k2")),
    errors.LostLease("k9"),
    errors.Overtaken(),
    errors.WrongState("task", "k9", "completed"),
    errors.WrongState("approval", "k9", "approved"),
    errors.WrongState("banana", "k9", "ripe"),
    errors.NotAllowed("approval", "k9"),
    errors.TooManyTries("pairing", "k9"),
]

both = pytest.mark.parametrize("language", list(Language))
every_command = pytest.mark.parametrize("command", list(COMMANDS), ids=lambda each: each.name)


@every_command
def test_a_command_explains_itself_in_both_languages(command: Command) -> None:
    english, chinese = words_for(Language.ENGLISH), words_for(Language.CHINESE)

    assert english(f"help.{command.name}.text") == command.summary != ""
    assert english(f"help.{command.name}.usage") == command.usage
    assert chinese(f"help.{command.name}.text") != command.summary
    assert bool(chinese(f"help.{command.name}.usage")) is bool(command.usage)


@both
@every_command
def test_a_commands_family_has_a_name(command: Command, language: Language) -> None:
    assert words_for(language)(f"help.family.{command.family}")


@every_command
def test_a_command_has_a_chinese_name(command: Command) -> None:
    assert any(not alias.isascii() for alias in command.aliases)


@both
def test_the_menu_fits_the_platforms(language: Language) -> None:
    for name, text in menu(language):
        assert re.fullmatch("[a-z0-9_]{1,32}", name)
        assert 0 < len(text) <= 256


def test_a_name_taken_twice_is_refused() -> None:
    commands = Commands("x")

    async def handler(request: Request) -> Reply:
        return Reply()

    commands("one", aliases=("uno",))(handler)

    with pytest.raises(DuplicateCommand, match="two"):
        commands("two", aliases=("UNO",))(handler)
    with pytest.raises(DuplicateCommand):
        Commands.joined(commands, commands)


def test_there_is_an_example_of_every_action() -> None:
    assert set(EXAMPLES) == set(get_args(Action))


@pytest.mark.parametrize("kind", get_args(Action), ids=lambda each: each.__name__)
async def test_every_action_has_a_place_in_the_router(kind: type) -> None:
    desk = Desk(
        a_task(),
        a_task("p4used", TaskStatus.PAUSED),
        a_task("f4iled", TaskStatus.FAILED),
    )
    desk.world.approvals.all["ap7x2k"] = an_approval(approvers=("ann",))
    desk.world.skills.listed = [a_listed("weekly-report")]
    desk.world.memory.keep(an_entry("aa22", "Deploys happen on Fridays"))
    token = desk.world.post.put(EXAMPLES[kind])

    reply = await desk.press(token, value="auto", form={"text": "write", "priority": "urgent"})

    assert reply.card or reply.toast
    assert desk.incidents == 0


def test_every_storage_error_is_among_the_examples() -> None:
    def kinds(of: type[StorageError]) -> set[type[StorageError]]:
        return {of, *(each for sub in of.__subclasses__() for each in kinds(sub))}

    known = {kind for kind in kinds(StorageError) if kind.__module__ == errors.__name__}

    assert known - {StorageError} == {type(error) for error in ERRORS}


@both
@pytest.mark.parametrize("error", ERRORS, ids=lambda each: f"{type(each).__name__}-{each}")
def test_every_storage_error_says_what_happened_and_what_to_do(
    error: StorageError, language: Language
) -> None:
    words = words_for(language)

    text = render(card_for(error, words, "inc-1")).text

    assert words("error.unexpected.title") not in text
    assert len(text.splitlines()) >= 2


@both
def test_the_base_of_storage_errors_is_unexpected(
    language: Language, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        text = render(card_for(StorageError("?"), words_for(language), "inc-1")).text

    assert "inc-1" in text
    assert "inc-1" in caplog.text


@both
def test_a_model_that_fails_says_what_to_do(language: Language) -> None:
    words = words_for(language)

    told = render(card_for(BackendFailure("backend.bad_key"), words, "inc-1")).text
    unknown = render(card_for(BackendFailure("no.such.key"), words, "inc-1")).text
    short = render(card_for(BackendFailure("error.usage.hint"), words, "inc-1")).text

    assert "ANTHROPIC_API_KEY" in told
    assert "inc-1" in unknown
    assert "inc-1" in short


@both
def test_what_is_forbidden_says_who_may(language: Language) -> None:
    words = words_for(language)

    assert words("error.forbidden.hint") in render(card_for(Forbidden(), words, "inc-1")).text


@both
@pytest.mark.parametrize("refusal", list(Refusal))
def test_every_refusal_of_a_press_has_its_words(refusal: Refusal, language: Language) -> None:
    assert words_for(language)(f"press.{refusal}")


@both
async def test_no_command_fails_without_its_arguments(language: Language) -> None:
    desk = Desk(a_task())
    hint = "zh-hans" if language is Language.CHINESE else "en"

    for command in COMMANDS:
        desk.wait(minutes=5)
        reply = await desk.say(f"/{command.name}", who="x-olga", chat="c0", hint=hint)
        assert text_of(reply), command.name

    assert desk.incidents <= len(list(COMMANDS))


def test_user_errors_keep_their_facts() -> None:
    error = UserError("unknown_model", name="x", names="y")

    assert "x" in render(card_for(error, words_for(Language.ENGLISH), "i")).text
