"""Events of tasks, as a stream of server-sent events.

Not a WebSocket: this works with curl and plain HTTP clients, and resuming after the last id is
part of it. Pages had better use a socket: browsers allow six streams an origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic import Field
from starlette.responses import StreamingResponse

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiProblem, ApiRoutes
from bot.dashboard.api.tasks import EventModel, find_task
from storage.records.tasks import TaskId

routes = ApiRoutes("events")
_BATCH = 200
_INTERVAL = 1.0
_KEEP_ALIVE_ROUNDS = 15
_MAX_STREAMS = 20
"""Of one person: each reads the store once a second."""
_MAX_STREAMS_OF_ALL = 100
"""Far fewer than the connections that the server keeps."""


class EventQuery(ApiModel):
    """Without `after` and the header `Last-Event-ID`, only what happens from now on."""

    after: int | None = Field(default=None, ge=0, le=2**62)
    task: str = Field(default="", max_length=40)


@routes("GET", "/events", media="text/event-stream")
async def stream_events(call: ApiCall, query: EventQuery) -> StreamingResponse:
    """Follow what happens to the tasks that you may see"""
    task_id = (await find_task(call, query.task)).id if query.task else None
    after = query.after
    if last := call.request.http.headers.get("last-event-id", ""):
        if not (last.isascii() and last.isdigit() and len(last) < 19):  # noqa: PLR2004 - 64 bits
            raise ApiProblem(400, "bad_cursor")
        after = int(last)
    open_streams, limit = call.request.deps.streams, _MAX_STREAMS
    if open_streams[call.request.person.id] >= limit or open_streams.total() >= _MAX_STREAMS_OF_ALL:
        raise ApiProblem(429, "too_many_streams", limit=limit)
    if after is None:
        after = await call.request.services.tasks.newest_event_id()
    return StreamingResponse(
        () if call.request.http.method == "HEAD" else _follow(call, after, task_id),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _follow(call: ApiCall, after: int, task_id: TaskId | None) -> AsyncIterator[str]:
    """Until the client leaves, loses its access, or Shiftboss stops."""
    request, deps = call.request, call.request.deps
    deps.streams[request.person.id] += 1
    try:
        yield f"retry: 1000\nid: {after}\n\n"
        quiet = 0
        while not deps.stopping.is_set() and await deps.is_welcome(request.http):
            events = await request.services.tasks.list_events(
                by=request.person, chat=request.chat.id, after=after, limit=_BATCH, task_id=task_id
            )
            for each in events:
                after = each.id
                data = EventModel.model_validate(each).model_dump_json()
                yield f"id: {each.id}\nevent: {each.kind}\ndata: {data}\n\n"
            quiet = 0 if events else quiet + 1
            if quiet >= _KEEP_ALIVE_ROUNDS:
                quiet = 0
                yield ": nothing new\n\n"
            if len(events) < _BATCH:
                await _pause(deps.stopping)
    finally:
        deps.streams[request.person.id] -= 1


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_INTERVAL):
            await stopping.wait()
    except TimeoutError:
        pass
