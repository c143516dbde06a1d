"""Web sockets of open pages: receives input and pushes updates."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import InboxPort
from bot.transports.web import frames
from bot.transports.web.access import get_session_id
from bot.transports.web.files import WebFileStore
from bot.transports.web.pages import negotiate_language
from bot.transports.web.ports import (
    LOCAL_PLACE,
    LOCAL_SENDER,
    ShownCard,
    WebAlertReader,
    WebHistoryReader,
)
from bot.transports.web.sessions import WebSessionService
from cards.catalog import TextCatalog, catalog_for
from storage.errors import StorageError
from storage.records.messages import (
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    MessageSender,
    OutboxId,
    RemoteFile,
)
from storage.records.people import Channel, Language

_SEND_INTERVAL = 0.1
_BYTES_A_SECOND = 500_000
_MAX_PENDING = 1_000
_MAX_REMEMBERED = 1_000


class SlowPage(Exception):
    """A page that stopped reading; it is disconnected and catches up when it reconnects."""


class WebTab:
    """Updates waiting for one page, the latest per key. The first is sent at once, further ones in
    batches after a pause that grows with their number. `close` ends the connection; `session` is
    that of the browser, empty for a program with the token."""

    def __init__(
        self,
        words: TextCatalog,
        sleep: Callable[[float], Awaitable[None]],
        *,
        session: str = "",
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.words = words
        self.session = session
        self.close = close
        self._sleep = sleep
        self._pending: dict[str, frames.PageUpdate] = {}
        self._has_updates = asyncio.Event()

    def push(self, key: str, shown: frames.PageUpdate) -> None:
        self._pending.pop(key, None)
        self._pending[key] = shown
        self._has_updates.set()

    async def feed(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send updates until cancelled. Raises SlowPage if too many are waiting."""
        while True:
            await self._has_updates.wait()
            if len(self._pending) > _MAX_PENDING:
                raise SlowPage
            batch = list(self._pending.values())
            self._pending.clear()
            self._has_updates.clear()
            # In a thread: a very long answer takes a noticeable part of a second.
            texts = await asyncio.to_thread(_encode_frames, batch, self.words)
            for text in texts:
                await send(text)
            await self._sleep(_SEND_INTERVAL + sum(map(len, texts)) / _BYTES_A_SECOND)


class WebTabs:
    """All open pages, and the latest revision of each card; older ones are never shown."""

    def __init__(self) -> None:
        self._open: set[WebTab] = set()
        self._newest = LimitedDict[OutboxId, int](_MAX_REMEMBERED)
        self._partials = LimitedDict[OutboxId, frames.PartialAnswer](_MAX_REMEMBERED)

    @property
    def has_pages(self) -> bool:
        return bool(self._open)

    @property
    def sessions(self) -> frozenset[str]:
        """The sessions of the browsers with open pages."""
        return frozenset(each.session for each in self._open if each.session)

    @property
    def partials(self) -> Sequence[frames.PartialAnswer]:
        """The answers that are being streamed."""
        return tuple(self._partials.values())

    def add(self, tab: WebTab) -> None:
        self._open.add(tab)
        for partial in self._partials.values():
            tab.push(frames.card_element_id(partial.outbox_id), partial)

    def remove(self, tab: WebTab) -> None:
        self._open.discard(tab)

    def close_sessions(self, ended: Collection[str]) -> None:
        """Close the pages of these sessions; they receive nothing more."""
        for tab in [each for each in self._open if each.session in ended]:
            self.remove(tab)
            tab.close()

    def show(self, shown: ShownCard) -> None:
        if shown.revision < self._newest.get(shown.outbox_id, 0):
            return
        self._newest[shown.outbox_id] = shown.revision
        self._partials.pop(shown.outbox_id, None)
        self._push_update(frames.card_element_id(shown.outbox_id), shown)

    def show_newer(self, shown: ShownCard) -> None:
        """Show the revision, unless this or a later one was shown, or an unfinished answer is being
        shown on top of it.
        """
        partial = self._partials.get(shown.outbox_id)
        covered = 0 if partial is None else partial.revision
        if shown.revision > max(covered, self._newest.get(shown.outbox_id, 0)):
            self.show(shown)

    def show_partial(self, partial: frames.PartialAnswer) -> None:
        if partial.revision < self._newest.get(partial.outbox_id, 0):
            return
        self._partials[partial.outbox_id] = partial
        self._push_update(frames.card_element_id(partial.outbox_id), partial)

    def show_user_message(self, message: IncomingMessage) -> None:
        self._push_update(f"said-{message.message_id}", message)

    def show_working(self) -> None:
        self._push_update("working", frames.PageSignal(frame={"type": "working"}))

    def push_to_all(self, key: str, frame: Callable[[TextCatalog], frames.OutboundFrame]) -> None:
        """Push the frame to every page, built in the page's language."""
        for tab in self._open:
            tab.push(key, frames.PageSignal(frame=frame(tab.words)))

    def _push_update(self, key: str, shown: frames.PageUpdate) -> None:
        for tab in self._open:
            tab.push(key, shown)


