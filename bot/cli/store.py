"""`shiftboss backup`, `restore`, `check` and `migrate`: the whole data directory as one file, and
its store in another database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.chat_commands import JsonOption
from bot.cli.failures import report_start_failures
from cards.formats import escape_invisible


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
    """Write a verified backup of everything, also while Shiftboss runs."""
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
        typer.echo(f"Not archived (links, devices, too deep): {len(manifest.skipped)}")
    if not manifest.secrets:
        typer.echo("Without secrets: keep your .env, or repeat with --with-secrets.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    *,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Move the existing data aside, under a dated name."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup; unfinished work is not sent or repeated automatically."""
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
    taken_at = done.manifest.created.astimezone()
    typer.echo(f"{finished}: {settings.home}, as of {taken_at:%Y-%m-%d %H:%M}")
    if done.aside:
        typer.echo(f"The old contents are in {done.aside}")
    if not done.manifest.secrets:
        typer.echo(f"The backup has no secrets: see that {settings.home / '.env'} has them.")
    typer.echo("`shiftboss run` starts it, and says in chat what was not done.")


def migrate(
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="URL", help="postgresql://USER@HOST/DATABASE or sqlite:///PATH."
        ),
    ],
    source: Annotated[
        str,
        typer.Option("--from", metavar="URL", help="By default the database in use."),
    ] = "",
    *,
    as_json: JsonOption = False,
) -> None:
    """Move the store to another database, compared row by row; repeat it if it is cut off."""
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from bot.app.store_commands import move
        from bot.config.settings import load_settings

        done = move(load_settings(), to, source)
    rows = sum(each.rows for each in done.tables.values())
    if as_json:
        tables = {
            name: {"rows": each.rows, "sha256": each.sha256} for name, each in done.tables.items()
        }
        data = {"from": done.source, "to": done.target, "rows": rows, "tables": tables}
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
        return
    compared = f": {rows} rows in {len(done.tables)} tables, compared" if done.tables else ""
    typer.echo(f"Moved from {done.source} to {done.target}{compared}")
    typer.echo(
        "Set DATABASE_URL to the new place, then start Shiftboss. The old one stays, unused."
    )


def check(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A backup; by default the data directory."),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Check the data directory or a backup for damage; status 1 if damaged."""
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from bot.app.store_commands import check as check_store
        from bot.config.settings import load_settings

        report = check_store(load_settings(), None if file is None else file.expanduser())
    if as_json:
        data = {
            "good": report.is_good,
            "schema": report.schema,
            "store_id": report.store_id,
            "findings": [
                {"kind": each.kind, "error": each.is_error, "text": each.text}
                for each in report.findings
            ],
        }
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
    else:
        for each in report.findings:
            mark = "error" if each.is_error else "note"
            typer.echo(escape_invisible(f"{mark}: {each.kind}: {each.text}"))
        typer.echo("Good." if report.is_good else "Restore a backup: see docs/backup.md.")
    if not report.is_good:
        raise typer.Exit(1)
