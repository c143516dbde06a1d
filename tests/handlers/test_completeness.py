"""Rules for every command, action and error, including future ones."""

from __future__ import annotations

import logging
import re
from typing import get_args

import pytest

from cards.actions import (
    Action,
    AnswerQuestion,
    AnswerReminder,
    AnswerWithoutTask,
    ApplyPersonChange,
    ChooseModel,
    ChoosePersona,
    ConfirmPersonChange,
    ControlSchedule,
    DecideApproval,
    DecideHeldMessages,
    DecideMissedFiring,
    DecideSchedule,
    DeleteWorkflow,
    EnableSkill,
    EndWebSession,
    ImportWorkflow,
    InstallWorkflow,
    ListApprovals,
    ListTasks,
    OpenPage,
    PauseTask,
    ProveButtons,
    RequestApprovalAgain,
    ResumeTask,
    RetryTask,
    RollBackWorkflow,
    RunWorkflow,
    SaveSkill,
    SaveTaskAsWorkflow,
    SetPriority,
    ShowLogs,
    ShowMessageForm,
    ShowReport,
    ShowSkill,
    ShowTask,
    ShowWorkflow,
    ShowWorkflowDiff,
    ShowWorkflowNameForm,
    StartMcpSignIn,
    StartRepairTask,
    StartTask,
    StartTaskAnyway,
    StopTask,
    SubmitApprovalForm,
    SubmitMessageForm,
    SubmitTaskForm,
    SubmitWorkflowInputs,
    UnlinkAccount,
    UseSkill,
)
from cards.catalog import TextCatalog, catalog_for, command_help
from cards.memory_actions import (
    ChooseMemory,
    CleanMemory,
    DecideMemoryCandidate,
    DecideWithheldMessage,
    ForgetMemory,
    ListMemories,
    MarkMemoriesHelpful,
    PinMemory,
    ShowMemory,
    SubmitMemoryEdit,
)
from cards.model import Card
from cards.render.text import render
from handlers.command_table import COMMANDS, platform_menu
from handlers.errors import ActionForbidden, BackendFailure, UserError
from handlers.middleware import explain_error, explanation_card
from handlers.ports import PressRefusal
from handlers.request import CommandRegistry, CommandSpec, DuplicateCommand, Reply, Request
from storage import errors
from storage.errors import StorageError
from storage.records.autonomy import ReportPeriod
from storage.records.people import Language
from storage.records.tasks import TaskPriority, TaskStatus
from tests.builders import make_approval, make_task
from tests.fakes.memory import make_memory
from tests.fakes.prompts import make_version
from tests.fakes.skills import make_listed_skill
from tests.handlers.router_harness import RouterHarness, text_of

