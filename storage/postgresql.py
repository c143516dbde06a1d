"""PostgreSQL's side of the store: its connections, its column types, and what a server must be.

Loaded only where the database's URL names one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler, PGTypeCompiler
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError

from storage.async_engine import AsyncConnection, AsyncEngine, create_async_engine
from storage.dialect import dump_json, translate_database_errors
from storage.errors import StoreMismatch, StoreUnavailable

log = logging.getLogger(__name__)

OLDEST_VERSION = 15
EXTRA = "shiftboss[postgres]"
WRITE_LOCK = "pg_advisory_xact_lock(1397245266, 1)"
"""Held to the end of a transaction by whoever writes, in all processes. What one writer gives on
SQLite holds here too: what a transaction has read is still so when it writes."""

# A server that crashed gives numbers of transactions it has lost to others. Its counts begin anew
# then, so the time of that tells the lives of a server apart.
_LIFE = "(SELECT stats_reset::text FROM pg_stat_wal)"
# One round trip: what stands before a BEGIN of the same message belongs to its transaction.
_BEGIN_WRITE = f"SELECT pg_current_xact_id()::text, {_LIFE}, pg_backend_pid(), {WRITE_LOCK}; BEGIN"
_TRANSACTION = "shiftboss.transaction"
_BACKEND = "shiftboss.backend"
_TRANSACTION_STATUS = sa.text(f"SELECT {_LIFE}, pg_xact_status(CAST(:number AS xid8))")
_UNKNOWN_TRANSACTION = "22023"
_IN_DOUBT = "the database was cut off, and whether the last write was stored is not known"
_MEMORY_WRITES = sa.text(
    "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables"
    " WHERE schemaname = current_schema() AND relname IN ('memories', 'memory_tombstones')"
)

_OTHER_SERVER = ("invalid response to SSL negotiation", "expected authentication request")
"""What libpq says of a server that speaks something else."""
_USED_AT = "shiftboss.used_at"
_PING_AFTER_SECONDS = 1.0
_WRITERS = 2
_READERS = 4
_SETTLE_SECONDS = 30.0
"""How long a lost commit is asked after."""
_SETTLE_PAUSE = 0.25
_OPTIONS = {
    # A process that was stopped, or whose machine is gone, must not keep the others from writing.
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "30s",
    "timezone": "UTC",
}
_WRITER_OPTIONS = {
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
}
_READER_OPTIONS = {"default_transaction_read_only": "on"}
KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""Of each connection: one whose network is gone without a word ends within some 15 seconds."""
_CONNECTION = {"application_name": "shiftboss", "client_encoding": "utf8", **KEEPALIVE}
_MISSING_PACKAGES = f"PostgreSQL needs packages that are not installed: pip install '{EXTRA}'"


def create_postgresql_engines(url: str) -> tuple[AsyncEngine, AsyncEngine]:
    """The write engine and the read engine. Connects to nothing yet."""
    parsed = make_url(url)
    # The driver begins nothing: `_BEGIN_WRITE` does.
    writer = _create_engine(parsed, "AUTOCOMMIT", connections=_WRITERS)
    # All statements of a read see the same commit, as on SQLite.
    reader = _create_engine(parsed, "REPEATABLE READ", connections=_READERS, read_only=True)

    @sa.event.listens_for(writer.sync_engine, "begin")
    def on_begin(connection: Any) -> None:
        # The snapshot of the next statement is taken after the lock: READ COMMITTED.
        number, life, backend, _ = connection.exec_driver_sql(_BEGIN_WRITE).one()
        connection.info[_TRANSACTION] = (number, life)
        connection.info[_BACKEND] = backend

    return writer, reader


def note_backends(writer: AsyncEngine, backends: set[int]) -> None:
    """Keep the server's processes that write for this engine in the set."""

    @sa.event.listens_for(writer.sync_engine, "begin")
    def on_begin(connection: Any) -> None:
        backends.add(connection.info[_BACKEND])

    @sa.event.listens_for(writer.sync_engine, "close")
    def on_close(_connection: object, record: Any) -> None:
        backends.discard(record.info.get(_BACKEND))


async def commit_exactly(writer: AsyncEngine, transaction: AsyncConnection) -> None:
    """Commit. If the connection is lost before the answer, find out the outcome. An error means
    that nothing was stored, or that no server could tell."""
    number, life = transaction.info[_TRANSACTION]
    held = await transaction.get_raw_connection()
    driver: Any = held.driver_connection
    try:
        await _send_commit(transaction)
    except DBAPIError as error:
        if not driver.closed:
            raise
        log.warning("the connection was cut during a commit: %s", error)
        if not await _was_committed(writer, number, life):
            raise StoreUnavailable("the connection was cut, and nothing was stored") from error


