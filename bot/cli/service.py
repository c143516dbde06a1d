"""`shiftboss start`, `stop`, `restart` and `logs`: a service of the user where systemd runs, a
process in the background elsewhere."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import typer

from bot.cli.failures import fail, report_start_failures
from bot.cli.holder import find_holder
from bot.cli.serving import program_command
from cards.formats import escape_invisible

if TYPE_CHECKING:
    from bot.config.settings import Settings

_UNIT = "shiftboss.service"
_READY = "Shiftboss is ready."
_START_SECONDS = 120.0
_STOP_EXTRA_SECONDS = 30.0
"""Beyond the grace of running steps: answers, messages and the store."""
_LOOK_SECONDS = 0.1
_FOLLOW_SECONDS = 0.5
_SYSTEM_UNIT_FOLDER = Path("/run/systemd/system")
_LINGERING_FOLDER = Path("/var/lib/systemd/linger")


def start() -> None:
    """Start Shiftboss in the background, and wait until it is ready."""
    settings = _load()
    if holder := find_holder(settings.home):
        typer.echo(f"Shiftboss is running already (process {holder}).")
        return
    if _has_systemd():
        _start_unit(settings)
        return
    _start_process()


def stop() -> None:
    """Stop Shiftboss: running steps end or are kept for the next start."""
    settings = _load()
    holder = find_holder(settings.home)
    # A unit whose program has ended, or has only begun, would start it again.
    is_unit = _has_systemd() and _is_unit_of(settings) and _is_unit_alive()
    if holder is None and not is_unit:
        typer.echo("Shiftboss is not running.")
        return
    if is_unit:
        _systemctl("stop", _UNIT)
    holder = find_holder(settings.home)
    if holder is not None:
        with suppress(ProcessLookupError):
            os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + settings.stop_grace_seconds + _STOP_EXTRA_SECONDS
    while holder is not None and find_holder(settings.home) == holder:
        if time.monotonic() > deadline:
            fail(f"process {holder} has not stopped yet; to end it at once: kill {holder}")
        time.sleep(_LOOK_SECONDS)
    typer.echo("Shiftboss has stopped.")


def restart() -> None:
    """Stop Shiftboss and start it again."""
    stop()
    start()


def logs(
    *,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many lines.")] = 50,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Show the log."""
    from bot.config.logs import LOG_FILE

    file = _load().home / LOG_FILE
    try:
        with file.open(encoding="utf-8", errors="replace") as log:
            # No more than one file of the rotation.
            for line in deque(log, maxlen=lines):
                _print_line(line)
            if lines and not log.tell():
                typer.echo(f"{file} is empty: Shiftboss has not run yet.", err=True)
            if follow:
                with suppress(KeyboardInterrupt):
                    for line in _follow(file, log):
                        _print_line(line)
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror}): Shiftboss has not run yet?")


def _print_line(line: str) -> None:
    # A log has what others wrote, and must not control the terminal.
    typer.echo(escape_invisible(line.rstrip("\n")))


def _follow(file: Path, log: TextIO) -> Iterator[str]:
    """New lines, over rotations."""
    while True:
        while line := log.readline():
            yield line
        time.sleep(_FOLLOW_SECONDS)
        with suppress(FileNotFoundError):
            if file.stat().st_ino != os.fstat(log.fileno()).st_ino:
                yield from log.readlines()
                # The caller closes the first one.
                log = file.open(encoding="utf-8", errors="replace")


def _load() -> Settings:
    with report_start_failures():
        # Imported here so that `--help` stays fast.
        from bot.config.settings import load_settings

        return load_settings()


