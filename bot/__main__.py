"""`shiftboss`, and `python -m bot`."""

from __future__ import annotations

from bot.cli.main import cli


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
