"""Button presses: hand them in, and always answer, or the person's client keeps waiting."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from telegram import (
    Bot,
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    Message,
)
from telegram.error import BadRequest, NetworkError, TelegramError

from bot.transports.base import Intake, Toast
from bot.transports.telegram.errors import reason
from bot.transports.telegram.incoming import read_place, read_sender, thread_of
from cards.render.telegram import CONFIRM_FIRST
from cards.words import Words, words_for
from storage.records.messages import PressIn
from storage.records.people import Language

_MOST_ANSWER = 200
_ANSWER_TRIES = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presses:
    """`patience` is how long the next poll may wait for handlers; slower ones go on behind."""

    bot: Bot
    intake: Intake
    patience: float

    async def take(self, query: CallbackQuery, background: asyncio.TaskGroup) -> None:
        """Hand one press in; what only the person waits for goes on in the background.

        Raises nothing but cancellation.
        """
        words = _words(query)
        if (query.data or "").endswith(CONFIRM_FIRST):
            work, name = self._ask_again(query, words), "telegram confirm"
        else:
            toast = await self._hand_in(query, words)
            work, name = self._answer(query, toast), "telegram answer"
        background.create_task(work, name=name)

    async def _hand_in(self, query: CallbackQuery, words: Words) -> Toast:
        failed = Toast(text=words("render.telegram.failed"), good=False)
        try:
            press = _read_press(query)
            if press is None:
                return failed
            return await self.intake.press(press, dedupe=query.id, patience=self.patience)
        except Exception:
            # Whatever went wrong behind the intake, the person must get an answer, and the
            # next press must get its turn.
            log.exception("A button press on Telegram failed")
            return failed

    async def _ask_again(self, query: CallbackQuery, words: Words) -> None:
        """Change the button so that the next press acts, and say so."""
        toast = Toast(text=words("render.telegram.failed"), good=False)
        message = query.message
        if isinstance(message, Message) and message.reply_markup:
            label, armed = _armed(message.reply_markup, query.data or "", words)
            toast = Toast(text=words("render.telegram.confirm", label=label))
            try:
                await self.bot.edit_message_reply_markup(
                    message.chat.id, message.message_id, reply_markup=armed
                )
            except BadRequest as error:
                log.debug("A button could not be armed: %s", error)  # pressed twice quickly
            except TelegramError as error:
                log.warning("A button could not be armed: %s", reason(error))
                toast = Toast(text=words("render.telegram.failed"), good=False)
        await self._answer(query, toast)

    async def _answer(self, query: CallbackQuery, toast: Toast) -> None:
        for _ in range(_ANSWER_TRIES):
            try:
                await self.bot.answer_callback_query(
                    query.id, toast.text[:_MOST_ANSWER] or None, show_alert=not toast.good
                )
            except BadRequest as error:
                log.debug("A press was answered too late: %s", error)
            except NetworkError as error:
                log.debug("Answering a press failed, trying again: %s", reason(error))
                continue
            except TelegramError as error:
                log.warning("A press could not be answered: %s", reason(error))
            return


def _read_press(query: CallbackQuery) -> PressIn | None:
    message = query.message
    if not query.data or message is None:
        return None
    thread = thread_of(message) if isinstance(message, Message) else ""
    place = read_place(message.chat, thread)
    if place is None:
        return None
    token, colon, index = query.data.partition(":")
    return PressIn(
        place=place,
        sender=read_sender(query.from_user),
        token=token,
        message_id=str(message.message_id),
        value=f"#{index}" if colon else "",
    )


def _armed(
    keyboard: InlineKeyboardMarkup, data: str, words: Words
) -> tuple[str, InlineKeyboardMarkup]:
    """The label of the button with this data, and the keyboard where it acts when pressed."""
    label = ""
    rows: list[list[InlineKeyboardButton]] = []
    for row in keyboard.inline_keyboard:
        rows.append([])
        for button in row:
            asked = button.callback_data == data
            label = button.text if asked else label
            rows[-1].append(_acting(button, data, words) if asked else button)
    return label, InlineKeyboardMarkup(rows)


def _acting(button: InlineKeyboardButton, data: str, words: Words) -> InlineKeyboardButton:
    return InlineKeyboardButton(
        words("render.telegram.sure", label=button.text),
        callback_data=data.removesuffix(CONFIRM_FIRST),
    )


def _words(query: CallbackQuery) -> Words:
    chinese = (query.from_user.language_code or "").lower().startswith("zh")
    return words_for(Language.CHINESE if chinese else Language.ENGLISH)
