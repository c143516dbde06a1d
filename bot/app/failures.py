"""What keeps the program from starting, said so that whoever starts it can mend it."""

from __future__ import annotations


class StartFailure(Exception):
    """Its text is the one line to show: what is wrong and what to do."""
