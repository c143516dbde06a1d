"""A command runs unasked only if it is known to read, and then nothing that it does can change the
workspace or reach a network."""

from __future__ import annotations

import os
import string
from pathlib import Path

import pytest

from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import CallKind
from bot.engine.permissions.call_checks import is_read_only_command
from bot.engine.permissions.command_analysis import _PLAIN
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import Sandbox, command_environment
from bot.engine.tools.shell_exec import CommandShell, exec_tool
from tests.bot.engine.permissions.policy_cases import (
    WORKSPACE,
    build_policy,
    decide_verdict,
    tool_call,
)
from tests.bot.engine.sandbox.conftest import SandboxCell, cell
from tests.bot.engine.workspaces.git_project import GitProject
from tests.case_tables import all_cases

__all__ = ["cell"]

HIDDEN_PROGRAMS = [
    "test -v 'x[$(touch ran)]'",
    "[ -v 'x[$(touch ran)]' ]",
    "builtin test -v 'x[$(touch ran)]'",
    "nice test -v 'x[$(touch ran)]'",
    "env test -v 'x[$(touch ran)]'",
    "test -n x",
    "printf -v 'x[$(touch ran)]' a",
    "sort --co=sh notes.txt",
    "sort --compress-prog=sh notes.txt",
    "sort --compress-program sh notes.txt",
    "sort -T . -S 1 notes.txt",
    "sort -o notes.txt notes.txt",
    "sort -onotes.txt notes.txt",
    "sort -uo notes.txt notes.txt",
    "sort --out=notes.txt notes.txt",
    "sort --files0-from=list",
    "git diff --ext-dif",
    "git log -p --ext-diff",
    "git log --textc",
    "git log --format=%G?",
    "git show --pretty %GS HEAD",
    "git log --outp=x",
    "git log --output x",
    "git diff --no-ind a b",
    "git -c core.pager=sh log",
    "git -C ../x status",
    "git -C --git-dir=x status",
    "git -C x -c core.pager=sh log",
    "git -C x -C y status",
    "git -C x checkout y",
    "git -C x status > y",
    "git --git-dir=x log",
    "git --exec-path=x log",
    "git grep -O sh x",
    "git grep --open-files-in-pager=sh x",
    "git branch x",
    "git branch -D main",
    "git branch --list --edit-description",
    "git remote add x y",
    "git remote -v update",
    "git archive --output x HEAD",
    "git rev-parse --parseopt",
    "git cat-file --textconv HEAD:a",
    "git cat-file --filters HEAD:a",
    "git cat-file --batch-command",
    "git status --column=x --ahead-behin",
    "find . -exec sh {} +",
    "find . -execdir sh {} ;",
    "find . -ok sh {} ;",
    "find . -delete",
    "find . -fprint x",
    "find . -fls x",
    "find -files0-from list",
    "rg --pre sh x",
    "rg --pre=sh x",
    "rg --hostname-bin=sh x",
    "rg -z x",
    "rg -nz x",
    "rg --search-zip x",
    "tree -o x",
    "tree -Ro x",
    "tree --output x",
    "date -s tomorrow",
    "date --set=tomorrow",
    "date --s=tomorrow",
    "date 010203042030",
    "file -C -m x",
    "file --compile",
    "file -z x",
    "file -bz x",
    "git status > x",
    "git diff >> x",
    "git status &> x",
    "cd x && git log > y",
    "ls > x; git status",
    "sh -c 'git status > x'",
    "npm --version > x",
    "uniq a b",
    "uniq -c a b",
    "diff --to-file=x a",
    "tail -f log",
    "tail --follow=name log",
    "tail --pid=1 -f log",
    "jq -f program.jq",
    "jq -L lib .",
    "jq --from-file x",
    "du --files0-from=x",
    "wc --files0-from=x",
    "awk 'BEGIN{system(\"sh\")}'",
    "sed -n 1e",
    "xxd -r a b",
    "less a",
    "more a",
    "man ls",
    "vim -c :!sh a",
    "tee a",
    "split a",
    "python -c 1",
    "node -e 1",
    "python version",
    "python3 version",
    "node version",
    "node -V version",
    "java version",
    "gcc version",
    "gcc -V version",
    "node -v version",
    "gcc -v version.c",
    "python3 -V version",
    "java -version version",
    "go env -w A=b",
    "npm ls",
    "uv --version --cache-dir x",
    "type x",
    "cd -P x",
    "command -pv x y --z",
    "GIT_EXTERNAL_DIFF=sh git diff",
    "PAGER=sh git log",
    "LS_COLORS=x ls",
    "ls $(touch ran)",
    "cat `touch ran`",
    "ls <(touch ran)",
    "exec 3> b",
    "ls | sh",
    "ls; sh a",
    "ls && sh a",
    "ls & sh a",
    "ls\nsh a",
    "f() { sh a; }; f",
    "cat <<E\n`touch ran`\nE",
    "cat > b <<E\nx `touch ran`\nE",
    "cat > b <<-E\n\t$(touch ran)\n\tE",
    "cat > b <<-E\n\t${x:-$(touch ran)}\n\tE",
    "cat > b <<E\n\\\\`touch ran`\nE",
    "sh -c 'cat > b <<E\n`touch ran`\nE'",
    "y='a[$(touch ran)]'; [[ y -eq 0 ]]",
    "y='a[$(touch ran)]'; [[ 0 -lt y ]]",
    "for y in 'a[$(touch ran)]'; do [[ y -eq 0 ]]; done",
    "y='a[$(touch ran)]'; [[ -v x[y] ]]",
    "cat a > AGENTS.m?",
    "cat a > .git/c*",
    "uniq - b",
    "uniq -- -a -b",
    "strings @a",
    "cargo --version",
    "rustc --version",
    "go version",
    "alias ls=sh",
    "trap 'sh a' EXIT",
    ". ./a",
    "source a",
    "coproc sh a",
    "cat ../outside",
    "cat ~/.ssh/id",
    "cat /etc/passwd",
    "grep -r x /",
    "grep -f/etc/passwd x",
    "diff --from-file=/etc/passwd a",
]
"""Each has run, or might run, something else than reading."""

