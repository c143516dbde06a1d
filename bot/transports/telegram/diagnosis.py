"""Diagnoses the Telegram channel: token, webhook, privacy mode, and rights in each group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.records.autonomy import HealthFinding
from storage.records.people import Chat

if TYPE_CHECKING:
    from telegram import Bot

_REQUEST_SECONDS = 15.0
_MAX_GROUPS = 20
_MUCH_WAITING = 50
DELETE_WEBHOOK = "delete_webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramDiagnosis:
    """A self-check. It asks Telegram by connections of its own, also while the channel runs."""

    name = "telegram"

    token: str
    base_url: str
    groups: Callable[[], Awaitable[Sequence[Chat]]]

    async def find(self) -> Sequence[HealthFinding]:
        # Loaded with the first diagnosis, since nothing else may need it.
        from telegram.error import InvalidToken, TelegramError

        from bot.transports.telegram.api import describe_failure

        async with AsyncExitStack() as stack:
            bot = await self._open(stack)
            try:
                return [*await self._diagnose_bot(bot), *await self._diagnose_groups(bot)]
            except InvalidToken:
                return [HealthFinding(text="telegram_token", points=60)]
            except TelegramError as error:
                facts = {"reason": describe_failure(error)}
                return [HealthFinding(text="telegram_unreachable", points=40, facts=facts)]

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        async with AsyncExitStack() as stack:
            bot = await self._open(stack)
            return int(await bot.delete_webhook())

    async def _open(self, stack: AsyncExitStack) -> Bot:
        from bot.transports.telegram.api import open_telegram_client

        client = await open_telegram_client(
            stack, token=self.token, base_url=self.base_url, request_seconds=_REQUEST_SECONDS
        )
        return client.bot

    async def _diagnose_bot(self, bot: Bot) -> Sequence[HealthFinding]:
        me = await bot.get_me()
        found = [HealthFinding(text="telegram_bot", points=0, facts={"name": f"@{me.username}"})]
        hook = await bot.get_webhook_info()
        if hook.url:
            found.append(HealthFinding(text="telegram_webhook", points=40, repair=DELETE_WEBHOOK))
        if hook.pending_update_count > _MUCH_WAITING:
            facts = {"n": hook.pending_update_count}
            found.append(HealthFinding(text="telegram_backlog", points=10, facts=facts))
        if not me.can_join_groups:
            found.append(HealthFinding(text="telegram_no_groups", points=0))
        text = "telegram_reads_all" if me.can_read_all_group_messages else "telegram_privacy"
        return [*found, HealthFinding(text=text, points=0)]

    async def _diagnose_groups(self, bot: Bot) -> Sequence[HealthFinding]:
        return [
            finding
            for chat in (await self.groups())[:_MAX_GROUPS]
            if (finding := await _diagnose_group(bot, chat)) is not None
        ]


async def _diagnose_group(bot: Bot, chat: Chat) -> HealthFinding | None:
    """The right that the bot lacks in the group; None if it may write."""
    from telegram import ChatMemberRestricted
    from telegram.error import BadRequest, Forbidden

    facts = {"title": chat.title or chat.external_id}
    try:
        member = await bot.get_chat_member(chat.external_id, bot.id)
    except (BadRequest, Forbidden):
        return HealthFinding(text="telegram_left", subject=chat.id, points=5, facts=facts)
    if member.status in {member.LEFT, member.BANNED}:
        return HealthFinding(text="telegram_left", subject=chat.id, points=5, facts=facts)
    if isinstance(member, ChatMemberRestricted) and not member.can_send_messages:
        return HealthFinding(text="telegram_muted", subject=chat.id, points=10, facts=facts)
    return None
