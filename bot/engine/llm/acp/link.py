"""Requests to a CLI and its answers, by the library; imported when the first CLI is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from acp.connection import Connection
from acp.exceptions import RequestError

from bot.engine.llm.acp.failures import Failed
from bot.engine.llm.acp.said.hiding import Hiding
from bot.engine.llm.acp.wire import Wire


class Refused(Exception):
    """It answered with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class Ended(Exception):
    """There will be no answer."""

    def __init__(self, failed: Failed | None) -> None:
        """`failed` is why, where it is not its death."""
        self.failed = failed
        super().__init__(str(failed or "the process ended"))


class Link:
    def __init__(self, wire: Wire, hiding: Hiding) -> None:
        self._wire = wire
        self._hiding = hiding
        self._connection = Connection(_nobody, wire)

    async def ask(
        self, method: str, params: Mapping[str, Any], *, seconds: float | None = None
    ) -> Mapping[str, Any]:
        """Raises Refused and Ended."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._connection.send_request(method, dict(params))
        except RequestError as error:
            hidden = self._hiding.text(str(error))[:500]
            raise Refused(error.code, hidden, self._hiding.told(error.data)) from None
        except TimeoutError:
            silent = Failed.GARBAGE if self._wire.only_garbage else Failed.SILENT
            raise Ended(self._wire.fault or silent) from None
        except OSError:  # ConnectionError among them
            raise Ended(self._wire.fault) from None
        return answer if isinstance(answer, dict) else {}

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Where nobody listens any more, nothing is lost."""
        with suppress(OSError):
            await self._connection.send_notification(method, dict(params))

    async def aclose(self) -> None:
        await self._connection.close()


async def _nobody(method: str, params: Any, is_notification: bool) -> Any:  # noqa: ARG001 - the library's signature
    """The wire keeps all that is not an answer."""
    raise RequestError.method_not_found(method)
