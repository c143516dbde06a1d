"""`shiftboss backup`, `restore` and `check`: the whole data directory as one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.chat_commands import report_start_failures
from bot.cli.parameters import JsonOption


def backup(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Where to write it; by default SHIFTBOSS_BACKUP_DIR."),
    ] = None,
    *,
    with_secrets: Annotated[
        bool,
        typer.Option("--with-secrets", help="Include tokens, keys and logins of coding CLIs."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a verified backup of everything, also beside a running Shiftboss."""
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from bot.app.store_commands import make_backup
        from bot.config.settings import load_settings

        made = make_backup(load_settings(), folder, with_secrets=with_secrets)
    manifest = made.manifest
    if as_json:
        data = {
            "file": str(made.path),
            "size": made.size,
            "files": len(manifest.files),
            "store_id": manifest.store_id,
            "schema": manifest.schema,
            "secrets": manifest.secrets,
            "skipped": list(manifest.skipped),
        }
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{made.path}: {len(manifest.files)} files, {made.size} bytes, verified")
    if manifest.skipped:
        typer.echo(f"Not archived, as they are links or devices: {len(manifest.skipped)}")
    if not manifest.secrets:
        typer.echo("Without secrets: keep your .env, or repeat with --with-secrets.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    *,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Put what is there aside, under a dated name."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup; nothing of what was under way is sent or done again by itself."""
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from bot.app.store_commands import restore as restore_into
        from bot.config.settings import load_settings

        settings = load_settings()
        done = restore_into(settings, file.expanduser(), replace=replace)
    if as_json:
        data = {
            "home": str(settings.home),
            "taken_at": done.manifest.created_at,
            "store_id": done.manifest.store_id,
            "aside": str(done.aside or ""),
            "was_cut_off": done.was_cut_off,
        }
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
        return
    finished = "Finished the restore that was cut off" if done.was_cut_off else "Restored"
    typer.echo(f"{finished}: {settings.home}, as of {done.manifest.created_at}")
    if done.aside:
        typer.echo(f"The old contents are in {done.aside}")
    if not done.manifest.secrets:
        typer.echo(f"The backup has no secrets: see that {settings.home / '.env'} has them.")
    typer.echo("`shiftboss run` starts it, and says in chat what was not done.")
