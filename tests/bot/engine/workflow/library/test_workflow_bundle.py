"""Workflows as single documents: nothing is lost on the way, and nothing hostile is taken in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.workflow.serialization.data_parser import dump_yaml_document
from bot.engine.workflow.workflow_bundle import (
    FORMAT,
    WorkflowBundle,
    read_bundle,
    write_bundle,
)
from storage.errors import NotAllowed
from storage.records.workflows import ImportState, WorkflowRefusalReason, WorkflowRefused
from tests.bot.engine.workflow.library.history_world import NAME, HistoryWorld, make_world, text
from tests.builders import make_person
from tests.engine_harness import run_engine

OUTER = """\
name: Outer   # with a comment
nodes:
  - {id: ask, type: human, name: Good?}
  - {id: sub, type: subworkflow, workflow: note}
  - {id: draw, persona: painter, prompt: Draw it., deliverables: [a.png]}
"""
CASES = "cases:\n  - {name: one, expect: {status: completed}}\n"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HistoryWorld]:
    async with run_engine(tmp_path) as engine:
        yield make_world(engine, tmp_path)


NAMES = st.from_regex(r"[a-z一-龥][a-z0-9_-]{0,8}", fullmatch=True).filter(
    lambda name: name.casefold() != "readme"
)
TEXTS = (
    st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), min_size=1, max_size=200)
    .map(lambda each: f"{each.rstrip()}\n")
    .filter(str.strip)
)


@given(st.dictionaries(NAMES, TEXTS, min_size=1, max_size=4), st.data())
def test_what_was_written_is_read_again(texts: dict[str, str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(texts)))
    bundle = WorkflowBundle(
        name=name, workflows=texts, tests={name: CASES}, personas=("reviewer",), skills=("no",)
    )

    document = write_bundle(bundle)

    assert read_bundle(document) == bundle
    assert write_bundle(read_bundle(document)) == document


async def test_an_import_brings_all_and_a_second_one_changes_nothing(world: HistoryWorld) -> None:
    await world.save("one")
    outer = world.file.with_name("outer.yaml")
    outer.write_text(OUTER, encoding="utf-8")
    world.library.write_tests("outer", CASES)
    document = (await world.exchange.export("outer", with_dependencies=True)).text
    for each in world.file.parent.iterdir():
        each.unlink()

    plan = await world.exchange.plan_import(document)
    assert list(world.file.parent.iterdir()) == []
    assert [(each.name, each.is_test, each.state) for each in plan.items] == [
        ("outer", False, ImportState.NEW),
        ("note", False, ImportState.NEW),
        ("outer", True, ImportState.NEW),
    ]
    assert [(each.step, each.kind, each.detail) for each in plan.needs] == [
        ("ask", "people", "Good?"),
        ("draw", "persona", "painter"),
        ("draw", "files", "a.png"),
    ]
    assert (plan.missing_personas, plan.missing_workflows) == (("painter",), ())

    with pytest.raises(NotAllowed):
        await world.exchange.apply_import(document, by=make_person("p2"), via="import")
    await world.exchange.apply_import(document, by=world.owner, via="import", expected=plan.hash)
    assert outer.read_text(encoding="utf-8") == OUTER
    assert (await world.exchange.export("outer", with_dependencies=True)).text == document
    again = await world.exchange.apply_import(document, by=world.owner, via="import")
    assert {each.state for each in again.items} == {ImportState.SAME}

    outer.write_text(text("mine"), encoding="utf-8")
    with pytest.raises(WorkflowRefused, match="exists"):
        await world.exchange.apply_import(document, by=world.owner, via="import")
    await world.exchange.apply_import(document, by=world.owner, via="import", as_name="other")
    assert outer.read_text(encoding="utf-8") == text("mine")
    assert world.library.read_tests("other") == CASES
    await world.exchange.apply_import(document, by=world.owner, via="import", replace=True)
    assert outer.read_text(encoding="utf-8") == OUTER
    versions = (await world.history.list_versions("outer")).versions
    assert text("mine") in [each.content for each in versions]


async def test_what_it_runs_is_named_if_it_is_not_there(world: HistoryWorld) -> None:
    world.file.with_name("outer.yaml").write_text(OUTER, encoding="utf-8")
    document = (await world.exchange.export("outer")).text

    plan = await world.exchange.plan_import(document)

    assert (plan.is_broken, plan.missing_workflows) == (False, ("note",))


async def test_a_broken_workflow_is_told_where_it_is_and_where_it_is_run(
    world: HistoryWorld,
) -> None:
    outer = OUTER.replace("workflow: note", "workflow: Note")
    world.file.with_name("outer.yaml").write_text(outer, encoding="utf-8")
    await world.save("one")
    whole = (await world.exchange.export("outer", with_dependencies=True)).text
    bundle = read_bundle(whole)
    broken = {**bundle.workflows, "Note": "name: x\nnodes: [{id: a, type: no}]\n"}

    plan = await world.exchange.plan_import(write_bundle(replace(bundle, workflows=broken)))

    assert {each.name: [(e.code, e.location) for e in each.errors] for each in plan.items} == {
        "outer": [("broken_workflow", "sub")],
        "Note": [("unknown_type", "a")],
    }


def document(**changes: object) -> str:
    data = {"format": FORMAT, "name": NAME, "workflows": {NAME: text("one")}, **changes}
    return dump_yaml_document(data)


LOOP = {
    "a": "name: A\nnodes: [{id: s, type: subworkflow, workflow: b}]\n",
    "b": "name: B\nnodes: [{id: s, type: subworkflow, workflow: a}]\n",
}


HOSTILE = [
    ("name: x\nnodes: []", "bundle_format"),
    ("- 1", "bundle_format"),
    (document(format="shiftboss-workflow/2"), "bundle_format"),
    (document(workflows={"../x": text("one"), NAME: text("one")}), "file_name"),
    (document(workflows={"/etc/cron.d/x": text("one"), NAME: text("one")}), "file_name"),
    (document(workflows={NAME: text("one"), "README": text("one")}), "file_name"),
    (document(tests={"../x": CASES}), "file_name"),
    (document(tests={"other": CASES}), "bundle_test"),
    (document(tests={NAME: "cases: 1"}), "bundle_cases"),
    (document(name="other"), "bundle_name"),
    (document(name=7), "bundle_name"),
    (document(workflows=["x"]), "bundle_texts"),
    (document(workflows={NAME: {"name": "x"}}), "bundle_texts"),
    (document(personas="all"), "bundle_names"),
    (document(settings={"SHIFTBOSS_SLOTS": 9}), "bundle_field"),
    (document(workflows={f"w{n}": text("x") for n in range(60)}, name="w1"), "bundle_many"),
    (document(workflows={NAME: "name: x\nnodes: [{id: a, type: no}]"}), "unknown_type"),
    (document(workflows=LOOP, name="a"), "runs_itself"),
    (f"{document()}extra: &a [1]\nmore: *a\n", "yaml_alias"),
    (f"{document()}extra: !!python/object:os.system x\n", "yaml_tag"),
    (f"{document()}---\n{document()}", "several_documents"),
    (f"{document()}deep: {'[' * 200}", "too_nested"),
    (f"{document()}# {'x' * 10_000_000}", "too_long"),
    (f"{document()}many: [{'1,' * 300_000}1]", "too_many_values"),
    (f'{document()}x: "\x07"', "yaml_control"),
    ("", "bundle_format"),
]


async def test_what_is_hostile_is_refused_and_changes_nothing(world: HistoryWorld) -> None:
    for hostile, key in HOSTILE:
        try:
            plan = await world.exchange.plan_import(hostile)
            keys = {error.code for each in plan.items for error in each.errors}
        except WorkflowRefused as refused:
            keys = {each.code for each in refused.errors}
        with pytest.raises(WorkflowRefused) as why:
            await world.exchange.apply_import(hostile, by=world.owner, via="import", replace=True)

        assert key in keys
        assert why.value.reason is WorkflowRefusalReason.BROKEN
        assert list(world.file.parent.iterdir()) == []
        assert not (world.home / "x.yaml").exists()


async def test_links_are_neither_read_nor_followed(world: HistoryWorld) -> None:
    secret = world.home / "secret"
    secret.write_text(CASES, encoding="utf-8")
    world.file.with_name(f"{NAME}.test.yaml").symlink_to(secret)
    await world.save("one")

    with pytest.raises(WorkflowRefused, match="unreadable"):
        await world.exchange.export(NAME)
    world.library.write_tests(NAME, "cases: []")

    assert secret.read_text(encoding="utf-8") == CASES
