"""The real program with a record of the product files in which functions are entered.

Run as a file, with the arguments of `shiftboss`. ENTERED_FILES_PIPE names a pipe with orders, one a
line: `start` begins a record, any other line is a path to which the record is written as JSON.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

_ROOT = Path(__file__).parents[1]
# Modules come from the tree that this file is part of, not from its folder.
sys.path[0] = str(_ROOT)

PIPE_VARIABLE = "ENTERED_FILES_PIPE"
PRODUCT_FOLDERS = ("bot", "handlers", "cards", "storage")


class EnteredFiles:
    """A profile function for `sys.setprofile`. It counts functions, not modules and class bodies,
    which are run by imports; a coroutine that goes on counts as entered."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_recording = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self._is_recording and event == "call":
            code = frame.f_code
            if code.co_flags & inspect.CO_OPTIMIZED:
                self._files.add(code.co_filename)

    def start(self) -> None:
        self._files = set()
        self._is_recording = True

    def stop(self) -> list[str]:
        """The product files entered since the start, relative to the tree."""
        self._is_recording = False
        roots = tuple(f"{_ROOT / folder}{os.sep}" for folder in PRODUCT_FOLDERS)
        found = (name for name in tuple(self._files) if name.startswith(roots))
        return sorted(os.path.relpath(name, _ROOT) for name in found)


def follow_orders(pipe: Path, entered: EnteredFiles) -> None:
    """Take orders from the pipe until the process ends."""
    while True:
        with pipe.open() as orders:
            for order in map(str.strip, orders):
                if order == "start":
                    entered.start()
                elif order:
                    _write_whole(Path(order), json.dumps(entered.stop()))


def _write_whole(path: Path, text: str) -> None:
    """Whoever sees the file sees all of it."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(path)


def main() -> None:
    entered = EnteredFiles()
    orders = threading.Thread(
        target=follow_orders, args=(Path(os.environ[PIPE_VARIABLE]), entered), daemon=True
    )
    orders.start()
    threading.setprofile(entered)
    sys.setprofile(entered)
    from bot.__main__ import main as shiftboss

    shiftboss()


if __name__ == "__main__":
    main()
