"""Names what a backup of this installation holds, removes secrets from its settings files, and
explains why one was not made."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import version

from bot.app.lifecycle import StartFailure
from bot.config.settings import Settings, secret_setting_names
from bot.engine.redaction import SecretMasker
from bot.transports.web.access_token import read_token
from storage.backup_archive import BackupSource
from storage.errors import BackupFailed, BadBackup, RestoreRefused
from storage.migrate import database_place

SECRET_FILES = frozenset({"web-token", "web-sessions", "agents", "mcp-tokens"})
"""Entries of the data directory that are secrets themselves: the web chat's token and sessions, the
homes of coding CLIs with their logins, and the sign-ins to MCP servers."""

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


def backup_source(
    settings: Settings, *, with_secrets: bool = False, masker: SecretMasker | None = None
) -> BackupSource:
    """`masker` is that of the running program, which learns new secrets."""
    masker = masker or SecretMasker((*settings.secret_values, read_token(settings.home)))
    return BackupSource(
        home=settings.home,
        database=database_place(settings.database),
        version=version("shiftboss"),
        mask=settings_masker(secret_setting_names(), masker.mask),
        secret_names=SECRET_FILES,
        with_secrets=with_secrets,
    )


@contextmanager
def explain_backup_failures() -> Iterator[None]:
    """Turn errors of backups into a StartFailure."""
    try:
        yield
    except BackupFailed as error:
        raise StartFailure(f"no backup was made: {error}") from error
    except RestoreRefused as error:
        raise StartFailure(f"nothing was restored: {error}") from error
    except BadBackup as error:
        raise StartFailure(f"this backup cannot be used: {error}") from error