async def _send_commit(transaction: AsyncConnection) -> None:
    await transaction.commit()


async def _was_committed(writer: AsyncEngine, number: str, life: str | None) -> bool:
    """Find out what became of a transaction. Raises StoreUnavailable if no server tells in time, or
    if it has crashed since."""
    end = asyncio.get_running_loop().time() + _SETTLE_SECONDS
    while True:
        try:
            async with writer.connect() as connection:
                # The lock that it begins with is free once the other transaction has ended.
                told = await connection.execute(_TRANSACTION_STATUS, {"number": number})
                life_now, status = told.one()
                if life_now != life:
                    raise StoreUnavailable(_IN_DOUBT)
                return bool(status == "committed")
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _UNKNOWN_TRANSACTION:
                # The server has lost it in a crash, before it was on the disk.
                return False
            if asyncio.get_running_loop().time() > end:
                raise StoreUnavailable(_IN_DOUBT) from error
            await asyncio.sleep(_SETTLE_PAUSE)


async def count_memory_writes(view: AsyncConnection) -> int:
    """How often memories were written, as the server has counted up to some seconds ago."""
    return int(await view.scalar(_MEMORY_WRITES) or 0)


def create_blocking_engine(url: str, *, locks: bool) -> sa.Engine:
    """A blocking engine. Its transactions exclude all writers if it `locks`, and new tables have
    the types of `ColumnTypes`."""
    parsed = make_url(url)
    with _explain_missing_packages():
        engine = sa.create_engine(
            _driver_url(parsed),
            json_serializer=dump_json,
            connect_args=_connection_arguments(parsed),
            use_native_hstore=False,
            poolclass=sa.NullPool,
        )
    engine.dialect.ddl_compiler = _TableCompiler

    if locks:

        @sa.event.listens_for(engine, "begin")
        def on_begin(connection: Any) -> None:
            connection.exec_driver_sql(f"SELECT {WRITE_LOCK}")

    return engine


