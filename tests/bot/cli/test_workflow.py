"""`shiftboss workflow`: what it prints, and with which status it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli.command_line import create_cli
from storage.data_directory import DataDirectoryLock

GOOD = """\
name: Sums
inputs:
  - {name: n, type: number}
  - {name: how, type: choice, options: [fast, slow], default: fast}
nodes:
  - {id: add, type: script, script: {expression: "inputs.n * 2", outputVar: twice}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "workflows"
    folder.mkdir(parents=True)
    (folder / "sums.yaml").write_text(GOOD, encoding="utf-8")
    return tmp_path


def typed(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(create_cli(), ["workflow", *args], input=stdin)


def test_a_good_file_is_said_to_be_good_by_name_and_by_path(home: Path) -> None:
    path = str(home / "home" / "workflows" / "sums.yaml")

    assert typed("validate", "sums").stdout == "sums: good, 1 node\n"
    data = json.loads(typed("validate", path, "--json").stdout)
    assert (data["good"], data["diagnostics"]) == (True, [])
    assert [each["name"] for each in data["inputs"]] == ["n", "how"]


def test_a_bad_file_is_told_with_all_its_faults(home: Path) -> None:
    bad = home / "bad.yaml"
    bad.write_text("name: x\nnodes: [{id: a, type: banana}, {id: a}]", encoding="utf-8")

    plain, data = typed("validate", str(bad)), typed("validate", str(bad), "--json")

    assert (plain.exit_code, data.exit_code) == (1, 1)
    assert len(plain.stdout.splitlines()) >= 3
    assert {"twice", "unknown_type"} <= {
        each["code"] for each in json.loads(data.stdout)["diagnostics"]
    }


def test_what_is_not_there_says_so(home: Path) -> None:
    assert typed("validate", str(home / "none.yaml")).exit_code == 2
    unknown = typed("show", "nothing")
    assert unknown.exit_code == 1
    assert "workflow list" in unknown.output


def test_the_list_has_broken_files_too(home: Path) -> None:
    (home / "home" / "workflows" / "torn.json").write_text("{", encoding="utf-8")

    plain = typed("list").stdout

    assert "sums  Sums  (asks for n)" in plain
    assert "torn.json: cannot run" in plain
    data = json.loads(typed("list", "--json").stdout)
    assert [each["file"] for each in data["broken"]] == ["torn.json"]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ([], "n=…: required"),
        (["-i", "n=many"], "must be a number"),
        (["-i", "n=1", "-i", "how=never"], "one of fast / slow"),
        (["-i", "n=1", "-i", "colour=red"], "no such input"),
        (["-i", "n"], "NAME=VALUE"),
    ],
)
def test_wrong_inputs_are_refused_before_anything_runs(
    home: Path, inputs: list[str], says: str
) -> None:
    result = typed("run", "sums", *inputs)

    assert result.exit_code == 2
    assert says in result.output
    assert not (home / "home" / "shiftboss.db").exists()


NOTE = """\
name: Note
nodes:
  - {id: write, name: Write, prompt: "On {{inputs.topic}}"}
  - {id: review, name: Review, output: {approved: bool}}
  - {id: send, name: Send}
inputs: [{name: topic}]
edges: [{from: write, to: review}, {from: review, to: send, condition: outputs.review.approved}]
outputs: {sent: outputs.send}
"""
CASES = """\
cases:
  - name: sent
    inputs: {topic: otters}
    outputs: {review: {approved: true}, send: Sent.}
    expect: {path: [write, review, send], outputs: {sent: Sent.}, prompts: {write: On otters}}
  - name: not sent
    inputs: {topic: otters}
    outputs: {review: {approved: false}}
    expect: {path: [write, review, send]}
"""


def test_a_dry_run_says_what_a_run_would_do_and_leaves_nothing_behind(home: Path) -> None:
    (home / "home" / "workflows" / "note.yaml").write_text(NOTE, encoding="utf-8")
    outputs = home / "outputs.yaml"
    outputs.write_text("review: {approved: true}\n", encoding="utf-8")
    wrong = home / "wrong.yaml"
    wrong.write_text("outputs:\n  reveiw: {approved: true}\n", encoding="utf-8")

    open_ = typed("dry-run", "note", "-i", "topic=otters")
    given = ["dry-run", "note", "-i", "topic=otters", "--outputs"]
    data = json.loads(typed(*given, str(outputs), "--json").stdout)
    refused = typed(*given, str(wrong))

    assert (open_.exit_code, data["end"], refused.exit_code) == (3, "completed", 1)
    assert "`outputs.review.approved`" in open_.stdout
    assert "│ On otters" in open_.stdout
    assert data["path"] == ["write", "review", "send"]
    assert data["not_given"] == ["write", "send"]
    assert f"{wrong}:2:3: error: " in refused.stdout
    assert "Did you mean `review`?" in refused.stdout
    assert [each.name for each in (home / "home").iterdir()] == ["workflows"]


