"""The `shiftboss` command, also `python -m bot`."""

from __future__ import annotations

import sys

from bot.cli.dataclass_methods import share_dataclass_methods
from storage.data_directory import make_new_files_private

_PLAIN_RUNS = (["run"], ["run", "--background"])


def main() -> None:
    make_new_files_private()
    share_dataclass_methods()
    # Imported here: the program keeps what it has once loaded, and the command line is 3 MiB.
    if sys.argv[1:] not in _PLAIN_RUNS:
        from bot.cli.command_line import run_command_line

        sys.exit(run_command_line())
    try:
        from bot.cli.serving import run_program

        run_program(*sys.argv[1:], detach="--background" in sys.argv)
    except KeyboardInterrupt:
        sys.exit("Aborted!")


if __name__ == "__main__":
    main()
