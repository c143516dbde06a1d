"""Text typed in a shell reaches the chat commands unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bot.cli import local_execution, memory, task
from bot.cli.chat_commands import resolve_scope
from bot.cli.command_line import create_cli
from bot.cli.local_execution import CommandAnswer
from handlers.command_table import COMMANDS
from handlers.flags import parse_flags
from handlers.parsing import CommandMessage, parse_message
from tests.fakes.services import FakeModels


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Records the commands of the command line; every answer is good."""
    heard: list[str] = []

    def carry_out(_: Any, text: str, **_options: bool) -> CommandAnswer:
        heard.append(text)
        return CommandAnswer(text="Fine.", good=True, data={"tasks": [], "logs": [], "total": 0})

    monkeypatch.setattr(local_execution, "execute_command", carry_out)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return heard


MAPPED = [
    (("task", "add", "fix it"), "/run -p normal -- fix it"),
    (("task", "add", "fix it", "-p", "紧急", "--self"), "/run -p 紧急 --self -- fix it"),
    (("task", "add", "Fix", "-i", "all\nof it"), "/run -p normal --title Fix -- all\nof it"),
    (("task", "add", "second", "--parent", "3k"), "/subtask add 3k second"),
    (("task", "ls"), "/list"),
    (("task", "list"), "/list"),
    (("task", "ls", "-s", "paused"), "/list paused"),
    (("task", "ls", "-s", "paused,阻塞"), "/list"),
    (("task", "show", "3k"), "/get 3k"),
    (("task", "history", "3k"), "/logs 3k"),
    (("task", "search", "a b"), "/search a b"),
    (("schedule",), "/schedule"),
    (
        (
            "trigger",
            "add",
            "message",
            "note",
            "--pattern",
            'say "{x}"',
            "--by",
            "owner",
            "--input",
            "n=a b",
        ),
        '/trigger add message note pattern="say \\"{x}\\"" by="owner" n="a b"',
    ),
    (("trigger", "add", "webhook", "note"), "/trigger add webhook note"),
    (("trigger", "list"), "/trigger list"),
    (("trigger", "off", "3k"), "/trigger off 3k"),
    (("schedule", "daily 9:00 write the news"), "/schedule daily 9:00 write the news"),
    (
        ("schedule", "add", "--title", "My news", "--quiet", "-d", "a b", "daily 9:00", "write"),
        '/schedule add --title "My news" --quiet -d "a b" daily 9:00 write',
    ),
    (("schedule", "confirm", "3k"), "/schedule confirm 3k"),
    (("report", "weekly", "mon", "9:00"), "/report weekly mon 9:00"),
    (("heartbeat", "add", "look at - [ ] it"), "/heartbeat add look at - [ ] it"),
    (("task", "up", "3k", "title", "New name"), "/update 3k title New name"),
    (("task", "plan", "3k", "read, then write"), "/plan 3k read, then write"),
    (("task", "phase", "3k", "Phase 2"), "/phase 3k Phase 2"),
    (("task", "block", "3k", "-r", "no key"), "/block 3k no key"),
    (("task", "interrupt", "3k", "-m", "half-way"), "/interrupt 3k half-way"),
    (("task", "done", "3k"), "/done 3k"),
    (
        ("task", "done", "3k", "-s", "all good", "-t", "120", "--force"),
        "/done 3k --tokens-now 120 --force -- all good",
    ),
    (("task", "delete", "3k"), "/delete 3k"),
    (("task", "retry", "3k"), "/retry 3k"),
    (("task", "pause", "3k", "lunch"), "/pause 3k lunch"),
    (("task", "resume", "3k", "use b"), "/resume 3k use b"),
    (("task", "stop", "3k"), "/stop 3k"),
    (("task", "msg", "3k", "hurry up"), "/msg 3k hurry up"),
    (("task", "inject", "3k", "one", "and two"), "/inject 3k one\nand two"),
    (("task", "replan", "3k", "too slow"), "/replan 3k too slow"),
    (("task", "letin", "3k"), "/letin 3k"),
    (("task", "steps", "3k", "2"), "/steps 3k 2"),
    (("task", "diff", "3k"), "/diff 3k"),
    (("task", "rerun", "3k", "fix", "n=1", "a.b=c d"), '/rerun 3k fix n="1" a.b="c d"'),
    (("task", "priority", "3k", "urgent"), "/priority 3k urgent"),
    (("task", "token-snap", "3k", "120"), "/token 3k 120"),
    (("task", "next", "--self"), "/next --self"),
    (("subtask", "add", "3k", "one", "two words"), "/subtask add 3k one\ntwo words"),
    (("subtask", "done", "3k", "one", "-s", "a b"), '/subtask done 3k "one" -s "a b"'),
    (("subtask", "phase", "3k", "one", "well"), '/subtask phase 3k "one" -- well'),
    (("log", "add", "3k", "finding", "it is slow"), "/log 3k finding -- it is slow"),
    (
        ("log", "add", "3k", "error", "x y", "--phase", "p 1", "--attempt", "2"),
        '/log 3k error --phase "p 1" --attempt 2 -- x y',
    ),
    (("log", "ls", "3k", "--type", "error", "--last", "5"), "/log 3k error --last 5"),
    (("log", "search", "slow api"), "/log search slow api"),
    (("next",), "/next"),
    (("resume",), "/resume"),
    (("cost", "week", "opus"), "/cost week opus"),
    (("approvals",), "/approvals"),
    (("approve", "ap7"), "/approve ap7"),
    (("reject", "ap7", "not now"), "/reject ap7 not now"),
    (("status",), "/status"),
]


