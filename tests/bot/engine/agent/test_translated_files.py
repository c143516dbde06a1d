"""A file that was to be translated is told from a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.requested_files import find_untranslated

CHINESE = "明天下午三点开会,请带上电脑。"
ENGLISH = "Meeting tomorrow at 3 pm, please bring your computer."
INTO_ENGLISH = "Translate note.txt into English and write it to note-en.txt"
INTO_CHINESE = "把 note.txt 翻译成中文，写到 note-zh.txt"


@pytest.mark.parametrize(
    ("text", "content", "is_told"),
    [
        (INTO_ENGLISH, CHINESE, True),
        (INTO_ENGLISH, ENGLISH, False),
        (INTO_ENGLISH, f"{CHINESE}\n{ENGLISH}", False),
        (INTO_ENGLISH, "…", False),
        ("把 note.txt 翻译成英文，写到 note-en.txt", CHINESE, True),
        (INTO_CHINESE, ENGLISH, True),
        (INTO_CHINESE, CHINESE, False),
        ("Translate note.txt to Chinese", ENGLISH, True),
        ("Translate it into English and into Chinese", CHINESE, False),
        ("Translate note.txt into French", CHINESE, False),
        ("Copy the English note", CHINESE, False),
    ],
)
def test_a_file_in_the_wrong_language_is_found(
    tmp_path: Path, text: str, content: str, is_told: bool
) -> None:
    (tmp_path / "out.txt").write_text(content)

    found = find_untranslated(tmp_path, text, ["out.txt", "gone.txt", "../out.txt"])

    assert found == (("out.txt",) if is_told else ())


def test_what_is_no_text_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "b.txt").write_text(CHINESE * 20_000)

    assert find_untranslated(tmp_path, INTO_ENGLISH, ["a.txt", "b.txt"]) == ()
