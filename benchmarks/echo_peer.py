"""The peer of `reply_overhead`: the smallest bot that python-telegram-bot can be."""

from __future__ import annotations

import sys

from telegram import Update
from telegram.ext import Application, ContextTypes, MessageHandler, filters


async def echo(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
    if update.message and update.message.text:
        await update.message.reply_text(update.message.text)


def main(token: str, base_url: str) -> None:
    app = Application.builder().token(token).base_url(f"{base_url}/bot").build()
    app.add_handler(MessageHandler(filters.TEXT, echo))
    app.run_polling(stop_signals=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