def _start_process() -> None:
    """In a session of its own, so that closing the terminal does not end it. It writes nothing
    to the terminal after its start: the log file has everything."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*program_command(), "run", "--background"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    told: list[str] = []
    # It closes its end once it is ready, or ends; a start that hangs is told by a signal.
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _START_SECONDS)
    with suppress(TimeoutError):
        for line in process.stdout:
            told.append(line)  # noqa: PERF402 - what came before a timeout counts
    signal.setitimer(signal.ITIMER_REAL, 0)
    # Without the lines of the log.
    shown = [line for line in told if not (line[:4].isdecimal() or line[:1] == "{")]
    typer.echo(escape_invisible("".join(shown).rstrip("\n")))
    if not any(_READY in line for line in told):
        _fail_start("".join(shown))


def _give_up(*_: object) -> None:
    raise TimeoutError


def _has_systemd() -> bool:
    """Whether units of this user can be started."""
    return (
        _SYSTEM_UNIT_FOLDER.is_dir()
        and shutil.which("systemctl") is not None
        and _systemctl("show-environment", may_fail=True)
    )


def _systemctl(*args: str, may_fail: bool = False) -> bool:
    done = _run("systemctl", "--user", *args)
    if done.returncode and not may_fail:
        fail(f"systemctl --user {' '.join(args)}: {done.stderr.strip()}")
    return done.returncode == 0


def _run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which(program) or program, *args]
    return subprocess.run(  # noqa: S603 - fixed words
        command, capture_output=True, text=True, errors="replace", check=False
    )


def _start_unit(settings: Settings) -> None:
    if not _is_unit_of(settings) and _is_unit_alive():
        fail(f"{_UNIT} runs with another data directory: see {_unit_file()}")
    _unit_file().parent.mkdir(parents=True, exist_ok=True)
    _unit_file().write_text(unit_text(settings), encoding="utf-8")
    _systemctl("daemon-reload")
    _systemctl("enable", _UNIT)
    _tell_lost_variables()
    # Returns when it is ready or has failed.
    if not _systemctl("start", _UNIT, may_fail=True):
        _fail_start(_show_last_words())
    with report_start_failures():
        from bot.app.running_program import find_running_program

        program = find_running_program(settings)
    typer.echo(f"Shiftboss is ready. Open the web chat: {program.url}/?token={program.token}")
    if not (_LINGERING_FOLDER / getpass.getuser()).exists():
        typer.echo("To keep it running when you log out: loginctl enable-linger")


def _unit_file() -> Path:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return folder / "systemd/user" / _UNIT


def _is_unit_of(settings: Settings) -> bool:
    """Whether the unit is for this data directory."""
    try:
        return _home_line(settings) in _unit_file().read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False


def _is_unit_alive() -> bool:
    """Also while it starts, or waits to start again."""
    return _show_unit("ActiveState") in {"active", "activating", "reloading", "deactivating"}


def _show_unit(name: str) -> str:
    return _run(
        "systemctl", "--user", "show", f"--property={name}", "--value", _UNIT
    ).stdout.strip()


def _fail_start(told: str) -> NoReturn:
    """The log is worth a look only if the program's last words don't say what failed."""
    is_told = any(line.startswith("shiftboss: ") for line in told.splitlines())
    fail("it did not start" if is_told else "it did not start; see `shiftboss logs`", status=2)


def _show_last_words() -> str:
    """The program's own, which only the journal has: a setting that is wrong, for example."""
    pid = _show_unit("ExecMainPID")
    said = _run("journalctl", "--user", "--output=cat", "--lines=20", "--quiet", f"_PID={pid}")
    typer.echo(escape_invisible(said.stdout.rstrip("\n")), err=True)
    return said.stdout


def unit_text(settings: Settings) -> str:
    """The unit of the user, which starts in this folder, whose `.env` counts."""
    command = " ".join(_quote(each) for each in (*program_command(), "run"))
    wait = settings.stop_grace_seconds + _STOP_EXTRA_SECONDS
    return f"""[Unit]
Description=Shiftboss, a foreman for AI workers

[Service]
# Started once it is ready; a first start after an upgrade migrates the database before.
Type=notify
TimeoutStartSec=15min
WorkingDirectory={str(Path.cwd()).replace("%", "%%")}
{_home_line(settings)}
ExecStart={command}
Restart=on-failure
RestartSec=5
# A wrong setting is told once, not every five seconds.
RestartPreventExitStatus=2
TimeoutStopSec={wait:g}
# A command that forks without end meets this before the machine does.
TasksMax=6000
# Commands get a control group of their own, with their own limits of processes and memory.
Delegate=yes
UMask=0077

[Install]
WantedBy=default.target
"""


def _home_line(settings: Settings) -> str:
    return f"Environment={_quote(f'SHIFTBOSS_HOME={settings.home}')}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _tell_lost_variables() -> None:
    from bot.config.settings import setting_names

    lost = sorted((setting_names() - {"SHIFTBOSS_HOME"}) & os.environ.keys())
    if lost:
        named = ", ".join(lost)
        typer.echo(f"The service does not see these variables, put them into .env: {named}")
