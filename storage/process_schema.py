"""Defines the tables of the processes that share a store."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import RowNumber, UtcTimestamp
from storage.schema import metadata

# Processes that share this store. One whose heartbeat (`seen_at`, by the store's clock) is too old
# is dead: its tasks, calls and leases go to others.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("host", sa.String(128), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.String(32), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("abilities", sa.JSON, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False),
    sa.Column("started_at", UtcTimestamp, nullable=False),
    sa.Column("seen_at", UtcTimestamp, nullable=False),
)

# Services that run in one process at a time, and in which.
service_leases = sa.Table(
    "service_leases",
    metadata,
    sa.Column("service", sa.String(64), primary_key=True),
    sa.Column("holder", sa.String(32), nullable=False),
    sa.Column("taken_at", UtcTimestamp, nullable=False),
)

# Replies to events that somebody waits for in another process than the one that handles them; null
# until there is one.
inbox_replies = sa.Table(
    "inbox_replies",
    metadata,
    sa.Column(
        "inbox_id",
        RowNumber,
        sa.ForeignKey("inbox.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("reply", sa.JSON(none_as_null=True)),
)

# Data directories in use by processes that share this store. A shared one counts once.
homes = sa.Table(
    "homes",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("seen_at", UtcTimestamp, nullable=False),
)

# Folders of the data directory that must be nowhere any more, and must not be brought back.
forgotten_folders = sa.Table(
    "forgotten_folders",
    metadata,
    sa.Column("path", sa.String(256), primary_key=True),
    sa.Column("at", UtcTimestamp, nullable=False),
)

# What is still to be erased in a data directory, or in the object store (an empty `home`): tried
# until it is done, which deletes the row.
file_erasures = sa.Table(
    "file_erasures",
    metadata,
    sa.Column("home", sa.String(32), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("what", sa.JSON, nullable=False),
    sa.Column("asked_at", UtcTimestamp, nullable=False),
    sa.Column("due_at", UtcTimestamp, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)

# Results that one data directory alone has: tried until they are in the object store, which deletes
# the row. `is_told` says that a card went out without the file, so that it has to follow.
late_files = sa.Table(
    "late_files",
    metadata,
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("home", sa.String(32), nullable=False),
    sa.Column("task_id", sa.String(32), nullable=False),
    sa.Column("is_told", sa.Boolean, nullable=False),
    sa.Column("due_at", UtcTimestamp, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)