READING = [
    "ls -la",
    "cat notes.txt",
    "head -n 5 notes.txt",
    "head -5 notes.txt",
    "wc -l names.txt",
    "grep -rn --include=*.py def .",
    "grep -A3 x notes.txt",
    "sort -k2,2 -t, a.csv",
    "sort -u a | uniq -c | sort -rn | head -20",
    "find . -name '*.py' -not -path './.git/*'",
    "git status --short",
    "git log --oneline -5",
    "git diff --stat HEAD~1",
    "git show --stat HEAD",
    "git log --since=yesterday --author=me",
    "git branch -a",
    "git remote -v",
    "git --no-pager diff --cached",
    "git status 2>/dev/null",
    "git log -1 > /dev/null 2>&1",
    "find . -name x 2> /dev/null | head",
    "cut -d, -f1 a.csv",
    "diff -u a b",
    "stat -c %s a",
    "du -sh .",
    "date +%F",
    "date -u",
    "jq -r .name package.json",
    "rg -n TODO src",
    "python3 --version",
    "node -v",
    "npm version",
    "java -version",
    "gcc -v",
    "git -C src status",
    "git -C src --no-pager log -1",
    "echo problem > /dev/stderr",
    "grep x < notes.txt 2> /dev/null",
    "cd src && ls",
    "command -v node",
    "echo done",
    "cat <<E\ncosts \\$(5) $x\nE",
    "cat <<'E'\n`code` $(5)\nE",
    "[ -f a ] && [[ 1 -lt 2 ]]",
]