@pytest.mark.parametrize(("typed", "line"), MAPPED)
def test_each_command_says_the_line_of_the_chat(
    typed: tuple[str, ...], line: str, said: list[str]
) -> None:
    done = CliRunner().invoke(create_cli(), list(typed))

    assert done.exit_code == 0, done.output
    assert said == [line]


@pytest.mark.parametrize(("_typed", "line"), MAPPED)
def test_each_line_is_a_command_of_the_chat(_typed: tuple[str, ...], line: str) -> None:
    assert isinstance(
        parse_message(line, COMMANDS, FakeModels().resolve_choice, mentions=False), CommandMessage
    )


@pytest.mark.parametrize(
    "text",
    [
        "-p is wrong",
        "--self is a flag",
        "--unknown words",
        "- a list\n- of points",
        "\"quoted\" and 'quoted'",
        "@bob /run -- this",
        "/stop everything",
    ],
)
def test_a_sentence_is_a_sentence_whatever_it_begins_with(text: str, said: list[str]) -> None:
    CliRunner().invoke(create_cli(), ["task", "add", text, "-p", "urgent"])
    CliRunner().invoke(create_cli(), ["log", "add", "3k", "finding", text])
    CliRunner().invoke(create_cli(), ["task", "msg", "3k", text])
    CliRunner().invoke(create_cli(), ["task", "block", "3k", "-r", text])

    assert said == [
        f"/run -p urgent -- {text}",
        f"/log 3k finding -- {text}",
        f"/msg 3k {text}",
        f"/block 3k {text}",
    ]


def test_one_word_with_a_dash_comes_after_two(said: list[str]) -> None:
    slip = CliRunner().invoke(create_cli(), ["task", "add", "--jsno"])
    meant = CliRunner().invoke(create_cli(), ["task", "add", "--", "--jsno"])

    assert (slip.exit_code, meant.exit_code) == (2, 0)
    assert said == ["/run -p normal -- --jsno"]


@pytest.mark.parametrize(
    "typed",
    [
        ("task", "add", " "),
        ("task", "show", "two words"),
        ("task", "add", "x", "--parent", "3k", "--self"),
        ("task", "ls", "-s", "nonsense"),
        ("log", "add", "3k", "finding"),
        ("setup",),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    typed: tuple[str, ...], said: list[str]
) -> None:
    done = CliRunner().invoke(create_cli(), list(typed))

    assert done.exit_code in {1, 2}
    assert done.output.strip()
    assert said == []


@pytest.mark.parametrize("typed", [("rnu",), ("task", "shwo"), ("log", "ad")])
def test_a_slip_of_the_pen_gets_a_hint(typed: tuple[str, ...]) -> None:
    done = CliRunner().invoke(create_cli(), list(typed))

    assert done.exit_code == 2
    assert "Did you mean" in done.output


@given(name=st.text(min_size=1), told=st.text(min_size=1))
def test_title_and_instruction_arrive_whatever_is_in_them(name: str, told: str) -> None:
    line = task.run_line(
        name, instruction=told, priority="normal", by_self=False, folder="", persona=""
    )

    found = parse_flags(line.removeprefix("/run "), valued=("p", "title"), bare=("self",))

    assert found.options == {"p": "normal", "title": name}
    assert found.text == told.strip()


def test_paths_are_named_so_that_they_mean_the_same_elsewhere(
    tmp_path: Path, said: list[str]
) -> None:
    CliRunner().invoke(create_cli(), ["task", "add", "x", "-d", "here"])
    CliRunner().invoke(create_cli(), ["log", "add", "3k", "resource", "--file", "a b.txt"])

    assert said == [
        f"/run -p normal -d {tmp_path}/here -- x",
        f'/log 3k resource --file "{tmp_path}/a b.txt" --',
    ]


def test_a_project_is_its_repository_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "site" / ".git").mkdir(parents=True)
    (tmp_path / "site" / "docs").mkdir()

    assert resolve_scope("project", tmp_path / "site" / "docs") == f"project:{tmp_path}/site"
    assert resolve_scope("project:.", tmp_path / "site" / "docs") == f"project:{tmp_path}/site/docs"
    assert resolve_scope("project:/a//b/../c/", tmp_path) == "project:/a/c"


@pytest.mark.parametrize("name", ["", "me", "chat", "project:web", "custom:a/../b", "./"])
def test_every_other_name_stays_as_it_is(name: str) -> None:
    assert resolve_scope(f" {name} ") == name


def test_what_is_to_be_remembered_may_look_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(memory, "execute", lambda line, **_: said.append(line))

    CliRunner().invoke(memory.cli, ["add", "--scope is a word", "--scope", "skill:x", "too"])
    CliRunner().invoke(memory.cli, ["edit", "abc", "-5 degrees"])

    assert said == [
        "/memory add --scope skill:x -- --scope is a word too",
        "/memory edit abc -5 degrees",
    ]
