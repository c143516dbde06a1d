"""Removes secrets from the settings files that go into a backup."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection

SECRET_FILES = frozenset({"web-token", "web-sessions", "agents"})
"""Entries of the data directory that are secrets themselves: the web chat's token and sessions, and
the homes of coding CLIs with their logins."""

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|HEADERS|_URL$|_DSN$", re.IGNORECASE
)


def settings_masker(
    secret_settings: Collection[str], mask: Callable[[str], str]
) -> Callable[[str, str], str]:
    """A function that masks a settings file by its name and text. `secret_settings` are names of
    environment variables; other names that sound like secrets are masked too."""

    def mask_file(name: str, text: str) -> str:
        if not name.startswith(".env"):
            return mask(text)
        # Loaded with the settings anyway; a value may have several lines.
        from dotenv.parser import parse_stream

        return "".join(
            f"# {found.key}= was left out of the backup\n"
            if found.key
            and found.value
            and (found.key in secret_settings or _SECRET_NAME.search(found.key))
            else mask(found.original.string)
            for found in parse_stream(io.StringIO(text))
        )

    return mask_file
