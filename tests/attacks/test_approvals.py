"""An approval covers what a person saw and what would have happened then, nothing else."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from bot.engine.permissions import call_effects
from bot.engine.permissions.call_effects import take_snapshot
from bot.engine.permissions.policy import PolicyDecision, PolicyVerdict
from cards.catalog import catalog_for
from cards.render.text import render
from cards.views.approvals import approval_card
from storage.data_directory import make_private
from storage.records.approvals import (
    ApprovalKind,
    StandingPermission,
    StandingPermissionScope,
    is_bound_to_files,
)
from storage.records.people import Language
from tests.attacks.test_effect_window import LURED, RACER
from tests.bot.engine.permissions.policy_cases import build_policy, make_grant, tool_call
from tests.builders import make_approval
from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.journeys.model_world import ModelWorld, label_with, model_world, script_task
from tests.journeys.test_tool_approvals import request_in

MCP_SERVER = Path(__file__).parents[1] / "emulators" / "mcp_server.py"

# --- what is run and changed ---------------------------------------------------------------------

COMMANDS = [
    "sh b.sh", "./b.sh", "bash ./b.sh arg", ". ./b.sh", "source b.sh", "sh < b.sh", "sh <b.sh",
    "cat a | sh b.sh", "true; sh b.sh", "true&&sh b.sh", "(sh b.sh)", "bash -c 'sh b.sh'",
    'bash -c "sh b.sh"', "bash -c \"bash -c 'sh b.sh'\"", "env X=1 sh b.sh", "timeout 5 sh b.sh",
    "nohup ./b.sh &", "xargs sh b.sh < a", "sh ../work/b.sh", "sh ./x/../b.sh", "$(sh b.sh)",
    "`sh b.sh`", "git -c core.sshCommand=./b.sh fetch", "tar --use-compress-program=./b.sh -cf x .",
    "bash --rcfile b.sh -i", "BASH_ENV=b.sh bash -c true", "sh b''.sh", "sh b\\.sh", "sh *.sh",
    "sh b.??", "X=b; sh $X.sh", "sh {b,}.sh", "find . -name b.sh -exec sh {} +", "awk -f b.sh a",
    "python -c 'import os; os.system(\"sh b.sh\")'", "echo b.sh | xargs sh", "ssh -F b.sh host",
    "perl -Mb.sh -e 1", "node -r./b.sh x.js", "cd . && sh b.sh", "pushd .; sh b.sh", "sh -x b.sh",
]  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "x").mkdir()
    (folder / "a").write_text("a")
    (folder / "b.sh").write_text("echo harmless\n")
    (folder / "sub" / "c.py").write_text("print('harmless')\n")
    return folder


def overwrite(path: Path) -> None:
    path.write_text("echo evil!!!!\n")


def overwrite_quietly(path: Path) -> None:
    """Same size, same times."""
    seen = path.stat()
    path.write_text(path.read_text().replace("harmless", "hurtful!"))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [overwrite, overwrite_quietly, replace_by_link, remove])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_script_that_was_changed_after_the_question_is_another_effect(
    work: Path, command: str, change: Callable[[Path], None]
) -> None:
    call = tool_call("exec", command=command)
    asked = take_snapshot(call, work).hash
    assert take_snapshot(call, work).hash == asked

    change(work / "b.sh")

    assert take_snapshot(call, work).hash != asked


@pytest.mark.parametrize("change", [overwrite, overwrite_quietly, replace_by_link, remove])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_permission_for_good_ends_when_a_script_changes(
    work: Path, command: str, change: Callable[[Path], None]
) -> None:
    asked = evaluate(command, work)
    granted = [make_grant(asked.pattern)]
    assert evaluate(command, work, granted).verdict is PolicyVerdict.ALLOW

    change(work / "b.sh")

    assert evaluate(command, work, granted).verdict is PolicyVerdict.ASK


def test_a_permission_for_good_does_not_cover_the_same_command_in_another_folder(
    work: Path, tmp_path: Path
) -> None:
    """A hostile repository has its own `b.sh`; the same repository in another worktree is right."""
    granted = [make_grant(evaluate("sh b.sh", work).pattern)]
    same, other = tmp_path / "same", tmp_path / "other"
    for folder in (same, other):
        shutil.copytree(work, folder)
    overwrite(other / "b.sh")

    assert evaluate("sh b.sh", same, granted).verdict is PolicyVerdict.ALLOW
    assert evaluate("sh b.sh", other, granted).verdict is PolicyVerdict.ASK


@pytest.mark.parametrize(
    ("changed", "verdict"), [("sub/c.py", PolicyVerdict.ALLOW), ("Makefile", PolicyVerdict.ASK)]
)
def test_a_permission_for_a_build_tool_is_for_its_own_files(
    work: Path, changed: str, verdict: PolicyVerdict
) -> None:
    """Not for all code that it may run: such a permission would end with the next change."""
    (work / "Makefile").write_text("all:\n\ttrue\n")
    granted = [make_grant(evaluate("make -j4", work).pattern, StandingPermissionScope.CHAT)]

    overwrite(work / changed)

    assert evaluate("make -j4", work, granted).verdict is verdict


@pytest.mark.parametrize("scope", list(StandingPermissionScope))
def test_a_command_does_not_pass_for_one_with_the_files_of_a_permission(
    work: Path, scope: StandingPermissionScope
) -> None:
    bound = evaluate("sh b.sh", work).pattern
    assert is_bound_to_files(bound)

    posing = evaluate(bound, work, [make_grant(bound, scope)])

    assert (posing.verdict, posing.pattern) == (PolicyVerdict.ASK, "")


def evaluate(command: str, work: Path, grants: Sequence[StandingPermission] = ()) -> PolicyDecision:
    call = tool_call("exec", command=command)
    files = take_snapshot(call, work).files
    return build_policy().evaluate(
        call, workspace=work, grants=grants, is_sandboxed=True, files=files
    )


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("make", "Makefile"), ("make test", "makefile"), ("npm run build", "package.json"),
        ("npx jest", "package.json"), ("tox", "tox.ini"), ("pytest", "conftest.py"),
        ("cargo build", "build.rs"), ("just deploy", "justfile"), ("rake", "Rakefile"),
        ("docker build", "Dockerfile"), ("pip install .", "setup.py"), ("cmake", "CMakeLists.txt"),
        ("python -m sub.c", "sub/c.py"), ("python -m sub", "sub/__init__.py"),
        ("pytest sub", "sub/test_new.py"), ("cd sub && python c.py", "sub/c.py"),
        ("cd sub; sh d.sh", "sub/d.sh"), ("PYTHONPATH=sub python -c 1", "sub/site.py"),
        ("npm run build", "sub/c.js"), ("make", "sub/more.mk"), ("cargo test", "sub/lib.rs"),
        ("python -m pytest -q", "sub/test_c.py"), ("uv run pytest", "sub/test_c.py"),
        ("docker compose up", "sub/Dockerfile"), ("./gradlew build", "sub/a.kt"),
        ("ls | grep b | xargs sh", "b.sh"), ("echo c2ggYi5zaAo= | base64 -d | sh", "b.sh"),
        ("sh /proc/self/cwd/b.sh", "b.sh"), ("curl -K x -d @b.sh there", "b.sh"),
        ("python sub/c.py", "sub/c.py"), ("sh new.sh", "new.sh"), ("sh sub/new.sh", "sub/new.sh"),
    ],
)  # fmt: skip
def test_what_a_build_tool_or_a_folder_brings_along_counts_too(
    work: Path, command: str, file: str
) -> None:
    call = tool_call("exec", command=command)
    asked = take_snapshot(call, work).hash

    (work / file).write_text("evil\n")

    assert take_snapshot(call, work).hash != asked


@pytest.mark.parametrize(
    ("script", "file"),
    [
        (". ./c.sh\n", "c.sh"),
        ('. "$(dirname "$0")/c.sh"\n', "c.sh"),
        ("source sub/c.sh", "sub/c.sh"),
        ("python3 - <<E\nimport helper\nE\n", "helper.py"),
        ("from sub.deep import x", "sub/deep.py"),
        ("node -e 'require(\"./lib/it.js\")'", "lib/it.js"),
        ("sh first.sh", "second.sh"),
        ("# filler\n" * 10_000 + "sh c.sh\n", "c.sh"),
        (" ".join(f"w{n}" for n in range(25_000)) + "\nsh c.sh\n", "c.sh"),
    ],
)
def test_what_a_named_script_names_counts_too(work: Path, script: str, file: str) -> None:
    (work / "b.sh").write_text(script)
    (work / "first.sh").write_text("sh second.sh\n")
    (work / file).parent.mkdir(exist_ok=True)
    (work / file).write_text("echo harmless\n")
    call = tool_call("exec", command="sh b.sh")
    asked = take_snapshot(call, work).hash
    assert take_snapshot(call, work).hash == asked

    overwrite_quietly(work / file)

    assert take_snapshot(call, work).hash != asked


@pytest.mark.parametrize("size", [10, 9_000_000, 11_000_000])
@pytest.mark.parametrize(
    "command", ["cat sub/* | sh", "sh sub/run", "for f in sub; do $f/run; done"]
)
def test_times_that_a_worker_set_back_hide_no_change(work: Path, command: str, size: int) -> None:
    (work / "sub" / "run").write_text("echo harmless #" + "x" * size)
    call = tool_call("exec", command=command)
    asked = take_snapshot(call, work).hash
    assert take_snapshot(call, work).hash == asked

    overwrite_quietly(work / "sub" / "run")

    assert take_snapshot(call, work).hash != asked


def test_a_restart_that_makes_files_private_changes_no_effect(work: Path) -> None:
    call = tool_call("exec", command="sh *.sh && python sub/c.py")
    asked = take_snapshot(call, work).hash

    make_private(work)

    assert take_snapshot(call, work).hash == asked


def test_the_person_sees_the_very_bytes_that_were_hashed(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker writes the script again and again."""
    read = Path.read_bytes
    reads: list[str] = []

    def read_then_change(path: Path) -> bytes:
        data = read(path)
        if path.name == "b.sh":
            reads.append(data.decode())
            path.write_text(f"echo version {len(reads)}\n")
        return data

    call = tool_call("exec", command="sh b.sh")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read_then_change)
        seen = take_snapshot(call, work)

    assert len(reads) == 1
    assert seen.scripts == f"─── b.sh ───\n{reads[0]}".rstrip()
    assert take_snapshot(call, work).hash != seen.hash
    (work / "b.sh").write_text(reads[0])
    assert take_snapshot(call, work).hash == seen.hash