EXAMPLES: dict[type, Action] = {
    type(action): action
    for action in (
        StartTask(text="write"),
        AnswerWithoutTask(text="write"),
        SubmitTaskForm(),
        ShowTask(task_id="k3m9qa"),
        ShowLogs(task_id="k3m9qa"),
        PauseTask(task_id="k3m9qa"),
        ResumeTask(task_id="p4used"),
        StopTask(task_id="k3m9qa"),
        StartTaskAnyway(task_id="k3m9qa"),
        ShowMessageForm(task_id="k3m9qa"),
        SubmitMessageForm(task_id="k3m9qa"),
        RequestApprovalAgain(approval_id="ap7x2k"),
        RetryTask(task_id="f4iled"),
        SetPriority(task_id="k3m9qa", priority=TaskPriority.URGENT),
        ListTasks(),
        DecideHeldMessages(handle=True),
        DecideApproval(approval_id="ap7x2k", approve=True),
        ShowSkill(name="weekly-report"),
        EnableSkill(name="weekly-report", hash="abcdef012345"),
        UseSkill(name="weekly-report", text="write"),
        SaveSkill(name="weekly-report", text="---"),
        ChooseModel(),
        ChoosePersona(name="tester"),
        ConfirmPersonChange(person_id="ann", remove=True),
        ApplyPersonChange(person_id="ann", remove=True),
        UnlinkAccount(account=""),
        ChooseMemory(entry_id=""),
        EndWebSession(session_id="s2"),
        ListApprovals(),
        OpenPage(page="setup"),
        StartMcpSignIn(server="mail"),
        ShowReport(period=ReportPeriod.WEEK),
        AnswerQuestion(question_id="ap7x2k"),
        SubmitApprovalForm(approval_id="ap7x2k"),
        ShowWorkflow(name="review"),
        RunWorkflow(name="review"),
        SubmitWorkflowInputs(name="review"),
        ShowWorkflowNameForm(task_id="d0neab"),
        SaveTaskAsWorkflow(task_id="d0neab"),
        DeleteWorkflow(name="review"),
        ShowWorkflowDiff(name="review", number=2),
        RollBackWorkflow(name="review", number=1),
        ImportWorkflow(file="files/inbox/1/w.yaml", hash="0" * 64, replace=True),
        InstallWorkflow(name="digest"),
        ListMemories(),
        ShowMemory(entry_id="aa22"),
        ForgetMemory(entry_id="aa22"),
        PinMemory(entry_id="aa22", pinned=True),
        SubmitMemoryEdit(entry_id="aa22", revision=1),
        DecideMemoryCandidate(entry_id="aa22", keep=True),
        DecideWithheldMessage(message=1, person="ann", keep=True),
        MarkMemoriesHelpful(session="s1", turn=2),
        CleanMemory(),
        DecideSchedule(schedule_id="sch4dl", confirm=True),
        ControlSchedule(schedule_id="sch4dl", change="pause"),
        AnswerReminder(firing_id=1),
        DecideMissedFiring(firing_id=1, run=True),
        StartRepairTask(incident_id=1),
        ProveButtons(),
    )
}

ERRORS: list[StorageError] = [
    errors.StoreUnavailable("disk full"),
    errors.StoreTooNew("9999"),
    errors.StoreTooOld("0003"),
    errors.MoveRefused("the store is there already"),
    errors.StoreMismatch("the database with store id ab12", "no file shiftboss.db"),
    errors.BackupFailed("disk full"),
    errors.RestoreRefused("the folder is not empty"),
    errors.BadBackup("it is cut off"),
    errors.DataDirectoryInUse("/home/boss", "17"),
    errors.DataDirectoryUnusable("/home/boss", "read-only"),
    errors.NotFound("task", "k9"),
    errors.NotFound("approval", "k9"),
    errors.NotFound("pairing", "k9"),
    errors.NotFound("person", "k9"),
    errors.NotFound("session", "k9"),
    errors.NotFound("web_session", "k9"),
    errors.NotFound("banana", "k9"),
    errors.AmbiguousId("k", ("k1", "k2")),
    errors.LostLease("k9"),
    errors.ConcurrentUpdate(),
    errors.WrongState("task", "k9", "completed"),
    errors.WrongState("approval", "k9", "approved"),
    errors.WrongState("banana", "k9", "ripe"),
    errors.NotAllowed("approval", "k9"),
    errors.TooManyAttempts("pairing", "k9"),
]


def error_to_card(error: Exception, words: TextCatalog, incident: str) -> Card:
    return explanation_card(error, explain_error(error, words, incident))


both = pytest.mark.parametrize("language", list(Language))
every_command = pytest.mark.parametrize("command", list(COMMANDS), ids=lambda each: each.name)


@every_command
def test_a_command_explains_itself_in_both_languages(command: CommandSpec) -> None:
    english, chinese = catalog_for(Language.ENGLISH), catalog_for(Language.CHINESE)

    text, usage = f"help.{command.name}.text", f"help.{command.name}.usage"
    assert english(text)
    assert chinese(text) not in {"", english(text)}
    assert bool(chinese(usage)) is bool(english(usage))


@both
def test_only_commands_have_help(language: Language) -> None:
    others = {"title", "intro", "note", "more", "family"}

    assert command_help(language).keys() - others == {each.name for each in COMMANDS}


