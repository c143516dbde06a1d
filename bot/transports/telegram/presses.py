"""Button presses: hand them in, and always answer, or the person's client keeps waiting."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from telegram import (
    Bot,
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    MaybeInaccessibleMessage,
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

    async def take(self, query: CallbackQuery) -> None:
        """Handle one press to the end. Raises nothing but cancellation."""
        words = _words(query)
        toast = Toast(text=words("render.telegram.failed"), good=False)
        try:
            toast = await self._handle(query, words) or toast
        except Exception:
            # Whatever went wrong behind the intake, the person must get an answer, and the
            # next press must get its turn.
            log.exception("A button press on Telegram failed")
        await self._answer(query, toast)

    async def _handle(self, query: CallbackQuery, words: Words) -> Toast | None:
        data, message = query.data or "", query.message
        if not data or message is None:
            return None
        if data.endswith(CONFIRM_FIRST):
            return await self._ask_again(data, message, words)
        press = _read_press(query, data, message)
        if press is None:
            return None
        return await self.intake.press(press, dedupe=query.id, patience=self.patience)

    async def _ask_again(
        self, data: str, message: MaybeInaccessibleMessage, words: Words
    ) -> Toast | None:
        """Change the button so that the next press acts."""
        if not isinstance(message, Message) or message.reply_markup is None:
            return None
        label = ""
        rows: list[list[InlineKeyboardButton]] = []
        for row in message.reply_markup.inline_keyboard:
            rows.append([])
            for button in row:
                asked = button.callback_data == data
                label = button.text if asked else label
                rows[-1].append(_armed(button, data, words) if asked else button)
        try:
            await self.bot.edit_message_reply_markup(
                message.chat.id, message.message_id, reply_markup=InlineKeyboardMarkup(rows)
            )
        except BadRequest as error:
            log.debug("A button could not be armed: %s", error)  # pressed twice quickly
        return Toast(text=words("render.telegram.confirm", label=label))

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


def _read_press(
    query: CallbackQuery, data: str, message: MaybeInaccessibleMessage
) -> PressIn | None:
    thread = thread_of(message) if isinstance(message, Message) else ""
    place = read_place(message.chat, thread)
    if place is None:
        return None
    token, colon, index = data.partition(":")
    return PressIn(
        place=place,
        sender=read_sender(query.from_user),
        token=token,
        message_id=str(message.message_id),
        value=f"#{index}" if colon else "",
    )


def _armed(button: InlineKeyboardButton, data: str, words: Words) -> InlineKeyboardButton:
    return InlineKeyboardButton(
        words("render.telegram.sure", label=button.text),
        callback_data=data.removesuffix(CONFIRM_FIRST),
    )


def _words(query: CallbackQuery) -> Words:
    chinese = (query.from_user.language_code or "").lower().startswith("zh")
    return words_for(Language.CHINESE if chinese else Language.ENGLISH)
