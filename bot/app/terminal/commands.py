"""How a command typed on this machine is carried out: by the program that runs on the home, or,
where none does, here and now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from bot.app.failures import StartFailure, unusable
from bot.app.terminal.address import Running, find_running
from bot.app.terminal.calls import Answer, NobodyThere, call
from bot.config.settings import Settings
from storage.errors import HomeBusy, HomeUnusable
from storage.home import Home

_PATIENCE = 5.0
_TURN = 60.0
"""For another command, which ends by itself."""
_REST = 0.1


_T = TypeVar("_T")


def carry_out(settings: Settings, text: str) -> Answer:
    """Say it as the local owner. Blocking. Raises StartFailure, and calls.Refused."""
    message_id = uuid4().hex

    def there(running: Running) -> Answer:
        return call(running, text, id=message_id, buttons=False, quiet=True)

    return reach(settings, there, lambda: _here(settings, text))


def reach(settings: Settings, there: Callable[[Running], _T], here: Callable[[], _T]) -> _T:
    """`there` by the program that runs on the home, which raises NobodyThere where it does not
    answer; `here` with the home in our hands where none runs. Blocking. Raises StartFailure.

    The home is held by one at a time: another command is waited for, a program that starts too.
    """
    queue = _Queue()
    while True:
        try:
            home = Home(settings.home, briefly=True)
        except HomeBusy as error:
            queue.behind(error)
        except HomeUnusable as error:
            raise unusable(error) from error
        else:
            with home:
                return here()
        try:
            return there(find_running(settings))
        except (NobodyThere, StartFailure) as error:
            if queue.too_long:
                raise StartFailure(
                    f"another Shiftboss (process {queue.holder}) holds {settings.home} and takes no"
                    " commands: wait until it is done, or stop it and start `shiftboss run`"
                ) from error
        time.sleep(_REST)


class _Queue:
    """How long we have waited for whoever holds the home now."""

    def __init__(self) -> None:
        self.holder = ""
        self._until = 0.0

    def behind(self, busy: HomeBusy) -> None:
        if busy.pid != self.holder:
            self.holder = busy.pid
            self._until = time.monotonic() + (_TURN if busy.briefly else _PATIENCE)

    @property
    def too_long(self) -> bool:
        return time.monotonic() > self._until


def _here(settings: Settings, text: str) -> Answer:
    # The engine and the store are loaded only where no running program has them loaded already.
    from bot.app.terminal.offline import answer
    from bot.app.terminal.opening import explained, prepare

    with explained(settings):
        # One command is no diary: only what is wrong is worth a line.
        prepare(settings, "ERROR" if settings.log_level == "ERROR" else "WARNING")
        return asyncio.run(answer(settings, text))
