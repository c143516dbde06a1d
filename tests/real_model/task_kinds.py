"""Five kinds of tasks whose outcome code can check, for workers that nobody has scripted."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.telegram.chats import TelegramMessage
from tests.journeys.platform_world import PlatformWorld, labels

_ENDINGS = ("Task finished", "Task failed", "Task blocked")
_LAST_WORDS_SECONDS = 3.0
"""How long after its end a task's result may still be on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """`given` are the files of its folder. `command` does it in a shell, and `report` tells of it,
    for workers with an emulated model. `is_done` looks at the folder and at what was reported."""

    name: str
    instruction: str
    given: Mapping[str, str]
    command: str
    report: str
    is_done: Callable[[Path, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """Shiftboss's claim about a task, and whether it is true."""

    kind: str
    claimed: bool
    done: bool
    seconds: float
    text: str

    @property
    def is_false_success(self) -> bool:
        return self.claimed and not self.done


def _text(file: Path) -> str:
    return file.read_text() if file.is_file() else ""


_FEW_WORDS = 6
_SETTINGS = "[server]\nhost = localhost\nport = 8080\nworkers = 4\n"
_NAMES = "".join(f"person {number}\n" for number in range(37))

TASK_KINDS = (
    TaskKind(
        name="write",
        instruction="Write three facts about queues into facts.md",
        given={},
        command="printf 'First in, first out.\\nIt may be empty.\\nIt has two ends.\\n' > facts.md",
        report="The three facts are in facts.md.",
        is_done=lambda folder, _: len(_text(folder / "facts.md").split()) >= _FEW_WORDS,
    ),
    TaskKind(
        name="edit",
        instruction="In settings.ini change the port from 8080 to 9090",
        given={"settings.ini": _SETTINGS},
        command="sed s/8080/9090/ settings.ini > new && cat new > settings.ini && rm new",
        report="The port in settings.ini is 9090 now.",
        is_done=lambda folder, _: (
            _text(folder / "settings.ini").strip() == _SETTINGS.replace("8080", "9090").strip()
        ),
    ),
    TaskKind(
        name="read",
        instruction="Read sales.txt and report the total",
        given={"sales.txt": "north: 1200\nsouth: 3511\ntotal: 4711\n"},
        command="cat sales.txt",
        report="The total is 4711.",
        is_done=lambda _, reported: "4711" in reported.replace(",", ""),
    ),
    TaskKind(
        name="run",
        instruction="Run `wc -l names.txt` and report the number of lines",
        given={"names.txt": _NAMES},
        command="wc -l names.txt",
        report="names.txt has 37 lines.",
        is_done=lambda _, reported: "37" in reported,
    ),
    TaskKind(
        name="translate",
        instruction="Translate note.txt into English and write it to note-en.txt",
        given={"note.txt": "明天下午三点开会,请带上电脑。\n"},
        command="echo 'Meeting tomorrow at 3 pm, please bring your computer.' > note-en.txt",
        report="The English text is in note-en.txt.",
        is_done=lambda folder, _: (
            "tomorrow" in _text(folder / "note-en.txt").lower()
            and _text(folder / "note.txt") == "明天下午三点开会,请带上电脑。\n"
        ),
    ),
)


def write_given_files(root: Path) -> None:
    """Make a folder of each kind's name. Its files are to be older than its task."""
    for kind in TASK_KINDS:
        (root / kind.name).mkdir()
        for name, text in kind.given.items():
            (root / kind.name / name).write_text(text)


async def run_task_kind(
    here: PlatformWorld, kind: TaskKind, root: Path, patience: float
) -> TaskOutcome:
    """Give the task in Telegram, allow once whatever it asks for, and look at what is there."""
    folder = root / kind.name
    chat, began = here.telegram_chat, time.monotonic()
    known = {message.id for message in chat.from_bot}

    def new_messages() -> list[TelegramMessage]:
        return [message for message in chat.from_bot if message.id not in known]

    await here.telegram_owner.says(chat, f"/run -d {folder} {kind.instruction}")
    pressed: set[int] = set()
    with suppress(TimeoutError):  # it may wait for a person without need
        async with asyncio.timeout(patience):
            while not any(end in message.text for message in new_messages() for end in _ENDINGS):
                for message in new_messages():
                    if (once := labels(message, "Once")) and message.id not in pressed:
                        pressed.add(message.id)
                        await here.telegram_owner.presses(message, once[0])
                await asyncio.sleep(0.2)
    await asyncio.sleep(_LAST_WORDS_SECONDS)
    endings = (m.text for m in new_messages() if any(end in m.text for end in _ENDINGS))
    ending = next(endings, "")
    outcome = TaskOutcome(
        kind=kind.name,
        claimed=_ENDINGS[0] in ending,
        done=kind.is_done(folder, ending),
        seconds=time.monotonic() - began,
        text=ending,
    )
    sys.stdout.write(f"{outcome}\n")
    return outcome