def test_cases_are_run_and_differences_told(home: Path) -> None:
    folder = home / "home" / "workflows"
    assert typed("test").exit_code == 2
    (folder / "note.yaml").write_text(NOTE, encoding="utf-8")
    (folder / "note.test.yaml").write_text(CASES, encoding="utf-8")

    plain, data = typed("test"), json.loads(typed("test", "note", "--json").stdout)
    (folder / "note.test.yaml").write_text(CASES.replace("topic", "tpoic"), encoding="utf-8")
    broken = typed("test", str(folder / "note.yaml"))
    (folder / "note.test.yaml").write_text(CASES[: CASES.index("  - name: not")], encoding="utf-8")

    assert (plain.exit_code, broken.exit_code) == (1, 1)
    assert "✅ note: sent" in plain.stdout
    assert "path: expected write → review → send" in plain.stdout
    assert "path: got write → review" in plain.stdout
    assert [each["passed"] for each in data[0]["cases"]] == [True, False]
    assert "note.test.yaml:3:14: error: `cases[1].inputs.tpoic`" in broken.stdout
    assert typed("test", str(folder / "note.test.yaml")).exit_code == 0


def test_a_home_that_somebody_works_on_is_left_to_them(home: Path) -> None:
    with DataDirectoryLock(home / "home"):
        result = typed("run", "sums", "-i", "n=1")

    assert result.exit_code == 2
    assert "another Shiftboss" in result.output


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("n * 2", 42, "number"),
        ("n > 20 && true", True, "bool"),
        ("'a' + 'b'", "ab", "text"),
        ("[1, n]", [1, 21], "list"),
        ("null", None, "null"),
    ],
)
def test_an_expression_has_a_value_and_a_type(expression: str, value: object, kind: str) -> None:
    result = typed("eval", expression, "--scope", '{"n": 21}', "--json")

    assert json.loads(result.stdout) == {"value": value, "type": kind}


@pytest.mark.parametrize("expression", ["1 +", "nobody", "__import__('os')", "9 ** 9 ** 9"])
def test_a_wrong_expression_is_one_line(expression: str) -> None:
    result = typed("eval", expression)

    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize("scope", ["{", "[1]", "@/nowhere/at/all"])
def test_a_scope_that_is_none_is_refused(scope: str) -> None:
    assert typed("eval", "1", "--scope", scope).exit_code == 2


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("outputs.review.approved", False),
        ("outputs.re_view.score", 7),
        ("outputs['re-view'].result", "Fine. score: 7"),
        ("outputs.typed.n + 1", 3),
        ("nodeStates.review", "done"),
        ("loopCount", 0),
        ("variables.x + inputs.topic", "yotters"),
        ("item", "pear"),
    ],
)
def test_an_expression_sees_what_it_sees_in_a_run(
    expression: str, value: object, home: Path
) -> None:
    file = home / "flow.yaml"
    file.write_text(
        "name: f\nvariables: {x: y}\ninputs: [{name: topic, default: otters}]\n"
        "nodes: [{id: review}, {id: re-view}, {id: typed, output: 'n: int'}]\n",
        encoding="utf-8",
    )
    outputs = {"review": "Approved：False", "re-view": "Fine. score: 7", "typed": {"n": "2"}}
    scope = json.dumps({"outputs": outputs, "item": "pear"})

    result = typed("eval", expression, "--scope", scope, "--workflow", str(file), "--json")

    assert json.loads(result.stdout)["value"] == value


def test_outputs_need_no_workflow_and_must_fit_a_declared_one(home: Path) -> None:
    scope = '{"outputs": {"review": "**Approved**: yes"}}'
    assert typed("eval", "outputs.review.approved == true", "--scope", scope).stdout == (
        "true\nbool\n"
    )
    file = home / "flow.yaml"
    file.write_text("name: f\nnodes: [{id: t, output: 'n: int'}]\n", encoding="utf-8")
    wrong = typed("eval", "1", "--scope", '{"outputs": {"t": {"n": "x"}}}', "-w", str(file))
    assert wrong.exit_code == 2
    assert "n (integer)" in wrong.output


def test_a_scope_may_come_from_a_file_or_a_pipe(home: Path) -> None:
    file = home / "scope.json"
    file.write_text('{"n": 3}', encoding="utf-8")

    assert typed("eval", "n", "--scope", f"@{file}").stdout == "3\nnumber\n"
    assert typed("eval", "n", "--scope", "-", stdin='{"n": 4}').stdout == "4\nnumber\n"
