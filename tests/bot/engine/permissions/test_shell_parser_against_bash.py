"""Where a command is clear, a real shell runs nothing that was not seen in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.engine.permissions.command_analysis import expand_commands
from bot.engine.permissions.rules import UNKNOWN_TEXT
from bot.engine.permissions.shell_parser import parse_script
from tests.waiting import WAIT_SECONDS

BASH = shutil.which("bash")
_PIECES = (
    "p ", "q r", " ", "\n", " ; ", " && ", " | ", " & ", "$(p x)", "`q y`", '"$(p z)"', "<(p w)",
    "if p; then q; fi", "for i in a b; do p $i; done", "{ p; }", "(p)", "f() { p a; }", " f ",
    "case a in a) p b;; esac", "<<E\np h\nE\n", "<<'E'\np k\nE\n", "${a:-b}", "${a:-$(p d)}",
    "a=b ", "# c\n", "\\\n", "'s t'", '"u v"', "\\;", "! ", "time ", "eval p l", "[[ a == b ]]",
    "2>&1", ")", "}", "fi", "done", "$", '"', "'", "<<<x", "\\", "#", "~", "=", "$'p'", "p{1,2}",
    "-x", ">", "<", "0", "-", "[", "]", "a[0]=b ", "a=(p q) ", "é", "*", "|&", "&>", "coproc p",
    "until p; ",
)  # fmt: skip
# Each command that is run is written down instead; nothing of this machine is found.
_NOTED = """exec 7>>noted
command_not_found_handle() { printf '%s\\0' "$@" $'\\1' >&7; }
set -f
"""


@pytest.mark.skipif(BASH is None, reason="no bash here")
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=7).map("".join))
def test_bash_runs_nothing_that_was_not_seen(tmp_path: Path, source: str) -> None:
    inside = expand_commands(parse_script(source))
    if inside.unclear_reason:
        return
    seen = [part.command.words for part in inside.parts if part.command.words]

    ran = [words for words in _ran(source, tmp_path) if words and not words[0].startswith("~")]

    unseen = [words for words in ran if not any(_may_be(known, words) for known in seen)]
    assert unseen == []


def _ran(source: str, folder: Path) -> list[tuple[str, ...]]:
    noted = folder / "noted"
    noted.write_bytes(b"")
    subprocess.run(
        [str(BASH), "-c", _NOTED + source],
        cwd=folder,
        env={"PATH": "/nowhere"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=WAIT_SECONDS,
        check=False,
    )
    each = noted.read_bytes().decode(errors="replace").split("\1\0")
    return [tuple(one.split("\0")[:-1]) for one in each]


def _may_be(known: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """A hole is anything at all, also several words or none."""
    if any(UNKNOWN_TEXT in word or word.startswith("~") for word in known):
        return UNKNOWN_TEXT in known[0] or known[0] == words[0]
    return known == words
