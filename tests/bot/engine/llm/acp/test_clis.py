"""Coding CLIs by name: chosen like any backend, changed by file, stood in for when they cannot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.acp.agents_file import AgentsFile, read_agents
from bot.engine.llm.acp.clis import Clis
from bot.engine.llm.acp.machine.health import Nodes, look
from bot.engine.llm.acp.table import BUILT_IN, NODE, Agent
from bot.engine.llm.base import BackendDenied, Mode
from bot.engine.llm.registry import Registry, registry
from cards.views.backends import backends_card, how
from cards.words import words_for
from storage.records.people import Language
from tests.emulators.acp.cli import FakeCli, result

FILE = """
path: [{bin}]
agents:
  fake:
    command: [{python}, -S, -E, {program}, {scenario}]
    modes: {{plan: plan, execute: default, review: plan}}
  codex:
    env: [MY_KEY]
"""


def write(cli: FakeCli, text: str = FILE) -> None:
    python, *_, program, scenario = cli.agent.command
    told = text.format(bin="/opt/node/bin", python=python, program=program, scenario=scenario)
    (cli.root / "agents.yaml").write_text(told)


def found(cli: FakeCli, **more: Any) -> Registry:
    return registry(clis=Clis(AgentsFile(cli.root), cli.house()), **more)


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_every_built_in_cli_is_told_its_modes_and_how_to_get_it() -> None:
    assert set(BUILT_IN) == {
        "claude-code",
        "opencode",
        "codex",
        "qwen",
        "gemini",
        "codebuddy",
        "iflow",
    }
    for agent in BUILT_IN.values():
        assert set(agent.modes) == set(Mode)
        assert agent.get


def test_a_file_adds_to_the_table_and_changes_what_it_names(cli: FakeCli) -> None:
    write(cli)

    agents = read_agents(cli.root / "agents.yaml")

    assert agents.faults == ()
    assert agents.of["fake"].command == cli.agent.command
    assert agents.of["codex"].command == BUILT_IN["codex"].command
    assert agents.of["codex"].env == (*BUILT_IN["codex"].env, "MY_KEY")
    assert agents.of["qwen"].path == ("/opt/node/bin",)


def test_a_quirk_stays_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("agents: {gemini: {node: 24}, qwen: {titled: true}}")

    agents = read_agents(file).of

    assert [agents[name].titled for name in ("gemini", "qwen", "codex")] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("agents: [", "cannot be read as YAML at line"),
        ("- a", "must hold path and agents"),
        ("agents: {mine: {}}", "mine: command is missing"),
        ("agents: {openai: {command: [x]}}", "the name is taken"),
        ("agents: {My CLI: {command: [x]}}", "must be lower-case"),
        ("agents: {mine: {command: [x], colour: red}}", "there is no 'colour' here; it takes"),
        ("agents: {mine: {command: x}}", "command: "),
        ("agents: {mine: {command: [x], modes: {fast: x}}}", "modes"),
        ("agents: {mine: {command: [x], env: ['A B']}}", "env.0"),
        ("agents: {mine: {command: [x], files: {../x: y}}}", "files"),
        ("path: bin", "path must be a list"),
        ("tools: {}", "there is no 'tools' here"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_and_the_rest_is_used(
    tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "agents.yaml").write_text(text)

    agents = read_agents(tmp_path / "agents.yaml")

    assert fault in " ".join(agents.faults)
    assert set(agents.of) == set(BUILT_IN)


def test_the_file_is_read_again_when_it_has_changed(cli: FakeCli) -> None:
    models = found(cli)
    assert models.pick("fake") is None

    write(cli)

    assert models.pick("fake") is not None


@pytest.mark.parametrize("name", ["fake", "@fake", "acp:fake", "fake:big", "acp:fake:big"])
def test_names_lead_to_it(cli: FakeCli, name: str) -> None:
    write(cli)

    choice = found(cli).pick(name)

    assert choice is not None
    assert (choice.backend, choice.problem) == ("fake", "")
    assert choice.model == ("big" if "big" in name else "")


def test_the_program_may_be_set_to_one(cli: FakeCli) -> None:
    write(cli)

    models = found(cli, model="acp:fake")

    assert models.default.name == "fake"
    assert models.choose("", "").backend.name == "fake"
    assert "fake" in [choice.name for choice in models.choices()]


def test_one_that_cannot_work_says_why_where_nobody_stands_in(cli: FakeCli) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    with pytest.raises(BackendDenied) as caught:
        found(cli).choose("", "fake")

    assert caught.value.hint == "backend.cli_missing"


def test_who_stands_in_says_for_whom_and_why(cli: FakeCli) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    chosen = found(cli, fallback="offline").choose("", "fake")

    assert chosen.backend.name == "offline"
    assert (chosen.instead_of, chosen.why) == ("fake", "backend.cli_missing")


async def test_one_whose_node_is_too_old_is_stood_in_for_once_it_was_looked_at(
    cli: FakeCli,
) -> None:
    program(cli.root / "bin", "mine")
    program(cli.root / "bin", "node", "#!/bin/sh\necho v20.1.0\n")
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [mine], node: 22}}")
    house = cli.house(around={"PATH": str(cli.root / "bin")})
    models = registry(clis=Clis(AgentsFile(cli.root), house), fallback="offline")

    await models.look_around()

    chosen = models.choose("", "fake")
    assert (chosen.backend.name, chosen.why) == ("offline", "backend.cli_old_node")


def test_one_that_stands_in_must_be_able_to(cli: FakeCli) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    with pytest.raises(BackendDenied):
        found(cli, fallback="anthropic:opus").choose("", "fake")


def test_an_old_node_a_missing_login_and_health(tmp_path: Path) -> None:
    program(tmp_path / "bin", "mine")
    program(tmp_path / "bin", "node", "#!/bin/sh\necho v20.1.0\n")
    around = {"PATH": str(tmp_path / "bin")}
    agent = Agent(name="mine", command=("mine",), get="", node=NODE, keys=("MY_KEY",))
    nodes = Nodes()

    assert look(agent, tmp_path, around, nodes.known).problem == "backend.cli_login"
    old = look(agent, tmp_path, around, nodes.ask)
    assert old.problem == "backend.cli_old_node"
    assert (old.facts["found"], old.facts["needed"]) == ("20", "22")
    program(tmp_path / "bin", "node", "#!/bin/sh\necho v24.0.0\n")
    os.utime(tmp_path / "bin" / "node", (1, 1))
    assert look(agent, tmp_path, around, nodes.ask).problem == "backend.cli_login"
    assert look(agent, tmp_path, {**around, "MY_KEY": "x"}, nodes.ask).problem == ""


def test_a_login_in_any_personas_home_counts(tmp_path: Path) -> None:
    program(tmp_path / "bin", "mine")
    agent = Agent(name="mine", command=("mine",), get="", logins=(".mine/login.json",))
    login = tmp_path / "agents" / "mine" / "critic" / ".mine" / "login.json"
    login.parent.mkdir(parents=True)

    around = {"PATH": str(tmp_path / "bin")}
    assert look(agent, tmp_path, around, lambda _: None).problem == "backend.cli_login"
    login.write_text("{}")
    assert look(agent, tmp_path, around, lambda _: None).problem == ""


async def test_whether_one_is_ready_is_looked_up_and_nothing_is_started(cli: FakeCli) -> None:
    write(cli)
    cli.will([result({})])
    models = found(cli)

    ready, missing = await models.ready("fake"), await models.ready("anthropic")

    assert ready is not None
    assert missing is not None
    assert (ready.problem, missing.problem) == ("", "backend.no_anthropic_key")
    assert (ready.is_cli, missing.is_cli) == (True, False)
    assert await models.ready("nobody") is None
    assert not cli.received("initialize")


@pytest.mark.parametrize("fallback", ["", "offline"])
async def test_of_a_missing_one_it_is_known_who_does_its_work(cli: FakeCli, fallback: str) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    found_out = await found(cli, fallback=fallback).ready("fake:big")

    assert found_out is not None
    assert (found_out.problem, found_out.instead) == ("backend.cli_missing", fallback)


async def test_a_check_of_one_starts_it_and_asks_nothing_of_a_model(cli: FakeCli) -> None:
    write(cli)
    cli.will([result({})])

    report = await found(cli).report("fake")

    assert report is not None
    assert [(each.problem, each.version) for each in report.backends] == [("", "1.2.3")]
    assert cli.prompts() == []


async def test_a_check_finds_what_no_look_can(cli: FakeCli) -> None:
    write(cli)
    cli.will([], login=True)

    report = await found(cli).report("fake")

    assert report is not None
    assert report.backends[0].problem == "backend.cli_login"
    for language in Language:
        assert "agents/fake" in how(report.backends[0], words_for(language))
    assert await found(cli).report("nobody") is None


@pytest.mark.parametrize("language", list(Language))
async def test_the_list_says_of_each_what_is_missing_and_how_to_get_it(
    cli: FakeCli, language: Language
) -> None:
    clis = Clis(AgentsFile(cli.root), cli.house(around={"PATH": "/nowhere"}))
    report = await registry(clis=clis, fallback="offline").report()
    assert report is not None

    card = backends_card(report, words_for(language))

    told = str(card)
    assert "npm install -g opencode-ai" in told
    assert "`offline`" in told
    assert "backend." not in told
