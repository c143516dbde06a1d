"""Personas in files: read as they are now, bad ones said and never fatal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.llm.backend import McpServer, WorkerMode
from bot.engine.llm.limit_overrides import LimitOverrides
from bot.engine.workers.personas import (
    BUILT_IN_PERSONAS,
    MAX_FILE_BYTES,
    InvalidPersonaFile,
    PersonaLibrary,
    load_persona,
)
from cards.catalog import catalog_for
from storage.records.people import Language

POET = """\
---
title: {en: Poet, zh: 诗人}
about: Writes in verse.
traits: {naming: short, comments: in rhyme}
tools: read, write
denied: [exec]
mode: plan
model: opus
servers:
  tracker: {command: tracker-mcp --stdio "two words", env: {KEY: "${TRACKER_KEY}"}}
  site: {url: "https://example.org/mcp"}
---
You answer in verse.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "personas"
    made.mkdir()
    return made


@pytest.mark.parametrize("name", ["auto", "", "nobody", "PRAGMATIST", " pragmatist "])
async def test_nobody_and_unknown_names_mean_the_default(tmp_path: Path, name: str) -> None:
    assert (await PersonaLibrary(tmp_path).get(name)).name == "pragmatist"


async def test_a_file_makes_somebody_of_ones_own(folder: Path) -> None:
    (folder / "Poet.md").write_text(POET)

    poet = await PersonaLibrary(folder.parent).get("poet")

    assert poet.title == {"en": "Poet", "zh": "诗人"}
    assert poet.about == {"en": "Writes in verse.", "zh": "Writes in verse."}
    assert poet.system_text == (
        "You answer in verse.\nHow you work:\n- comments: in rhyme\n- naming: short and usual"
    )
    assert (poet.tools, poet.denied, poet.mode) == (("read", "write"), ("exec",), WorkerMode.PLAN)
    assert (poet.model, poet.source) == ("opus", "Poet.md")
    assert poet.servers == (
        McpServer(
            name="tracker",
            command=("tracker-mcp", "--stdio", "two words"),
            env={"KEY": "${TRACKER_KEY}"},
        ),
        McpServer(name="site", url="https://example.org/mcp"),
    )


async def test_a_file_is_read_anew_once_it_has_changed(folder: Path) -> None:
    library = PersonaLibrary(folder.parent)
    (folder / "poet.yaml").write_text("prompt: verse\n")
    assert (await library.get("poet")).prompt == "verse"

    (folder / "poet.yaml").write_text("prompt: prose instead\n")
    assert (await library.get("poet")).prompt == "prose instead"

    (folder / "poet.yaml").unlink()
    assert (await library.get("poet")).name == "pragmatist"


async def test_a_file_may_stand_in_for_one_built_in_and_says_only_what_differs(
    folder: Path,
) -> None:
    (folder / "reviewer.md").write_text("Be brief.")

    reviewer = await PersonaLibrary(folder.parent).get("reviewer")

    assert reviewer.prompt == "Be brief."
    assert reviewer.mode is WorkerMode.REVIEW
    assert reviewer.tools == BUILT_IN_PERSONAS["reviewer"].tools


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("auto.md", "x", "name"),
        ("two words.md", "x", "name"),
        ("a.yaml", "name: ../etc\nprompt: x", "name"),
        ("a.yaml", "prompt: [", "yaml"),
        ("a.yaml", "- a\n- b", "yaml"),
        ("a.yaml", "!!python/object/apply:os.system [id]", "yaml"),
        ("a.yaml", "[" * 5000, "yaml"),
        ("a.yaml", "promt: x", "value"),
        ("a.yaml", "prompt: x\nmode: everything", "value"),
        ("a.yaml", "prompt: x\ntraits: {colour: red}", "value"),
        ("a.yaml", "prompt: x\nservers: {a: {}}", "value"),
        ("a.yaml", "prompt: x\nservers: {a: {command: 'open \"quote'}}", "value"),
        ("a.yaml", "prompt: x\nservers: {a__b: {command: x}}", "value"),
        ("a.yaml", "prompt: x\nservers: {a: {url: 'file:///etc/passwd'}}", "value"),
        ("a.yaml", "prompt: x\nservers: {a: {command: x, headers: {A: b}}}", "value"),
        (
            "a.yaml",
            'prompt: x\nservers: {a: {url: "http://x", headers: {A: "b\\r\\nC: d"}}}',
            "value",
        ),
        ("a.md", "", "empty"),
        ("a.md", "---\ntitle: A\n---\n", "empty"),
        ("a.md", "x" * (MAX_FILE_BYTES + 1), "large"),
        ("a.md", "x" * 20_001, "value"),
    ],
)
async def test_a_bad_file_is_named_with_its_reason_and_the_others_work(
    folder: Path, file: str, text: str, why: str
) -> None:
    (folder / file).write_text(text)
    (folder / "good.md").write_text("Be good.")

    library = PersonaLibrary(folder.parent)
    roster = await library.roster()

    assert [(fault.file, fault.reason_key) for fault in roster.errors] == [(file, why)]
    assert roster.find("good") is not None
    for language in Language:
        assert catalog_for(language)(f"persona.fault.{why}", detail=roster.errors[0].detail)


async def test_no_file_of_any_kind_stops_the_others(folder: Path) -> None:
    (folder / "binary.md").write_bytes(b"\xff\xfe\x00")
    (folder / "folder.md").mkdir()
    (folder / "gone.md").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.md")
    (folder / "poet.md").write_text("verse")
    (folder / "poet.yaml").write_text("prompt: prose")
    (folder / "notes.txt").write_text("not a persona")

    roster = await PersonaLibrary(folder.parent).roster()

    assert {fault.file: fault.reason_key for fault in roster.errors} == {
        "binary.md": "text",
        "folder.md": "unreadable",
        "gone.md": "unreadable",
        "pipe.md": "unreadable",
        "poet.yaml": "twice",
    }
    found = roster.find("poet")
    assert found is not None
    assert found.prompt == "verse"


async def test_limits_of_a_file_are_read_and_bad_ones_are_told(folder: Path) -> None:
    (folder / "poet.md").write_text("---\nlimits: {turns: 60, seconds: 1800}\n---\nverse")
    (folder / "clerk.md").write_text("---\nlimits: {tokens: 5}\n---\nprose")
    (folder / "reviewer.md").write_text("---\nlimits: {dollars: 5}\n---\n")

    library = PersonaLibrary(folder.parent)
    poet, errors = await library.get("poet"), (await library.roster()).errors

    assert poet.limits == LimitOverrides(turns=60, seconds=1800.0)
    assert {each.file: each.detail for each in errors} == {
        "clerk.md": "limits.tokens: Input should be greater than or equal to 1000",
        "reviewer.md": "limits.dollars: Extra inputs are not permitted",
    }


async def test_somebody_is_found_by_title_in_any_language(tmp_path: Path) -> None:
    roster = await PersonaLibrary(tmp_path).roster()

    assert [getattr(roster.find(name), "name", None) for name in ("评审者", "DEVOPS", "x")] == [
        "reviewer",
        "devops",
        None,
    ]


@settings(max_examples=60)
@given(text=st.text() | st.text(alphabet="-:\n{}[]&*!|> a"), front=st.booleans())
def test_whatever_a_file_says_it_is_a_persona_or_a_fault(
    text: str, front: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.md"
    path.write_text(f"---\n{text}\n---\nx" if front else text, encoding="utf-8", newline="")

    try:
        persona = load_persona(path, BUILT_IN_PERSONAS)
    except InvalidPersonaFile:
        return
    assert persona.system_text