@all_cases("command", HIDDEN_PROGRAMS)
def test_a_command_that_may_do_more_than_read_is_not_run_unasked(command: str) -> None:
    assert not is_read_only_command(command, WORKSPACE)
    assert decide_verdict(build_policy(), "exec", command=command) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "echo x < notes.txt > /dev/stdin",
        "echo x > /dev/stdin < notes.txt",
        "echo x 1< notes.txt > /dev/stdout",
        "ls nothing 2< notes.txt 2> /dev/stderr",
        "echo x < notes.txt >> /dev/stdin",
        "{ echo x > /dev/stdin; } < notes.txt",
        "(echo x > /dev/stdin) < notes.txt",
        "exec < notes.txt; echo x > /dev/stdin",
        "while true; do echo x > /dev/stdin; done < notes.txt",
        "sh -c 'echo x > /dev/stdin' < notes.txt",
        "eval 'echo x > /dev/stdin' < notes.txt",
        "cat < notes.txt | { echo x > /dev/stdin; }",
        "f() { echo x > /dev/stdin; }; f < notes.txt",
    ],
)
def test_a_standard_stream_is_the_file_that_was_put_there(command: str) -> None:
    assert not is_read_only_command(command, WORKSPACE)
    protected = command.replace("notes.txt", "AGENTS.md")
    assert decide_verdict(build_policy(), "exec", command=protected) == "ask"
    denied = build_policy(deny="write(notes.txt)")
    assert decide_verdict(denied, "exec", command=command) != "allow"


@all_cases(
    "command",
    [
        "sort * > out",
        "sort -- * > out",
        "sort -u [-a]* > out",
        "sort *.json > out",
        "find * > out",
        "find *e > out",
        "rg x * > out",
        "tree * > out",
        "file * > out",
        "uniq * > out",
        "uniq sub/* > out",
        "cat a > out; sort *",
        "cat a | sort ? > out",
        "sh -c 'sort * > out'",
    ],
)
def test_a_name_of_a_file_is_no_option_beside_what_writes(command: str) -> None:
    """Of `-oAGENTS.md`, `--pre=sh` or `-delete`, which any worker may write."""
    assert decide_verdict(build_policy(), "exec", command=command) == "ask"


@all_cases("command", ["sort ./* > out", "find . -name *.py > out", "cat * > out", "sort *"])
def test_names_that_can_be_no_options_are_read(command: str) -> None:
    assert decide_verdict(build_policy(), "exec", command=command) == "allow"


@all_cases(
    "command",
    [
        "cd .git && echo x > config",
        "cd .git; echo x > hooks/pre-commit",
        "cd .g*; echo x > config",
        "cd .g?t && echo x > config",
        "cd ./.git/ && echo x > config",
        "cd a/../.git && echo x > config",
        "cd .git\ncat a > config",
        "cd .claude && cd commands && echo x > a.md",
        "cd .github; cd workflows; cat a > ci.yml",
        "(cd .claude && echo '{}' > settings.json)",
        "{ cd .claude; } && echo '{}' > settings.json",
        "command cd .git; echo x > config",
        "builtin cd .git; echo x > config",
        "sh -c 'cd .git; echo x > config'",
        "cd .cla''ude; echo x > settings.json",
        f"cd {WORKSPACE}/.claude; echo x > settings.json",
        "cd a; cd b; cd c; cd d; cd e; cd f; cd g; cd h; echo x > y",
        "if true; then cd .git; fi; echo x > config",
        # All folders that it may mean, in any order, would be more than fit into memory.
        f"cd {' '.join(f'a{n}' for n in range(38))}; echo x > y",
        "cd .git && echo x < config > /dev/stdin",
        "cd kept && echo x > notes.txt",
    ],
)
def test_what_is_written_in_another_folder_is_a_file_of_that_folder(command: str) -> None:
    policy = build_policy(deny="write(kept/*)")
    assert decide_verdict(policy, "exec", command=command) != "allow"


