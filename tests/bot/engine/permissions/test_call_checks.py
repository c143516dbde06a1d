"""A shell command is judged by the strictest of all it may run."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.permissions.policy import PolicyVerdict, RulePolicy
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.permissions.policy_cases import (
    ALLOW,
    ASK,
    DENY,
    build_policy,
    decide,
    strictness,
)
from tests.case_tables import all_cases

HOUSE = build_policy(allow="exec(npm test), exec(git commit *)", deny="exec(git push*)")
OPEN = build_policy(deny="exec(git push*)", security="full")


@pytest.mark.parametrize(
    "command",
    [
        "ls -la src",
        "cat a.txt 2>/dev/null | head -5",
        "grep -rn 'a b' . | sort | uniq -c",
        "git log --oneline -5 && git diff --stat",
        "[ -f a ] && cat a",
        "if true; then ls; else pwd; fi",
        "timeout 5 ls",
        "echo hi > notes.txt",
        "cat > a.py <<'E'\nrm -rf /\nE\n",
        "echo 'rm -rf / ; git push'",
        "ls -l /home/boss/.shiftboss/workspaces/T1/src",
        "npm test && ls",
        "git commit -m 'a longer message'",
        "n=1; echo done",
        "find . -name '*.py' -newer a",
        "sort < a.txt",
        "sh -c 'ls | wc -l'",
        "python3 --version",
    ],
)
def test_looking_around_and_what_is_allowed_needs_nobody(command: str) -> None:
    assert decide(HOUSE, command).verdict == ALLOW


@all_cases(
    "command",
    [
        "rm -rf build",
        "npm test; curl https://example.com",
        "npm test evil",
        "'git commit -m' x",
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat $HOME/.ssh/id_rsa",
        "cat ../other/secret",
        "grep -f/etc/passwd x a",
        "cat $X",
        "ls $(cat a)",
        "find . -delete",
        "find . -exec ls {} +",
        "sort -o a b",
        "uniq a b",
        "git diff --output=x",
        "git -c core.pager=x log",
        "git grep -Osh x",
        "LD_PRELOAD=./x.so ls",
        "PATH=.:$PATH; ls",
        "export PATH=.; ls",
        "for PATH in a; do ls; done",
        "echo x > ~/.bashrc",
        "echo x > .git/hooks/pre-commit",
        "echo x > $F",
        "cat < /dev/tcp/1.2.3.4/80",
        "sudo ls",
        "xargs -a f ls",
        "echo $((x))",
        "[[ $a -eq 1 ]]",
        "echo ${x@P}",
        "echo ${!x}",
        "source a.sh",
        "alias ls=rm; ls",
        "$X",
        "./l?",
        "ls 'unfinished",
        "ls $(",
        "ls\\\nx",
        "l\\\ns",
        "echo `echo \\`id\\``",
        "ls\rpwd",
        "echo a\u202eb",
        "echo \ue000",
        "curl x | sh",
        "cd .. && ls",
        "command ls -l; cd /; ls",
        "",
        "   ",
        "ls " + "a" * 30_000,
        "{ls,-la}",
        "coproc ls -l; wait",
        "time -p ls",
        "trap 'ls' EXIT",
    ],
)
def test_what_no_rule_allows_or_nobody_understands_is_asked_about(command: str) -> None:
    assert decide(HOUSE, command).verdict == ASK


_PUSHES = [
    "git push",
    "  git   push  ",
    "git\tpush origin",
    "g''it p\"us\"h",
    "\\git pu\\sh",
    "$'git' $'pus\\x68'",
    "GIT PUSH",
    "/usr/bin/git push",
    "./git push -f",
    "git -C sub push",
    "git --no-pager -c a=b push",
    "A=1 git push",
    "ls; git push",
    "ls && git push",
    "ls || git push",
    "ls | git push",
    "ls & git push",
    "ls\ngit push",
    "(git push)",
    "{ git push; }",
    "! git push",
    "ls $(git push)",
    "ls `git push`",
    'ls "$(git push)"',
    'ls "${x:-$(git push)}"',
    "diff <(git push) a",
    "ls > >(git push)",
    "cat <<E\n$(git push)\nE\n",
    "cat <<<$(git push)",
    "bash <<'E'\ngit push\nE\n",
    "cat <<E | sh\ngit push\nE\n",
    "sh <<<'git push'",
    "if git push; then ls; fi",
    "if ls; then git push; fi",
    "if ls; then pwd; else git push; fi",
    "for i in a b; do git push; done",
    "while git push; do ls; done",
    "until ls; do git push; done",
    "case a in a) git push;; esac",
    "f() { git push; }; f",
    "function f { git push; }",
    "eval git push",
    "eval 'git push'",
    "eval \"eval 'git push'\"",
    "bash -c 'git push'",
    "/bin/sh -ec 'ls; git push'",
    "bash -lc 'git push'",
    "sh -c \"bash -c 'git push'\"",
    "env git push",
    "env A=1 git push",
    "env -i A=1 git push",
    "sudo git push",
    "sudo -u x -- git push",
    "su -c 'git push'",
    "nohup git push",
    "timeout 5 git push",
    "timeout -s KILL 5 git push",
    "nice -n 5 git push",
    "time git push",
    "time A=1 git push",
    "! A=1 git push",
    "env -S 'git push'",
    "env -u A git push",
    "command git push",
    "exec git push",
    "echo x | xargs git push",
    "echo x | xargs -n1 -I{} git push {}",
    "find . -exec git push ;",
    "find . -name x -execdir sh -c 'git push' \\;",
    "parallel git push ::: a",
    "watch 'git push'",
    "trap 'git push' EXIT",
    "export A=$(git push)",
    "a=$(git push)",
    "[[ -n $(git push) ]]",
    "ls # x\ngit push",
    "git push > out.txt 2>&1",
    "> out.txt git push",
]


@pytest.mark.parametrize("command", _PUSHES)
@pytest.mark.parametrize("judge", [HOUSE, OPEN], ids=["allowlist", "full"])
def test_a_forbidden_command_is_found_wherever_it_hides(command: str, judge: RulePolicy) -> None:
    assert decide(judge, command).verdict == DENY


@all_cases(
    "command",
    [
        "x=git; $x push",
        "$(echo git) push",
        "git $x",
        "git p$x",
        "git {push,-f}",
        "g?t push",
        "echo git push | sh",
        'bash -c "$x"',
        "eval $x",
        "git pu\\\nsh",
        "echo Z2l0IHB1c2g= | base64 -d | bash",
        "source <(echo git push)",
        "git push 'unfinished",
        "git > a push",
        "git -x<<E\nx\nE\n",
        "git push 0>x",
        "-2>a git push",
        "time if ls; then git push; fi",
        "! until git push; do break; done",
        "ls\n\\\ngit push",
        "git <<E push\nx\nE\n",
        "cat <<E; git push\nx\nE\n",
        "cat 0<<'E'\nx\nE\ngit push",
        "coproc { git push; }",
        "git push[ x ]",
        "git >$ g push",
        "ls \n\\git push",
        "[]",
        "0a=b git push",
        "ls | {}",
        "ls ] ]]",
        "git push$",
        "!'' git push",
        "g'i'\\t push",
        "A=x'y'\\z git push",
    ],
)
def test_what_may_turn_out_forbidden_is_at_least_asked_about(command: str) -> None:
    assert decide(OPEN, command).verdict in {ASK, DENY}


@all_cases(
    "command",
    [
        "rm -rf /",
        "rm -fr --no-preserve-root /",
        "rm -r -f '/'",
        "rm -rf /*",
        "rm -rf ~",
        "rm -rf $HOME",
        'rm -rf "${HOME}"/*',
        "rm -rf /etc",
        "rm -rf //usr//lib",
        "rm -rf /home/boss/../../etc",
        "rm -rf ..",
        "rm -rf /e*c",
        "RM -rf /",
        "sudo rm -rf /",
        "find / -delete",
        "chmod -R 777 /",
        "chown -R x /etc",
        "mkfs.ext4 /dev/sda1",
        "dd if=/dev/zero of=/dev/sda",
        "echo x > /etc/passwd",
        "echo x >> /dev/sda",
        "cp x /usr/bin/ls",
        "mv /etc/passwd .",
        "sed -i s/a/b/ /etc/hosts",
        "shutdown now",
        ":(){ :|:& };:",
        "bash -c 'rm -rf /'",
    ],
)
def test_plain_destruction_is_forbidden_even_where_all_is_allowed(command: str) -> None:
    everything = build_policy(allow="exec", security="full", asking="off")

    assert decide(everything, command).verdict == DENY


@pytest.mark.parametrize("command", ["d=/; rm -rf $d", "cd / && rm -rf *", "echo x > $f"])
def test_destruction_that_cannot_be_seen_is_asked_about(command: str) -> None:
    assert decide(OPEN, command).verdict == ASK


def test_files_that_must_not_be_read_are_not_read_by_commands() -> None:
    judge = build_policy(deny="read(.env*)", ask="read(private/*)")

    assert decide(judge, "cat .env").verdict == DENY
    assert decide(judge, "cat ./.ENV.local | head").verdict == DENY
    assert decide(judge, "cat < .env").verdict == DENY
    assert decide(judge, "cat .e*").verdict == ASK
    assert decide(judge, "cat private/a").verdict == ASK
    assert decide(judge, "cat a.txt").verdict == ALLOW


def test_files_that_must_not_be_changed_are_not_changed_by_redirects() -> None:
    judge = build_policy(deny="edit(locked/*)")

    assert decide(judge, "echo x > locked/a").verdict == DENY
    assert decide(judge, "echo x > free/a").verdict == ALLOW


_PARTS = st.sampled_from(
    ["ls", "cat a", "npm test", "curl x", "git push", "rm -rf /", "rm x", "echo $x", "$x", "cat /a"]
)
_JOINTS = st.sampled_from([" ; ", " && ", " || ", " | ", " & ", "\n"])
_FRAMES = st.sampled_from(
    [
        "{}",
        "( {} )",
        "if {}\nthen ls\nfi",
        "echo $( {} )",
        "bash -c {q}",
        "eval {q}",
        "f() {{ {}\n}}",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_PARTS, min_size=1, max_size=4), _JOINTS, _FRAMES)
def test_a_compound_is_never_milder_than_any_of_its_parts(
    parts: list[str], joint: str, frame: str
) -> None:
    source = joint.join(parts)
    whole = frame.format(source, q=shlex.quote(source))

    parted = max(strictness(decide(HOUSE, part)) for part in parts)

    assert strictness(decide(HOUSE, whole)) >= parted


@st.composite
def _spelt(draw: st.DrawFn) -> str:
    """`git push` with quotes, escapes and blanks as a shell does not mind them."""

    def letter(one: str) -> str:
        forms = (one, f"'{one}'", f'"{one}"', f"\\{one}", f"{one}''", f"$'\\x{ord(one):02x}'")
        return draw(st.sampled_from(forms))

    words = ["".join(map(letter, word)) for word in ("git", "push")]
    return draw(st.sampled_from([" ", "  ", "\t", " \\\n "])).join(words)


@settings(max_examples=150, deadline=None)
@given(_spelt())
def test_however_it_is_spelt_a_forbidden_command_is_never_allowed(command: str) -> None:
    assert decide(OPEN, command).verdict is not PolicyVerdict.ALLOW


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab $(){}[]<>|&;`'\"\\\n*?~#!=-/", max_size=40))
def test_no_text_breaks_the_judge(command: str) -> None:
    why = decide(HOUSE, command).reason

    assert all(why.describe(catalog_for(language)) for language in Language)
