"""A file of a known format is told from a spoilt one, whatever it contains."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from bot.engine.llm.file_syntax import (
    MAX_BYTES,
    SyntaxScanner,
    describe_faults,
    find_named_paths,
    find_syntax_fault,
)

SOUND = {
    "a.json": '{"port": 8080, "big": 1' + "0" * 9_000 + "}",
    "a.toml": "[server]\nport = 8080\n",
    "a.yaml": "server:\n  port: !Ref Port\n---\nanother: document\n",
    "a.yml": "- one\n- two\n",
    "a.ini": "[server]\nport = 8080\nflag\n",
    "a.cfg": "[server]\nport = %(base)s\n",
    "a.py": "print('\\d')\n",
    "a.xml": "<a><b/></a>",
    "a.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
    "a.csv": 'name,age\n"Li, Lei",30\n\nHan,"a\nb"\n',
    "a.tsv": "name\tage\nLi\t30\n",
}
COMMENTED = '{\n  // why\n  "url": "http://a//b", /* 1 */ "n": [1, 2,],\n}'
SPOILT = {
    "a.json": ('{"port": 8080', "not valid JSON"),
    "a.toml": ("[server\nport = 8080\n", "not valid TOML"),
    "a.yaml": ("server: [1\nport: 2\n", "not valid YAML"),
    "a.ini": ("server\nport = 9090\n", "not valid INI: line 1 stands in no [section]"),
    "a.py": ("def f(:\n", "not valid Python: invalid syntax (line 1)"),
    "a.xml": ("<a><b></a>", "not valid XML"),
    "a.csv": ("name,age\nLi\n", "not valid CSV: line 2 has 1 fields, the header has 2"),
}
BOMB = "a: &a [x,x,x]\n" + "".join(
    f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
    for a, b in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)
ENTITIES = (
    '<!DOCTYPE a [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    + "]><a>&a11;</a>"
)
HOSTILE = {
    "bomb.yaml": BOMB,
    "nested.yaml": "[" * 45_000,
    "tag.yaml": "!!python/object/apply:os.system ['touch spoilt']",
    "nested.json": "[" * 45_000 + "]" * 45_000,
    "nested.toml": "a = " + "[" * 45_000 + "]" * 45_000,
    "dots.toml": "a." * 30_000 + "b = 1",
    "nested.py": "(" * 45_000 + ")" * 45_000,
    "minus.py": "-" * 90_000 + "1",
    "not.py": "not " * 22_000 + "1",
    "sum.py": "1+" * 45_000 + "1",
    "digits.py": "9" * 90_000,
    "run.py": "import os; os.mkdir('spoilt')",
    "entities.xml": ENTITIES,
    "outside.xml": '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "nested.xml": "<a>" * 30_000,
    "long.csv": "a,b\n" + '"' + "x" * 90_000 + '",1\n',
    "nul.json": "\0",
    "comments.json": "/*a" * 30_000,
    "commas.json": "//\n" + "," + " " * 45_000 + "," * 45_000,
    "quotes.json": '"\\' * 45_000,
}


@pytest.mark.parametrize("name", SOUND)
def test_a_file_that_can_be_parsed_has_no_fault(name: str) -> None:
    assert find_syntax_fault(name, SOUND[name].encode()) == ""
    assert find_syntax_fault(name.upper(), b"\xef\xbb\xbf" + SOUND[name].encode()) == ""


def test_comments_are_allowed_in_json() -> None:
    assert find_syntax_fault("tsconfig.json", COMMENTED.encode()) == ""
    assert find_syntax_fault("tsconfig.json", COMMENTED.replace("//", "/", 1).encode()) != ""


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_file_is_named_with_the_reason(name: str) -> None:
    text, says = SPOILT[name]

    assert (find_syntax_fault(name, text.encode()) or "").startswith(says)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.md", b"# ["),
        ("a.conf", b"server {"),
        ("Makefile", b"all:"),
        ("a.json", b"1" * (MAX_BYTES + 1)),
        ("list.csv", b"one\ntwo\n"),
        ("empty.csv", b""),
    ],
)
def test_other_files_are_not_judged(name: str, data: bytes) -> None:
    assert find_syntax_fault(name, data) is None


def test_bytes_that_are_no_text_are_a_fault() -> None:
    assert find_syntax_fault("a.json", b"\xff\xfe{") == "not JSON: not UTF-8 text"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_neither_run_nor_expanded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    fault = find_syntax_fault(name, HOSTILE[name].encode())

    assert fault is None or "\n" not in fault
    assert list(tmp_path.iterdir()) == []


def test_the_warnings_of_others_stay_as_they_are() -> None:
    before = list(warnings.filters)

    find_syntax_fault("a.py", SOUND["a.py"].encode())

    assert warnings.filters == before


def test_the_files_of_a_folder_that_can_be_parsed_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "deep" / "a.json").write_text("{}")
    (tmp_path / "node_modules" / "b.json").write_text("{}")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "c.md").write_text("text")
    (tmp_path / "link.json").symlink_to("/etc/hostname")
    scanner = SyntaxScanner()

    first = scanner.find_sound(tmp_path, "")
    (tmp_path / "bad.json").write_text("{ }")
    (tmp_path / "deep" / "a.json").unlink()
    second = scanner.find_sound(tmp_path, "")

    assert [*first, *second] == ["deep/a.json", "bad.json"]


def test_named_files_come_first_where_there_are_too_many(tmp_path: Path) -> None:
    for n in range(100):
        (tmp_path / f"a{n}.json").write_text("{}")
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "last.json").write_text("{}")

    found = SyntaxScanner().find_sound(tmp_path, "Change the port in z/last.json, not in a1.json")

    assert len(found) == 60
    assert {"z/last.json", "a1.json"} <= found


def test_a_folder_of_large_files_is_read_in_part(tmp_path: Path) -> None:
    for n in range(9):
        (tmp_path / f"{n}.json").write_text('"' + "x" * 90_000 + '"')
    (tmp_path / "0.json").write_text('"' + "x" * MAX_BYTES + '"')

    assert len(SyntaxScanner().find_sound(tmp_path, "")) == 2


def test_paths_outside_the_workspace_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "outside.json").write_text("{}")

    text = f"../outside.json {tmp_path}/outside.json " + "a" * 300 + ".json"

    assert SyntaxScanner().find_sound(tmp_path / "work", text) == frozenset()
    assert SyntaxScanner().find_sound(tmp_path / "nowhere", text) == frozenset()


def test_spoilt_files_are_described_and_deleted_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("{}")

    told = describe_faults(tmp_path, ["b.json", "gone.json", "a.json"])

    assert [each.partition(" (")[0] for each in told] == ["a.json"]
    assert "not valid JSON" in told[0]


def test_paths_are_read_from_chinese_and_english_text() -> None:
    text = "把./conf/app.yaml里的端口改掉, then `setup.cfg` and main.pyc. See settings.ini."

    assert find_named_paths(text) == ("conf/app.yaml", "setup.cfg", "settings.ini")
