"""One page's socket: what it says goes to the intake, what is to be shown goes to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.transports.base import Intake
from bot.transports.web.files import FileStore
from bot.transports.web.frames import Past, Signal
from bot.transports.web.language import language_of
from bot.transports.web.ports import PLACE, SENDER, Alerts, History
from bot.transports.web.tabs import SlowPage, Tab, Tabs
from bot.transports.web.wire import BadFrame, PageFrame, PressFrame, SayFrame, parse
from cards.words import words_for
from storage.records.messages import EntryIn, MessageIn, PressIn, RemoteFile
from storage.records.people import Channel, Language

_log = logging.getLogger(__name__)
_SHOWN_AT_FIRST = 100
_PATIENCE = 2.5
_TRY_AGAIN_LATER = 1013


class _Gone(Exception):
    """The page has closed its socket, or broke off."""


class _FileGone(Exception):
    """An attached upload is not there."""


@dataclass(kw_only=True)
class Conversation:
    """What all pages' sockets share. `troubled` remembers that the last message was not stored."""

    intake: Intake
    history: History
    alerts: Alerts | None
    tabs: Tabs
    files: FileStore
    usual: Language | None
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    spawn: Callable[[Coroutine[object, object, None]], None]
    troubled: bool = False

    async def socket(self, socket: WebSocket) -> None:
        """Serve one page until it goes."""
        await socket.accept()
        language = language_of(socket, self.usual)
        tab = Tab(words_for(language), self.sleep)
        self.tabs.join(tab)
        feeding = asyncio.create_task(self._feed(tab, socket), name="web-feed")
        try:
            await self._greet(tab)
            await self._listen(tab, socket)
        except _Gone:
            pass
        finally:
            self.tabs.leave(tab)
            feeding.cancel()
            await asyncio.wait([feeding])

    async def _feed(self, tab: Tab, socket: WebSocket) -> None:
        try:
            await tab.feed(socket.send_text)
        except SlowPage:
            await socket.close(_TRY_AGAIN_LATER)
        except (WebSocketDisconnect, RuntimeError):
            # Starlette's way to say that the page went away meanwhile; the listener ends too.
            pass

    async def _greet(self, tab: Tab) -> None:
        past = tuple(await self.history.recent(PLACE, _SHOWN_AT_FIRST))
        tab.push("past", Past(items=past))
        if self.alerts is not None:
            lines = list(self.alerts.lines(tab.words))
            tab.push("alerts", Signal(frame={"type": "alerts", "lines": lines}))
        if not past:
            sender = replace(SENDER, language=tab.words.language)
            await self.intake.accept(EntryIn(place=PLACE, sender=sender), dedupe="entry")

    async def _listen(self, tab: Tab, socket: WebSocket) -> None:
        while True:
            try:
                raw = await socket.receive_text()
            except (WebSocketDisconnect, RuntimeError) as gone:
                # The second is Starlette's word for it where sending noticed it first.
                raise _Gone from gone
            try:
                frame = parse(raw)
            except BadFrame as problem:
                _log.warning("the page sent something unknown: %.200r", problem)
                tab.push("bad", _toast("", tab.words("web.bad_frame"), good=False))
                continue
            if isinstance(frame, PressFrame):
                # Not awaited here: a slow press must not hold up what is typed meanwhile, and
                # must not be cut short when the page is closed.
                self.spawn(self._handle(frame, tab))
            else:
                await self._handle(frame, tab)

    async def _handle(self, frame: PageFrame, tab: Tab) -> None:
        try:
            match frame:
                case SayFrame():
                    await self._say(frame, tab)
                case PressFrame():
                    await self._press(frame, tab)
                case _:
                    assert_never(frame)
        except _FileGone:
            self._refuse(frame, tab, "web.upload_gone")
        except Exception:  # noqa: BLE001 - the boundary of one frame
            # Whatever the store may raise (a full disk, say) must reach the person and the
            # log, and leave the page connected.
            _log.exception("could not take in a %s from the web chat", frame.type)
            said = isinstance(frame, SayFrame)
            self._refuse(frame, tab, "web.not_stored" if said else "web.not_pressed")
            self._alert("not_stored")
        else:
            self._alert("")

    def _alert(self, key: str) -> None:
        if self.troubled != bool(key):
            self.troubled = bool(key)
            self.intake.alert(Channel.WEB, key)

    async def _say(self, frame: SayFrame, tab: Tab) -> None:
        message = MessageIn(
            place=PLACE,
            sender=replace(SENDER, language=tab.words.language),
            message_id=frame.id,
            text=frame.text,
            addressed=True,
            sent_at=self.now(),
            attachments=await self._attached(frame),
        )
        stored = await self.intake.accept(message, dedupe=frame.id)
        if stored is not None:
            self.tabs.show_said(message)
        tab.push(frame.id, Signal(frame={"type": "stored", "id": frame.id}))

    async def _press(self, frame: PressFrame, tab: Tab) -> None:
        press = PressIn(
            place=PLACE,
            sender=replace(SENDER, language=tab.words.language),
            token=frame.token,
            message_id=frame.card,
            value=frame.value,
            form=frame.form,
        )
        toast = await self.intake.press(press, dedupe=frame.id, patience=_PATIENCE)
        tab.push(frame.id, _toast(frame.id, toast.text, good=toast.good))

    async def _attached(self, frame: SayFrame) -> tuple[RemoteFile, ...]:
        found = [await self.files.uploaded(upload) for upload in frame.files]
        present = tuple(file for file in found if file is not None)
        if len(present) < len(found):
            raise _FileGone
        return present

    def _refuse(self, frame: PageFrame, tab: Tab, key: str) -> None:
        text = tab.words(key)
        match frame:
            case SayFrame(id=id_):
                frame_out = {"type": "refused", "id": id_, "text": text}
                tab.push(id_, Signal(frame=frame_out))
            case PressFrame(id=id_):
                tab.push(id_, _toast(id_, text, good=False))
            case _:
                assert_never(frame)


def _toast(id_: str, text: str, *, good: bool) -> Signal:
    return Signal(frame={"type": "toast", "id": id_, "text": text, "good": good})