@both
@every_command
def test_a_commands_family_has_a_name(command: CommandSpec, language: Language) -> None:
    assert catalog_for(language)(f"help.family.{command.family}")


@every_command
def test_a_command_has_a_chinese_name(command: CommandSpec) -> None:
    assert any(not alias.isascii() for alias in command.aliases)


@both
def test_the_menu_fits_the_platforms(language: Language) -> None:
    for name, text in platform_menu(language):
        assert re.fullmatch("[a-z0-9_]{1,32}", name)
        assert 0 < len(text) <= 256


def test_a_name_taken_twice_is_refused() -> None:
    commands = CommandRegistry("x")

    async def handler(request: Request) -> Reply:
        return Reply()

    commands("one", aliases=("uno",))(handler)

    with pytest.raises(DuplicateCommand, match="two"):
        commands("two", aliases=("UNO",))(handler)
    with pytest.raises(DuplicateCommand):
        CommandRegistry.merge(commands, commands)


def test_there_is_an_example_of_every_action() -> None:
    assert set(EXAMPLES) == set(get_args(Action))


@pytest.mark.parametrize("kind", get_args(Action), ids=lambda each: each.__name__)
async def test_every_action_has_a_place_in_the_router(kind: type) -> None:
    desk = RouterHarness(
        make_task(),
        make_task("p4used", TaskStatus.PAUSED),
        make_task("f4iled", TaskStatus.FAILED),
    )
    desk.world.approvals.all["ap7x2k"] = make_approval(approvers=("ann",))
    desk.world.skills.listed = [make_listed_skill("weekly-report")]
    desk.world.memory.store(make_memory("aa22", "Deploys happen on Fridays"))
    desk.world.workflows.versions = [make_version(name="review", number=2)]
    token = desk.world.post.add_button_card(EXAMPLES[kind])

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
    words = catalog_for(language)

    text = render(error_to_card(error, words, "inc-1")).text

    assert words("error.unexpected.title") not in text
    assert len(text.splitlines()) >= 2


@both
def test_the_base_of_storage_errors_is_unexpected(
    language: Language, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        text = render(error_to_card(StorageError("?"), catalog_for(language), "inc-1")).text

    assert "inc-1" in text
    assert "inc-1" in caplog.text


@both
def test_a_model_that_fails_says_what_to_do(language: Language) -> None:
    words = catalog_for(language)

    told = render(error_to_card(BackendFailure("backend.bad_key"), words, "inc-1")).text
    unknown = render(error_to_card(BackendFailure("no.such.key"), words, "inc-1")).text
    short = render(error_to_card(BackendFailure("error.usage.hint"), words, "inc-1")).text

    assert "shiftboss init" in told
    assert "inc-1" in unknown
    assert "inc-1" in short


@both
def test_what_is_forbidden_says_who_may(language: Language) -> None:
    words = catalog_for(language)

    assert (
        words("error.forbidden.hint")
        in render(error_to_card(ActionForbidden(), words, "inc-1")).text
    )


@both
@pytest.mark.parametrize("refusal", list(PressRefusal))
def test_every_refusal_of_a_press_has_its_words(refusal: PressRefusal, language: Language) -> None:
    assert catalog_for(language)(f"press.{refusal}")


@both
async def test_no_command_fails_without_its_arguments(language: Language) -> None:
    desk = RouterHarness(make_task())
    hint = "zh-hans" if language is Language.CHINESE else "en"

    for command in COMMANDS:
        desk.advance_time(minutes=5)
        reply = await desk.send_message(f"/{command.name}", who="x-olga", chat="c0", hint=hint)
        assert text_of(reply), command.name

    assert desk.incidents <= len(list(COMMANDS))


def test_user_errors_keep_their_facts() -> None:
    error = UserError("unknown_model", name="x", names="y")

    assert "x" in render(error_to_card(error, catalog_for(Language.ENGLISH), "i")).text
