"""Coding CLIs by name: chosen like any backend, changed by file, stood in for when they cannot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.acp.agent_config import (
    BUILT_IN_AGENTS,
    MIN_NODE_VERSION,
    AcpAgentConfig,
    AcpAgentsFile,
    read_agents,
)
from bot.engine.llm.acp.backend import AcpBackends
from bot.engine.llm.acp.runtime import NodeVersions, check_agent
from bot.engine.llm.backend import BackendDenied, WorkerMode
from bot.engine.llm.backend_registry import BackendRegistry, build_registry
from cards.catalog import catalog_for
from cards.views.backends import backends_card, setup_hint
from storage.records.people import Language
from tests.emulators.acp.fake_cli import FakeCli, result_reply

FILE = """
path: [{bin}]
agents:
  fake:
    command: [{python}, -S, -E, {program}, {scenario}]
    modes: {{plan: plan, execute: default, review: plan}}
  codex:
    env: [MY_KEY]
"""


def write_agents_file(cli: FakeCli, text: str = FILE) -> None:
    python, *_, program, scenario = cli.agent.command
    told = text.format(bin="/opt/node/bin", python=python, program=program, scenario=scenario)
    (cli.root / "agents.yaml").write_text(told)


def build_cli_registry(cli: FakeCli, **more: Any) -> BackendRegistry:
    return build_registry(clis=AcpBackends(AcpAgentsFile(cli.root), cli.runtime()), **more)


def write_program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_every_built_in_cli_is_told_its_modes_and_how_to_get_it() -> None:
    assert set(BUILT_IN_AGENTS) == {
        "claude-code",
        "opencode",
        "codex",
        "qwen",
        "gemini",
        "codebuddy",
        "iflow",
    }
    for agent in BUILT_IN_AGENTS.values():
        assert set(agent.modes) == set(WorkerMode)
        assert agent.install_hint


def test_a_file_adds_to_the_table_and_changes_what_it_names(cli: FakeCli) -> None:
    write_agents_file(cli)

    agents = read_agents(cli.root / "agents.yaml")

    assert agents.errors == ()
    assert agents.by_name["fake"].command == cli.agent.command
    assert agents.by_name["codex"].command == BUILT_IN_AGENTS["codex"].command
    assert agents.by_name["codex"].env == (*BUILT_IN_AGENTS["codex"].env, "MY_KEY")
    assert agents.by_name["qwen"].path == ("/opt/node/bin",)


def test_a_quirk_stays_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("agents: {gemini: {node: 24}, qwen: {titled: true}}")

    agents = read_agents(file).by_name

    assert [agents[name].command_in_title for name in ("gemini", "qwen", "codex")] == [
        True,
        True,
        False,
    ]


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

    assert fault in " ".join(agents.errors)
    assert set(agents.by_name) == set(BUILT_IN_AGENTS)


def test_the_file_is_read_again_when_it_has_changed(cli: FakeCli) -> None:
    models = build_cli_registry(cli)
    assert models.resolve_choice("fake") is None

    write_agents_file(cli)

    assert models.resolve_choice("fake") is not None


@pytest.mark.parametrize("name", ["fake", "@fake", "acp:fake", "fake:big", "acp:fake:big"])
def test_names_lead_to_it(cli: FakeCli, name: str) -> None:
    write_agents_file(cli)

    choice = build_cli_registry(cli).resolve_choice(name)

    assert choice is not None
    assert (choice.backend, choice.problem) == ("fake", "")
    assert choice.model == ("big" if "big" in name else "")


def test_the_program_may_be_set_to_one(cli: FakeCli) -> None:
    write_agents_file(cli)

    models = build_cli_registry(cli, model="acp:fake")

    assert models.default.name == "fake"
    assert models.select_backend("", "").backend.name == "fake"
    assert "fake" in [choice.name for choice in models.list_choices()]


def test_one_that_cannot_work_says_why_where_nobody_stands_in(cli: FakeCli) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    with pytest.raises(BackendDenied) as caught:
        build_cli_registry(cli).select_backend("", "fake")

    assert caught.value.hint == "backend.cli_missing"


def test_who_stands_in_says_for_whom_and_why(cli: FakeCli) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    chosen = build_cli_registry(cli, fallbacks=("offline",)).select_backend("", "fake")

    assert chosen.backend.name == "offline"
    assert (chosen.instead_of, chosen.fallback_reason) == ("fake", "backend.cli_missing")


async def test_one_whose_node_is_too_old_is_stood_in_for_once_it_was_looked_at(
    cli: FakeCli,
) -> None:
    write_program(cli.root / "bin", "mine")
    write_program(cli.root / "bin", "node", "#!/bin/sh\necho v20.1.0\n")
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [mine], node: 22}}")
    house = cli.runtime(environ={"PATH": str(cli.root / "bin")})
    models = build_registry(
        clis=AcpBackends(AcpAgentsFile(cli.root), house), fallbacks=("offline",)
    )

    await models.refresh_cli_health()

    chosen = models.select_backend("", "fake")
    assert (chosen.backend.name, chosen.fallback_reason) == ("offline", "backend.cli_old_node")


def test_one_that_stands_in_must_be_able_to(cli: FakeCli) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    with pytest.raises(BackendDenied):
        build_cli_registry(cli, fallbacks=("anthropic:opus",)).select_backend("", "fake")


def test_an_old_node_a_missing_login_and_health(tmp_path: Path) -> None:
    write_program(tmp_path / "bin", "mine")
    write_program(tmp_path / "bin", "node", "#!/bin/sh\necho v20.1.0\n")
    around = {"PATH": str(tmp_path / "bin")}
    agent = AcpAgentConfig(
        name="mine",
        command=("mine",),
        install_hint="",
        min_node_version=MIN_NODE_VERSION,
        key_variables=("MY_KEY",),
    )
    nodes = NodeVersions()

    assert check_agent(agent, tmp_path, around, nodes.get_cached).problem == "backend.cli_login"
    old = check_agent(agent, tmp_path, around, nodes.detect)
    assert old.problem == "backend.cli_old_node"
    assert (old.facts["found"], old.facts["needed"]) == ("20", "22")
    write_program(tmp_path / "bin", "node", "#!/bin/sh\necho v24.0.0\n")
    os.utime(tmp_path / "bin" / "node", (1, 1))
    assert check_agent(agent, tmp_path, around, nodes.detect).problem == "backend.cli_login"
    assert check_agent(agent, tmp_path, {**around, "MY_KEY": "x"}, nodes.detect).problem == ""


def test_a_login_in_any_personas_home_counts(tmp_path: Path) -> None:
    write_program(tmp_path / "bin", "mine")
    agent = AcpAgentConfig(
        name="mine", command=("mine",), install_hint="", login_files=(".mine/login.json",)
    )
    login = tmp_path / "agents" / "mine" / "critic" / ".mine" / "login.json"
    login.parent.mkdir(parents=True)

    around = {"PATH": str(tmp_path / "bin")}
    assert check_agent(agent, tmp_path, around, lambda _: None).problem == "backend.cli_login"
    login.write_text("{}")
    assert check_agent(agent, tmp_path, around, lambda _: None).problem == ""


async def test_whether_one_is_ready_is_looked_up_and_nothing_is_started(cli: FakeCli) -> None:
    write_agents_file(cli)
    cli.script([result_reply({})])
    models = build_cli_registry(cli)

    ready, missing = await models.get_health("fake"), await models.get_health("anthropic")

    assert ready is not None
    assert missing is not None
    assert (ready.problem, missing.problem) == ("", "backend.no_anthropic_key")
    assert (ready.is_cli, missing.is_cli) == (True, False)
    assert await models.get_health("nobody") is None
    assert not cli.received("initialize")


@pytest.mark.parametrize("fallback", ["", "offline"])
async def test_of_a_missing_one_it_is_known_who_does_its_work(cli: FakeCli, fallback: str) -> None:
    (cli.root / "agents.yaml").write_text("agents: {fake: {command: [no-such-program]}}")

    registry = build_cli_registry(cli, fallbacks=(fallback,) if fallback else ())
    found_out = await registry.get_health("fake:big")

    assert found_out is not None
    assert (found_out.problem, found_out.fallback) == ("backend.cli_missing", fallback)


async def test_a_check_of_one_starts_it_and_asks_nothing_of_a_model(cli: FakeCli) -> None:
    write_agents_file(cli)
    cli.script([result_reply({})])

    report = await build_cli_registry(cli).report("fake")

    assert report is not None
    assert [(each.problem, each.version) for each in report.backends] == [("", "1.2.3")]
    assert cli.prompts() == []


async def test_a_check_finds_what_no_look_can(cli: FakeCli) -> None:
    write_agents_file(cli)
    cli.script([], login=True)

    report = await build_cli_registry(cli).report("fake")

    assert report is not None
    assert report.backends[0].problem == "backend.cli_login"
    for language in Language:
        assert "agents/fake" in setup_hint(report.backends[0], catalog_for(language))
    assert await build_cli_registry(cli).report("nobody") is None


@pytest.mark.parametrize("language", list(Language))
async def test_the_list_says_of_each_what_is_missing_and_how_to_get_it(
    cli: FakeCli, language: Language
) -> None:
    clis = AcpBackends(AcpAgentsFile(cli.root), cli.runtime(environ={"PATH": "/nowhere"}))
    report = await build_registry(clis=clis, fallbacks=("offline",)).report()
    assert report is not None

    card = backends_card(report, catalog_for(language))

    told = str(card)
    assert "npm install -g opencode-ai" in told
    assert "`offline`" in told
    assert "backend." not in told