class _TableCompiler(PGDDLCompiler):
    def get_column_specification(self, column: Any, **kwargs: Any) -> str:
        usual = self.dialect.type_compiler_instance
        self.dialect.type_compiler_instance = ColumnTypes(self.dialect)
        try:
            made: str = super().get_column_specification(column, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            self.dialect.type_compiler_instance = usual
        return made


class ColumnTypes(PGTypeCompiler):
    """Gives columns what SQLite gives them: text of any length, in the order of its characters'
    numbers on every server, and whole numbers of 64 bits."""

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - SQLAlchemy's name
        return 'TEXT COLLATE "C"'

    def visit_TEXT(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - as above
        return 'TEXT COLLATE "C"'

    def visit_INTEGER(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - as above
        return "BIGINT"

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - as above
        return "DOUBLE PRECISION"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - as above
        return "DOUBLE PRECISION"


def read_postgresql_facts(url: str) -> tuple[str | None, Mapping[str, str]]:
    """The migration revision of the store in a database, None if it is empty, and those of its
    marks that are about the store, as JSON. Blocking; changes nothing.

    Raises StoreUnavailable if the server cannot be used, and StoreMismatch if the database has
    tables of another program.
    """
    engine = _inspection_engine(url)
    try:
        with translate_database_errors(), engine.connect() as connection:
            _check_server(connection)
            return _read_facts(connection)
    except StoreUnavailable as error:
        if any(sign in str(error) for sign in _OTHER_SERVER):
            raise StoreUnavailable(f"no PostgreSQL server answers there ({error})") from error
        raise
    finally:
        engine.dispose()


def _inspection_engine(url: str) -> sa.Engine:
    parsed = make_url(url)
    with _explain_missing_packages():
        return sa.create_engine(
            _driver_url(parsed),
            connect_args=_connection_arguments(parsed),
            isolation_level="AUTOCOMMIT",
            use_native_hstore=False,
            poolclass=sa.NullPool,
        )


def _read_facts(connection: sa.Connection) -> tuple[str | None, Mapping[str, str]]:
    tables = set(
        connection.exec_driver_sql(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            r" AND tablename NOT LIKE 'procrastinate\_%%'"
        ).scalars()
    )
    if tables and not {"alembic_version", "marks"} <= tables:
        named = ", ".join(sorted(tables)[:5])
        raise StoreMismatch(
            "an empty database or this store's", f"tables of another program ({named})"
        )
    if not tables:
        return None, {}
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    marks = connection.exec_driver_sql(
        "SELECT name, value::text FROM marks WHERE name LIKE 'store.%%'"
    )
    return revision, {str(row.name): str(row.value) for row in marks}


def _check_server(connection: sa.Connection) -> None:
    row = connection.exec_driver_sql(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'),"
        " current_setting('server_encoding'), pg_is_in_recovery(),"
        " current_setting('transaction_read_only'), current_schema()"
    ).one()
    number, version, encoding, is_standby, is_read_only, schema = row
    if number < OLDEST_VERSION * 10_000:
        raise StoreUnavailable(f"PostgreSQL {version} is too old: {OLDEST_VERSION} or newer")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"the database stores text as {encoding}: make one with ENCODING 'UTF8'"
        )
    if is_standby or is_read_only == "on":
        raise StoreUnavailable("the database can only be read: name the primary server")
    if schema is None:
        raise StoreUnavailable("the database has no schema on the search_path of this user")


def _create_engine(
    url: URL, isolation: str, *, connections: int, read_only: bool = False
) -> AsyncEngine:
    with _explain_missing_packages():
        made = create_async_engine(
            _driver_url(url),
            connect_args=_connection_arguments(
                url, _READER_OPTIONS if read_only else _WRITER_OPTIONS
            ),
            # Inserts say whether they inserted, as they do on SQLite.
            execution_options={"preserve_rowcount": True, "postgresql_readonly": read_only},
            isolation_level=isolation,
            json_serializer=dump_json,
            max_overflow=0,
            pool_size=connections,
            # Looking for it would cost a query for each engine.
            use_native_hstore=False,
        )
    _ping_after_pauses(made.sync_engine)
    _accept_any_text(made.dialect)
    _read_sums_as_numbers(made.dialect)
    return made


def _ping_after_pauses(engine: sa.Engine) -> None:
    """Replace connections that were lost while they were not used. SQLAlchemy would ask each time,
    which costs as much as a short statement; what breaks within a second can break as well after
    the question."""

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(_connection: object, record: Any) -> None:
        record.info[_USED_AT] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, record: Any, _proxy: object) -> None:
        if time.monotonic() - record.info.get(_USED_AT, time.monotonic()) < _PING_AFTER_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError(str(error)) from error


def _read_sums_as_numbers(dialect: Any) -> None:
    """Read NUMERIC as a number. No column has that type, but sums and averages of whole numbers do,
    and Decimal values cannot be encoded as JSON."""
    from psycopg.adapt import Loader

    class SumOrAverage(Loader):
        def load(self, data: Any) -> int | float:
            text = bytes(data)
            return float(text) if b"." in text else int(text)

    dialect._psycopg_adapters_map.register_loader("numeric", SumOrAverage)  # noqa: SLF001 - only there


def _accept_any_text(dialect: Any) -> None:
    """Replace the one character that PostgreSQL's text rejects and SQLite's takes."""
    from psycopg.types.string import StrDumper, StrDumperUnknown

    class AnyText(StrDumper):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\x00", "\N{REPLACEMENT CHARACTER}"))

    class AnyUnknownText(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\x00", "\N{REPLACEMENT CHARACTER}"))

    for dumper in (AnyUnknownText, AnyText):
        dialect._psycopg_adapters_map.register_dumper(str, dumper)  # noqa: SLF001 - only there


def _driver_url(url: URL) -> URL:
    return url.set(drivername="postgresql+psycopg").difference_update_query(["options"])


def _connection_arguments(url: URL, options: Mapping[str, str] = {}) -> dict[str, Any]:
    """Connection settings that the URL does not set itself."""
    given = url.query.get("options", "")
    own = " ".join(f"-c {name}={value}" for name, value in {**_OPTIONS, **options}.items())
    arguments = {name: value for name, value in _CONNECTION.items() if name not in url.query}
    return arguments | {"options": f"{own} {given if isinstance(given, str) else ' '.join(given)}"}


@contextmanager
def _explain_missing_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise StoreUnavailable(_MISSING_PACKAGES) from error
    except ImportError as error:
        # psycopg without a libpq says so in several lines.
        raise StoreUnavailable(f"{_MISSING_PACKAGES} ({str(error).splitlines()[0]})") from error