def test_a_link_that_leads_elsewhere_is_another_effect(work: Path, tmp_path: Path) -> None:
    (tmp_path / "other.sh").write_text("echo harmless\n")
    (work / "link.sh").symlink_to("b.sh")
    (work / "folder").symlink_to("sub")
    commands = ["sh link.sh", "cd folder && python c.py", "python folder/c.py"]
    before = [take_snapshot(tool_call("exec", command=each), work).hash for each in commands]
    write = tool_call("write", path="link.sh", content="x")
    written = take_snapshot(write, work).hash

    (work / "link.sh").unlink()
    (work / "link.sh").symlink_to(tmp_path / "other.sh")
    (work / "folder").unlink()
    shutil.copytree(work / "sub", work / "folder")

    after = [take_snapshot(tool_call("exec", command=each), work).hash for each in commands]
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert take_snapshot(write, work).hash != written


@pytest.mark.parametrize(
    "command", ["sh loop", "sh a\0b", "sh " + "x" * 5000, "sh /", "sh \udcff", "", "cat fifo"]
)
def test_odd_names_are_no_error(work: Path, command: str) -> None:
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "fifo")

    call = tool_call("exec", command=command)

    assert take_snapshot(call, work).hash == take_snapshot(call, work).hash
    assert take_snapshot(call, work).scripts == ""


