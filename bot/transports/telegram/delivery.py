"""Letters to messages: what is new is sent, what changed is edited, what is over is deleted."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from telegram.error import BadRequest, TelegramError

from bot.transports.base import Delivery, Letter, TooLarge
from bot.transports.telegram.errors import translate
from bot.transports.telegram.files import MAX_UPLOAD, FileMissing, Upload, load
from bot.transports.telegram.placement import Shown, as_placed, read_placed
from bot.transports.telegram.sending import Sender, Target
from bot.transports.telegram.streaming import Streams
from cards.render.telegram import MAX_CAPTION, FilePart, Part, PhotoPart, TextPart, render
from cards.words import Words, words_for
from storage.records.messages import OutboxId, Placed
from storage.records.people import Chat

_ALBUM = 10
_REMEMBERED = 1000


class Deliveries:
    """A letter of several messages that failed half-way goes on where it stopped: what is
    already shown is remembered until the whole letter is."""

    def __init__(self, sender: Sender, streams: Streams, home: Path) -> None:
        self._sender = sender
        self._streams = streams
        self._home = home
        self._half_done: OrderedDict[OutboxId, tuple[Shown, ...]] = OrderedDict()

    async def deliver(self, letter: Letter) -> Delivery:
        """As Transport.deliver: DeliveryError only."""
        words = words_for(letter.language)
        touched = await self._streams.finish(letter.outbox_id)
        # A long text takes a noticeable time; the loop has better things to do.
        card = await asyncio.to_thread(render, letter.card, words)
        target = target_of(letter.chat, letter.reply_to if letter.placed is None else "")
        shown = self._half_done.get(letter.outbox_id) or read_placed(letter.placed, target.chat)
        work = _Work(
            sender=self._sender,
            home=self._home,
            words=words,
            target=target,
            shown=list(_with_stream(shown, touched)),
            repeat=letter.repeat,
            notes=list(card.degraded),
            keep=letter.on_part if len(card.parts) > 1 else None,
        )
        try:
            await work.show(card.parts)
        except TelegramError as error:
            self._remember(letter.outbox_id, work.shown)
            raise translate(error, repeatable=work.editing) from error
        self._half_done.pop(letter.outbox_id, None)
        notes = tuple(dict.fromkeys(work.notes))
        return Delivery(placed=as_placed(work.shown), degraded=notes)

    def _remember(self, outbox_id: OutboxId, shown: Sequence[Shown]) -> None:
        self._half_done[outbox_id] = tuple(shown)
        self._half_done.move_to_end(outbox_id)
        while len(self._half_done) > _REMEMBERED:
            self._half_done.popitem(last=False)


def target_of(chat: Chat, reply_to: str = "") -> Target:
    return Target(
        chat=int(chat.external_id),
        thread=int(chat.thread) if chat.thread else None,
        reply_to=int(reply_to) if reply_to.isdecimal() else None,
    )


def _with_stream(shown: tuple[Shown, ...], touched: Shown | None) -> tuple[Shown, ...]:
    """What a stream wrote into a message is not what was last delivered there."""
    if touched is None:
        return shown
    if all(one.message_id != touched.message_id for one in shown):
        return (touched, *shown)
    return tuple(touched if one.message_id == touched.message_id else one for one in shown)


@dataclass(slots=True, kw_only=True)
class _Work:
    """One letter on its way. `shown` is the truth at every moment, failures included."""

    sender: Sender
    home: Path
    words: Words
    target: Target
    shown: list[Shown]
    repeat: bool
    notes: list[str]
    keep: Callable[[Placed], Awaitable[None]] | None = None
    editing: bool = field(default=False)

    async def show(self, parts: Sequence[Part]) -> None:
        texts = [part for part in parts if isinstance(part, TextPart)]
        others = [part for part in parts if not isinstance(part, TextPart)]
        await self._show_texts(texts)
        await self._show_files(others)

    async def _show_texts(self, texts: Sequence[TextPart]) -> None:
        there = [one for one in self.shown if one.is_text]
        for i, part in enumerate(texts):
            if i >= len(there) or not await self._change(there[i], part):
                await self._send_text(part, instead=there[i] if i < len(there) else None)
        for extra in there[len(texts) :]:
            await self._remove(extra)

    async def _change(self, old: Shown, part: TextPart) -> bool:
        """Edit a message unless it shows this already; False if it is gone."""
        if old.digest == _digest(part):
            return True
        self.editing = True
        done = self._is_here(old) and await self.sender.edit(
            self.target, int(old.message_id), part, self.notes
        )
        self.editing = False
        if done:
            self.shown[self.shown.index(old)] = replace(old, digest=_digest(part))
        else:
            self.notes.append("edit: the message is gone, sent anew")
        return done

    async def _send_text(self, part: TextPart, instead: Shown | None) -> None:
        text = self._marked(part)
        sent = await self.sender.text(self.target, text, self.notes)
        self._sent(sent, part, instead)
        await self._kept()

    def _marked(self, part: TextPart) -> TextPart:
        """The part with a line that says it may be there twice, if it may."""
        if not self.repeat:
            return part
        line = f"{self.words('render.telegram.repeat')}\n\n"
        moved = tuple(
            replace(mark, offset=mark.offset + len(line.encode("utf-16-le")) // 2)
            for mark in part.marks
        )
        return replace(part, text=line + part.text, marks=moved)

    async def _show_files(self, parts: Sequence[PhotoPart | FilePart]) -> None:
        wanted = [(part, _digest(part)) for part in parts]
        digests = [digest for _, digest in wanted]
        there = [one for one in self.shown if not one.is_text]
        for old in there:
            if old.digest not in digests:
                await self._remove(old)
        known = {one.digest for one in there}
        missing = [part for part, digest in wanted if digest not in known]
        for group in _grouped(missing):
            await self._send_files(group)

    async def _send_files(self, group: Sequence[PhotoPart | FilePart]) -> None:
        loaded = [(part, await self._load(part)) for part in group]
        photos = [
            (upload, self._caption(part) if i == 0 else part.caption)
            for i, (part, upload) in enumerate(loaded)
            if isinstance(part, PhotoPart) and isinstance(upload, Upload) and upload.fits_photo
        ]
        if len(photos) == len(loaded) > 1:
            try:
                ids = await self.sender.album(self.target, photos, self.notes)
            except BadRequest:
                self.notes.append("album: refused, sent one by one")
            else:
                for (part, _), sent in zip(loaded, ids, strict=True):
                    self._sent(sent, part)
                await self._kept()
                return
        for part, upload in loaded:
            self._sent(await self._send_file(part, upload), part)
            await self._kept()

    async def _send_file(self, part: PhotoPart | FilePart, upload: Upload | TextPart) -> int:
        if isinstance(upload, TextPart):
            return await self.sender.text(self.target, upload, self.notes)
        caption = self._caption(part)
        if isinstance(part, PhotoPart):
            return await self.sender.photo(self.target, upload, caption, self.notes)
        return await self.sender.document(self.target, upload, caption, self.notes)

    def _caption(self, part: PhotoPart | FilePart) -> str:
        caption = part.caption if isinstance(part, PhotoPart) else ""
        if not self.repeat:
            return caption
        return f"{self.words('render.telegram.repeat')}\n{caption}".strip()[:MAX_CAPTION]

    async def _load(self, part: PhotoPart | FilePart) -> Upload | TextPart:
        """The file, or the sentence that says why there is none."""
        name = part.name if isinstance(part, FilePart) else ""
        shown = name or part.path.rpartition("/")[2]
        try:
            return await load(self.home, part.path, name)
        except FileMissing:
            self.notes.append("file: missing")
            return TextPart(text=self.words("render.telegram.missing_file", name=shown))
        except TooLarge:
            self.notes.append("file: too large")
            limit = MAX_UPLOAD // 1024 // 1024
            words = self.words(
                "render.telegram.large_file", name=shown, limit=limit, path=part.path
            )
            return TextPart(text=words)

    async def _remove(self, old: Shown) -> None:
        self.editing = True
        if self._is_here(old):
            await self.sender.delete(self.target, int(old.message_id))
        self.editing = False
        self.shown.remove(old)

    def _is_here(self, old: Shown) -> bool:
        return old.chat == self.sender.there(self.target.chat)

    async def _kept(self) -> None:
        """What is out is noted at once: a crash must not send it again."""
        if self.keep is not None:
            await self.keep(as_placed(self.shown))

    def _sent(self, message_id: int, part: Part, instead: Shown | None = None) -> None:
        """Something arrived: it answers the message replied to, and is marked, only once."""
        self.target = replace(self.target, reply_to=None)
        self.repeat = False
        new = Shown(
            message_id=str(message_id),
            chat=self.sender.there(self.target.chat),
            digest=_digest(part),
            kind="text" if isinstance(part, TextPart) else "file",
        )
        if instead is not None:
            self.shown[self.shown.index(instead)] = new
        else:
            self.shown.append(new)


def _grouped(parts: Sequence[PhotoPart | FilePart]) -> Iterator[list[PhotoPart | FilePart]]:
    """Neighbouring photos together, as many as an album takes; files alone."""
    group: list[PhotoPart | FilePart] = []
    for part in parts:
        together = isinstance(part, PhotoPart) and group and isinstance(group[-1], PhotoPart)
        if group and not (together and len(group) < _ALBUM):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _digest(part: Part) -> str:
    return hashlib.sha256(repr(part).encode("utf-8", "surrogatepass")).hexdigest()[:16]