def _encode_frames(batch: list[frames.PageUpdate], words: TextCatalog) -> list[str]:
    return [json.dumps(frames.render_frame(shown, words), ensure_ascii=False) for shown in batch]


_log = logging.getLogger(__name__)
_PAGE_ITEMS = 100
_PRESS_WAIT = 2.5
_REFUSALS = {"say": "web.not_stored", "press": "web.not_pressed", "older": "web.not_read"}
_TRY_AGAIN_LATER = 1013
_POLICY_VIOLATION = 1008


class _PageGone(Exception):
    """The page has closed its socket."""


class _SessionEnded(Exception):
    """The page's session has ended."""


class _UploadGone(Exception):
    """An attached upload no longer exists."""


@dataclass(kw_only=True)
class PageConnectionHandler:
    """State shared by the sockets of all pages. `on_language` is told each page's language.
    `store_failing` means that the last message could not be stored."""

    inbox: InboxPort
    history: WebHistoryReader
    alerts: WebAlertReader
    tabs: WebTabs
    files: WebFileStore
    sessions: WebSessionService
    default_language: Language | None
    on_language: Callable[[Language], Awaitable[None]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    spawn: Callable[[Coroutine[object, object, None]], None]
    store_failing: bool = False

    async def serve_socket(self, socket: WebSocket) -> None:
        """Serve one page until it disconnects."""
        await socket.accept()
        language = negotiate_language(socket, self.default_language)
        tab = WebTab(
            catalog_for(language),
            self.sleep,
            session=get_session_id(socket),
            close=lambda: self.spawn(self._end(feeding, socket)),
        )
        feeding = asyncio.create_task(self._feed(tab, socket), name="web-feed")
        self.tabs.add(tab)
        try:
            await self._check_session(tab)
            await self._send_initial(tab)
            await self._receive_frames(tab, socket)
        except _PageGone:
            pass
        except _SessionEnded:
            await self._end(feeding, socket)
        finally:
            self.tabs.remove(tab)
            feeding.cancel()
            await asyncio.wait([feeding])

    def alerts_frame(self, words: TextCatalog) -> frames.OutboundFrame:
        return {"type": "alerts", "lines": list(self.alerts.describe(words))}

    async def _feed(self, tab: WebTab, socket: WebSocket) -> None:
        try:
            await tab.feed(socket.send_text)
        except SlowPage:
            await socket.close(_TRY_AGAIN_LATER)
        except (WebSocketDisconnect, RuntimeError):
            # Starlette's error for a closed page; the receiving side ends too.
            pass

    async def _end(self, feeding: asyncio.Task[None], socket: WebSocket) -> None:
        """End the connection; nothing more is sent, not even frames in progress."""
        feeding.cancel()
        await asyncio.wait([feeding])
        # Starlette's error for a closed page.
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(_POLICY_VIOLATION)

    async def _check_session(self, tab: WebTab) -> None:
        """Raises _SessionEnded if the session has ended, also by another process, and _PageGone if
        the store cannot tell.
        """
        if not tab.session:
            return
        try:
            is_live = await self.sessions.is_live(tab.session)
        except StorageError as problem:
            _log.exception("cannot look up the session of an open page")
            raise _PageGone from problem
        if not is_live:
            self.tabs.remove(tab)
            self.tabs.close_sessions({tab.session})
            raise _SessionEnded

    async def _send_initial(self, tab: WebTab) -> None:
        past = await self.history.read(LOCAL_PLACE, _PAGE_ITEMS)
        tab.push("past", frames.PastConversation(page=past))
        tab.push("alerts", frames.PageSignal(frame=self.alerts_frame(tab.words)))
        if not past.items:
            opened = IncomingChatOpen(place=LOCAL_PLACE, sender=_sender(tab))
            await self.inbox.accept(opened, dedupe="entry")
        try:
            await self.on_language(tab.words.language)
        except StorageError as problem:
            _log.warning("the language of a page cannot be stored: %s", problem)

    async def _receive_frames(self, tab: WebTab, socket: WebSocket) -> None:
        while True:
            try:
                raw = await socket.receive_text()
            except (WebSocketDisconnect, RuntimeError) as gone:
                # Starlette raises the second one if sending fails first.
                raise _PageGone from gone
            try:
                await self._check_session(tab)
                frame = frames.parse_frame(raw)
            except frames.WebFrameError as problem:
                _log.warning("the page sent something unknown: %.200r", problem)
                tab.push("bad", _toast_signal("", tab.words("web.bad_frame"), good=False))
                continue
            if isinstance(frame, frames.PressFrame):
                # Not awaited: a slow press must not delay further input or be cancelled when the
                # page closes.
                self.spawn(self._handle(frame, tab))
            else:
                await self._handle(frame, tab)

    async def _handle(self, frame: frames.PageFrame, tab: WebTab) -> None:
        try:
            match frame:
                case frames.SayFrame():
                    await self._say(frame, tab)
                case frames.PressFrame():
                    await self._press(frame, tab)
                case frames.OlderFrame(before=before):
                    older = await self.history.read(LOCAL_PLACE, _PAGE_ITEMS, before)
                    tab.push("older", frames.PastConversation(page=older, is_older=True))
                case _:
                    assert_never(frame)
        except _UploadGone:
            self._report_refusal(frame, tab, "web.upload_gone")
        except Exception:  # noqa: BLE001 - the boundary of one frame
            # Store errors (such as a full disk) are reported to the person and logged; the page
            # stays connected.
            _log.exception("could not store a %s from the web chat", frame.type)
            self._report_refusal(frame, tab, _REFUSALS[frame.type])
            self._alert_on_change("not_stored")
        else:
            self._alert_on_change("")

    def _alert_on_change(self, key: str) -> None:
        if self.store_failing != bool(key):
            self.store_failing = bool(key)
            self.inbox.alert(Channel.WEB, key)

    async def _say(self, frame: frames.SayFrame, tab: WebTab) -> None:
        message = IncomingMessage(
            place=LOCAL_PLACE,
            sender=_sender(tab),
            message_id=frame.id,
            text=frame.text,
            addressed=True,
            sent_at=self.now(),
            attachments=await self._load_uploads(frame),
        )
        stored = await self.inbox.accept(message, dedupe=frame.id)
        if stored is not None:
            self.tabs.show_user_message(message)
        tab.push(frame.id, frames.PageSignal(frame={"type": "stored", "id": frame.id}))

    async def _press(self, frame: frames.PressFrame, tab: WebTab) -> None:
        press = IncomingPress(
            place=LOCAL_PLACE,
            sender=_sender(tab),
            token=frame.token,
            message_id=frame.card,
            value=frame.value,
            form=frame.form,
        )
        toast = await self.inbox.press(press, dedupe=frame.id, wait_seconds=_PRESS_WAIT)
        tab.push(frame.id, _toast_signal(frame.id, toast.text, good=toast.good))

    async def _load_uploads(self, frame: frames.SayFrame) -> tuple[RemoteFile, ...]:
        found = [await self.files.get_upload(upload) for upload in frame.files]
        present = tuple(file for file in found if file is not None)
        if len(present) < len(found):
            raise _UploadGone
        return present

    def _report_refusal(self, frame: frames.PageFrame, tab: WebTab, key: str) -> None:
        text = tab.words(key)
        match frame:
            case frames.SayFrame(id=id_):
                frame_out = {"type": "refused", "id": id_, "text": text}
                tab.push(id_, frames.PageSignal(frame=frame_out))
            case frames.PressFrame(id=id_):
                tab.push(id_, _toast_signal(id_, text, good=False))
            case frames.OlderFrame():
                tab.push("older", _toast_signal("older", text, good=False))
            case _:
                assert_never(frame)


def _sender(tab: WebTab) -> MessageSender:
    return replace(LOCAL_SENDER, language=tab.words.language, web_session=tab.session)


def _toast_signal(id_: str, text: str, *, good: bool) -> frames.PageSignal:
    return frames.PageSignal(frame={"type": "toast", "id": id_, "text": text, "good": good})