def test_the_person_is_shown_the_scripts_but_no_file_outside(work: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("top secret")
    (work / "leak").symlink_to(tmp_path / "secret")

    shown = take_snapshot(
        tool_call("exec", command="sh b.sh; sh leak; cat ../secret"), work
    ).scripts

    assert "─── b.sh ───\necho harmless" in shown
    assert "secret" not in shown


# --- what the card shows -------------------------------------------------------------------------


def card_text(detail: str, kind: ApprovalKind = ApprovalKind.TOOL) -> str:
    approval = replace(make_approval(kind=kind), detail=detail, title="innocent")
    card = approval_card(approval, catalog_for(Language.ENGLISH), zone=ZoneInfo("UTC"))
    return render(card).text


@pytest.mark.parametrize(
    "gap",
    [" " * 3000, "\t" * 3000, "\u3000" * 3000, "\u00a0" * 3000, "\u2003" * 3000, "\n" * 3000,
     " \n" * 1500, "\r\n" * 1500, "\n\t" * 1500, "#" * 5000 + "\n", "\u200b" * 3000,
     ("a" * 79 + "\n") * 100],
)  # fmt: skip
def test_the_end_of_a_command_is_on_the_front_whatever_is_before_it(gap: str) -> None:
    for kind in (ApprovalKind.TOOL, ApprovalKind.RISK):
        shown = card_text(f"touch innocent{gap}; touch tail", kind)
        front = shown[: shown.find("Full text")] if "Full text" in shown else shown

        assert "touch innocent" in front
        assert "; touch tail" in front
        assert len(front) < 2000


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\u202e", "\\u202e"), ("\u2066", "\\u2066"), ("\u200b", "\\u200b"), ("\u200d", "\\u200d"),
        ("\ufeff", "\\ufeff"), ("\u00ad", "\\u00ad"), ("\x1b", "\\u001b"), ("\x07", "\\u0007"),
        ("\r", "\\u000d"), ("\u2028", "\\u2028"), ("\U000e0041", "\\udb40\\udc41"),
        ("\u00a0", "\\u00a0"), ("\u3164", "\\u3164"), ("\u2800", "\\u2800"), ("\uffa0", "\\uffa0"),
        ("\u034f", "\\u034f"), ("\U0001d173", "\\ud834\\udd73"),
        ("\ud800", "\\ud800"), ("\x00", "\\u0000"),
    ],
)  # fmt: skip
def test_what_has_no_sign_is_shown_by_its_number(hidden: str, shown: str) -> None:
    assert f"rm x{shown}y" in card_text(f"rm x{hidden}y")


