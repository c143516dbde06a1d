"""Delivers a message to Telegram: sends new parts, edits changed ones and deletes surplus ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from telegram.error import BadRequest, TelegramError

from bot.transports.files import FileUnsendable, read_file
from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import DeliveryResult, FileTooLarge, OutboundMessage
from bot.transports.telegram.api import translate_error
from bot.transports.telegram.messages import (
    MAX_UPLOAD_BYTES,
    TelegramSender,
    TelegramShownMessage,
    TelegramTarget,
    TelegramUpload,
    parse_placed,
    part_digest,
    to_placed,
)
from bot.transports.telegram.streaming import TelegramStreams
from cards.catalog import TextCatalog, catalog_for
from cards.render.telegram import MAX_CAPTION, FilePart, MessagePart, PhotoPart, TextPart, render
from storage.records.messages import MessagePlacement, OutboxId
from storage.records.people import Chat

_MAX_ALBUM_SIZE = 10
_MAX_REMEMBERED = 1000


class TelegramDelivery:
    """Delivers messages; one that failed halfway continues where it stopped, using the remembered
    parts."""

    def __init__(self, sender: TelegramSender, streams: TelegramStreams, home: Path) -> None:
        self._sender = sender
        self._streams = streams
        self._home = home
        self._partial_deliveries = LimitedDict[OutboxId, tuple[TelegramShownMessage, ...]](
            _MAX_REMEMBERED
        )

    async def deliver(self, message: OutboundMessage) -> DeliveryResult:
        """As `Transport.deliver`."""
        words = catalog_for(message.language)
        touched = await self._streams.finish(message.outbox_id)
        # In a thread, since a long text would block the event loop.
        card = await asyncio.to_thread(render, message.card, words)
        target = get_target(message.chat, message.reply_to if message.placed is None else "")
        stored = parse_placed(message.placed, target.chat)
        shown = self._partial_deliveries.get(message.outbox_id, stored) or stored
        known = {one.message_id for one in shown}
        # Copies that turned up after the delivery had failed.
        shown = (*shown, *(o for o in stored if not o.digest and o.message_id not in known))
        work = _DeliveryRun(
            sender=self._sender,
            home=self._home,
            words=words,
            target=target,
            shown=list(_mark_streamed(shown, touched)),
            repeat=message.repeat,
            notes=list(card.degraded),
            save_progress=message.on_part if len(card.parts) > 1 else None,
        )
        try:
            left = await work.show(card.parts, files_only=message.files_only)
        except TelegramError as error:
            self._partial_deliveries[message.outbox_id] = tuple(work.shown)
            raise translate_error(error, repeatable=work.editing) from error
        self._partial_deliveries.pop(message.outbox_id, None)
        notes = tuple(dict.fromkeys(work.notes))
        placed = to_placed(work.shown)
        return DeliveryResult(placed=placed, degraded=notes, files_left=left)


def get_target(chat: Chat, reply_to: str = "") -> TelegramTarget:
    return TelegramTarget(
        chat=int(chat.external_id),
        thread=int(chat.thread) if chat.thread else None,
        reply_to=int(reply_to) if reply_to.isdecimal() else None,
    )


def _mark_streamed(
    shown: tuple[TelegramShownMessage, ...], streamed: TelegramShownMessage | None
) -> tuple[TelegramShownMessage, ...]:
    """Return the shown messages after a stream. A streamed text lacks the note that it may be there
    twice, so a message that needs the note is marked for an edit."""
    if streamed is None:
        return shown
    if all(one.message_id != streamed.message_id for one in shown):
        return (streamed, *shown)
    return tuple(
        _after_stream(one, streamed) if one.message_id == streamed.message_id else one
        for one in shown
    )


def _after_stream(
    before: TelegramShownMessage, streamed: TelegramShownMessage
) -> TelegramShownMessage:
    return streamed if before.kind == streamed.kind else replace(before, digest="")


@dataclass(slots=True, kw_only=True)
class _DeliveryRun:
    """Delivery of one message. `shown` is correct at any time, also after a failure."""

    sender: TelegramSender
    home: Path
    words: TextCatalog
    target: TelegramTarget
    shown: list[TelegramShownMessage]
    repeat: bool
    notes: list[str]
    save_progress: Callable[[MessagePlacement], Awaitable[None]] | None = None
    editing: bool = field(default=False)

    async def show(self, parts: Sequence[MessagePart], *, files_only: bool) -> int:
        """Show the texts, or one group of files; returns the size of the next group."""
        texts = [part for part in parts if isinstance(part, TextPart)]
        others = [part for part in parts if not isinstance(part, TextPart)]
        if not files_only:
            await self._show_texts(texts)
            await self._remove_old_files(others)
        groups = list(_group_files(self._missing_files(others)))
        if groups and (files_only or not texts):
            await self._send_files(groups.pop(0))
        return len(groups[0]) if groups else 0

    async def _show_texts(self, texts: Sequence[TextPart]) -> None:
        there = [one for one in self.shown if one.is_text]
        for i, part in enumerate(texts):
            if i >= len(there) or not await self._edit_text(there[i], part):
                await self._send_text(part, replaced=there[i] if i < len(there) else None)
        for extra in there[len(texts) :]:
            await self._remove(extra)

    async def _edit_text(self, old: TelegramShownMessage, part: TextPart) -> bool:
        """Edit a message unless it is up to date; False if it is gone."""
        if old.digest == part_digest(part):
            return True
        self.editing = True
        text = self._with_repeat_notice(part, is_repeat=old.kind == "repeat")
        done = self._is_in_current_chat(old) and await self.sender.edit_text(
            self.target, int(old.message_id), text, self.notes
        )
        self.editing = False
        if done:
            self.shown[self.shown.index(old)] = replace(old, digest=part_digest(part))
        else:
            self.notes.append("edit: the message is gone, sent anew")
        return done

    async def _send_text(self, part: TextPart, replaced: TelegramShownMessage | None) -> None:
        text = self._with_repeat_notice(part, is_repeat=self.repeat)
        sent = await self.sender.send_text(self.target, text, self.notes)
        self._record_sent(sent, part, replaced)
        await self._save_progress()

    def _with_repeat_notice(self, part: TextPart, *, is_repeat: bool) -> TextPart:
        """Add a note that the message may be a duplicate, if it may; edits keep it."""
        if not is_repeat:
            return part
        line = f"{self.words('render.telegram.repeat')}\n\n"
        moved = tuple(
            replace(mark, offset=mark.offset + len(line.encode("utf-16-le")) // 2)
            for mark in part.marks
        )
        return replace(part, text=line + part.text, marks=moved)

    async def _remove_old_files(self, parts: Sequence[PhotoPart | FilePart]) -> None:
        digests = {part_digest(part) for part in parts}
        for old in [one for one in self.shown if not one.is_text]:
            if old.digest not in digests:
                await self._remove(old)

    def _missing_files(self, parts: Sequence[PhotoPart | FilePart]) -> list[PhotoPart | FilePart]:
        known = {one.digest for one in self.shown if not one.is_text}
        return [part for part in parts if part_digest(part) not in known]

    async def _send_files(self, group: Sequence[PhotoPart | FilePart]) -> None:
        loaded = [(part, await self._load_file(part)) for part in group]
        photos = isinstance(group[0], PhotoPart)
        uploads = [
            (upload, self._caption(part) if i == 0 else _own_caption(part))
            for i, (part, upload) in enumerate(loaded)
            if isinstance(upload, TelegramUpload) and (upload.fits_photo or not photos)
        ]
        if len(uploads) == len(loaded) > 1:
            try:
                ids = await self.sender.send_album(self.target, uploads, self.notes, photos=photos)
            except BadRequest:
                self.notes.append("album: refused, sent one by one")
            else:
                for (part, _), sent in zip(loaded, ids, strict=True):
                    self._record_sent(sent, part)
                await self._save_progress()
                return
        for part, upload in loaded:
            self._record_sent(await self._send_file(part, upload), part)
            await self._save_progress()

    async def _send_file(
        self, part: PhotoPart | FilePart, upload: TelegramUpload | TextPart
    ) -> int:
        if isinstance(upload, TextPart):
            return await self.sender.send_text(self.target, upload, self.notes)
        caption = self._caption(part)
        if isinstance(part, PhotoPart):
            return await self.sender.send_photo(self.target, upload, caption, self.notes)
        return await self.sender.send_document(self.target, upload, caption, self.notes)

    def _caption(self, part: PhotoPart | FilePart) -> str:
        caption = _own_caption(part)
        if not self.repeat:
            return caption
        return f"{self.words('render.telegram.repeat')}\n{caption}".strip()[:MAX_CAPTION]

    async def _load_file(self, part: PhotoPart | FilePart) -> TelegramUpload | TextPart:
        """The file, or a text that explains why it is missing."""
        name = part.name if isinstance(part, FilePart) else ""
        shown = name or part.path.rpartition("/")[2]
        try:
            content = await asyncio.to_thread(read_file, self.home, part.path, MAX_UPLOAD_BYTES)
            return TelegramUpload(name=shown, content=content)
        except FileUnsendable:
            self.notes.append("file: missing")
            return TextPart(text=self.words("render.telegram.missing_file", name=shown))
        except FileTooLarge:
            self.notes.append("file: too large")
            limit = MAX_UPLOAD_BYTES // 1024 // 1024
            words = self.words(
                "render.telegram.large_file", name=shown, limit=limit, path=part.path
            )
            return TextPart(text=words)

    async def _remove(self, old: TelegramShownMessage) -> None:
        self.editing = True
        if self._is_in_current_chat(old):
            await self.sender.delete_message(self.target, int(old.message_id))
        self.editing = False
        self.shown.remove(old)

    def _is_in_current_chat(self, old: TelegramShownMessage) -> bool:
        return old.chat == self.sender.current_chat(self.target.chat)

    async def _save_progress(self) -> None:
        """Store the parts sent so far, so that a crash does not repeat them."""
        if self.save_progress is not None:
            await self.save_progress(to_placed(self.shown))

    def _record_sent(
        self, message_id: int, part: MessagePart, replaced: TelegramShownMessage | None = None
    ) -> None:
        """Only the first part replies to a message and carries the duplicate note."""
        self.target = replace(self.target, reply_to=None)
        text = "repeat" if self.repeat else "text"
        self.repeat = False
        new = TelegramShownMessage(
            message_id=str(message_id),
            chat=self.sender.current_chat(self.target.chat),
            digest=part_digest(part),
            kind=text if isinstance(part, TextPart) else "file",
        )
        if replaced is not None:
            self.shown[self.shown.index(replaced)] = new
        else:
            self.shown.append(new)


def _own_caption(part: PhotoPart | FilePart) -> str:
    return part.caption if isinstance(part, PhotoPart) else ""


def _group_files(parts: Sequence[PhotoPart | FilePart]) -> Iterator[list[PhotoPart | FilePart]]:
    """Group neighbours of one kind, as many as fit an album: in bytes what one upload may have."""
    group: list[PhotoPart | FilePart] = []
    size = 0
    for part in parts:
        heavy = part.size if isinstance(part, FilePart) else 0
        together = group and type(part) is type(group[-1]) and size + heavy <= MAX_UPLOAD_BYTES
        if group and not (together and len(group) < _MAX_ALBUM_SIZE):
            yield group
            group, size = [], 0
        group.append(part)
        size += heavy
    if group:
        yield group