@all_cases("command", ["cd kept && cat key", "cd kept; cat < key", "cd kept/ && head -n1 k*"])
def test_what_is_read_in_another_folder_is_a_file_of_that_folder(command: str) -> None:
    assert decide_verdict(build_policy(deny="read(kept/*)"), "exec", command=command) == "deny"
    assert decide_verdict(build_policy(), "exec", command=command) == "allow"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("cd .claude", "ask"),
        ("cd .claude && ls", "ask"),
        ("cd docs/.git", "ask"),
        ("cd .github; cat a", "ask"),
        ("cd .config", "ask"),
        ("cd .CLAUDE", "ask"),
        ("cd a/../.claude", "ask"),
        ("cd .c*", "ask"),
        (f"cd {WORKSPACE}/.claude", "ask"),
        ("sh -c 'cd .claude; ls'", "ask"),
        ("cd src && ls", "allow"),
        ("ls .claude", "allow"),
    ],
)
def test_the_shell_of_a_coding_cli_is_not_left_in_a_folder_of_control_files(
    command: str, verdict: str
) -> None:
    """There `echo … > settings.json` is what it does next, and looks harmless."""
    theirs = tool_call("Bash", CallKind.EXECUTE, command=command)

    assert (
        build_policy().evaluate(theirs, workspace=WORKSPACE, is_sandboxed=True).verdict == verdict
    )


def test_a_file_in_another_folder_is_written_unasked() -> None:
    assert decide_verdict(build_policy(), "exec", command="cd src && echo x > a.txt") == "allow"


@pytest.mark.parametrize("command", ["cat a > b", "cat a >| b", "cat a >> b", "echo x &> b"])
def test_a_command_with_a_redirection_writes(command: str) -> None:
    assert not is_read_only_command(command, WORKSPACE)


@all_cases("command", READING)
def test_a_command_that_only_reads_needs_nobody(command: str) -> None:
    assert is_read_only_command(command, WORKSPACE)
    assert decide_verdict(build_policy(), "exec", command=command) == "allow"


@all_cases("name", sorted(_PLAIN))
def test_no_option_is_taken_for_another_because_it_begins_like_it(name: str) -> None:
    options = _PLAIN[name]
    long = {*options.words, *options.named_values}
    for word in long:
        for end in range(3, len(word)):
            short = word[:end]
            assert short in long or not options.allow(short), short
            assert not options.allow(f"{short}=x") or short in options.named_values, short
    for letter in string.ascii_letters:
        if letter not in options.letters + options.with_value:
            assert not options.allow(f"-{letter}") or f"-{letter}" in long, letter


@pytest.mark.parametrize(
    "command",
    ["git status", "git log -p -1", "git diff", "git show HEAD", "git status 2>/dev/null"],
)
async def test_what_a_reading_command_runs_after_all_changes_nothing(
    cell: SandboxCell, command: str
) -> None:
    """The configuration of the workspace's repository names programs for each of them."""
    workspace = cell.workspace / "repository"
    project = GitProject(workspace)
    program = workspace / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {workspace}/ran {cell.workspace}/ran\necho\n")
    program.chmod(0o755)
    project.commit(".gitattributes", "* diff=x filter=x\n")
    (workspace / "readme.md").write_text("changed\n")
    for name in ("core.fsmonitor", "diff.x.textconv", "diff.x.command", "filter.x.clean"):
        project.git("config", name, str(program))

    async def here() -> Sandbox:
        return cell.sandbox

    shell = CommandShell(
        sandbox=here,
        homes=CommandHomes(cell.home.parent / "homes"),
        env=lambda _: command_environment({"PATH": os.environ["PATH"]}, view=cell.sandbox.view),
        network=True,
    )
    await exec_tool(workspace, shell, WorkerMode.EXECUTE).run({"command": command})

    assert is_read_only_command(command, workspace)
    assert not Path(workspace / "ran").exists()
    assert not Path(cell.workspace / "ran").exists()