def test_a_long_text_says_how_long_it_is_and_is_there_as_a_whole() -> None:
    detail = "\n".join(f"echo line {number}" for number in range(500))

    shown = card_text(detail)

    assert f"{len(detail)} characters" in shown
    assert "echo line 250" in shown, "in the full text"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("c\u0430t x", r"c\u0430t x"),
        ("./\u0440un.sh", r"./\u0440un.sh"),
        ("\u0391pply", r"\u0391pply"),
        ("touch a\u0336b", r"touch a\u0336b"),
        ("touch a" + "\u0301" * 4, "touch a\u0301\u0301" + r"\u0301" * 2),
        ("touch a\u17b4\u180fb", r"touch a\u17b4\u180fb"),
        ("cat отчёт.txt Δ", "cat отчёт.txt Δ"),
        ("cat café naïve.txt", "cat café naïve.txt"),
    ],
)
def test_letters_that_pass_for_others_and_marks_that_cover_are_shown(
    command: str, shown: str
) -> None:
    assert f"\n\n{shown}\n\n" in card_text(command)


def test_the_card_says_what_an_approval_does_not_cover(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More files than are counted, and parts of a folder that Landlock cannot protect."""
    call = tool_call("exec", command="sh *.sh")
    assert not take_snapshot(call, work).is_cut
    monkeypatch.setattr(call_effects, "_MAX_FOLDER_ENTRIES", 2)
    assert take_snapshot(call, work).is_cut

    words = catalog_for(Language.ENGLISH)
    reason = replace(evaluate("sh *.sh", work).reason, limits=("many_files", "landlock"))
    payload = {"tool": "exec", "why": reason.to_json()}
    approval = replace(make_approval(kind=ApprovalKind.TOOL), payload=payload)
    shown = render(approval_card(approval, words, zone=ZoneInfo("UTC"))).text

    assert "first 200,000 files" in shown
    assert "read a .env" in shown


# --- in the running program ----------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(
        tmp_path_factory.mktemp("home"),
        "anthropic",
        SHIFTBOSS_LANGUAGE="en",
        SHIFTBOSS_TOOLS_ALLOW="mcp__racer__*",
    ) as made:
        yield made


def call(name: str, **arguments: str) -> ScriptedCall:
    return ScriptedCall(name=name, arguments=arguments)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_script_that_changes_while_the_card_waits_is_not_run(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    run = call("exec", command="sh b.sh && touch ran")
    turns = (
        ScriptedReply(calls=[call("write", path="b.sh", content="echo harmless\n")]),
        ScriptedReply(calls=[run, call("write", path="b.sh", content="echo early evil\n")]),
        ScriptedReply(calls=[run]),
    )
    await boss.says(chat, script_task(world.script, "swap", *turns))
    asked = await request_in(chat, "sh b.sh", "echo harmless")
    (script,) = (world.program.home / "work").rglob("b.sh")
    assert script.read_text() == "echo harmless\n", "a write of the same turn waits"

    script.write_text("echo evil\n")
    await boss.presses(asked, label_with(asked.buttons, "Once"))

    again = await request_in(chat, "sh b.sh", "echo evil")
    assert not (script.parent / "ran").exists()
    await boss.presses(again, label_with(again.buttons, "Once"))
    await chat.wait_for(lambda m: "It is done: swap." in m.text)
    assert (script.parent / "ran").exists()
    told = [str(one.tool_results) for one in world.script.requests_for("step-swap")]
    assert any("has changed" in each for each in told)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_mcp_server_cannot_replace_the_script_while_the_command_runs(
    world: ModelWorld, tmp_path: Path
) -> None:
    racer = tmp_path / "racer.py"
    serve = f"import runpy; runpy.run_path({str(MCP_SERVER)!r}, run_name='__main__')"
    racer.write_text(f"RACED = '.'{RACER}{serve}")
    folder = world.program.home / "personas"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(racer), "echo", str(MCP_SERVER)]
    (folder / "builder.yaml").write_text(
        f"traits: {{comments: few}}\nservers:\n  racer: {json.dumps({'command': command})}\n"
    )
    boss, chat = world.new_owner()
    turns = (
        ScriptedReply(calls=[call("write", path="b.sh", content="echo harmless >> told\n")]),
        ScriptedReply(calls=[call("mcp__racer__echo", text="begin")]),
        ScriptedReply(calls=[call("exec", command=LURED)]),
    )
    order = script_task(world.script, "race", *turns)
    await boss.says(chat, order.replace("/run", "/run --persona builder"))
    asked = await request_in(chat, "sh b.sh", "echo harmless")
    await boss.presses(asked, label_with(asked.buttons, "Once"))
    await chat.wait_for(lambda m: "It is done: race." in m.text)

    (written,) = (world.program.home / "work").rglob("told")
    assert written.read_text() == "harmless\n"
    told = [str(one.tool_results) for one in world.script.requests_for("step-race")]
    assert any("you said begin" in each for each in told), told
    assert not any("evil" in each for each in told)
