"""Keeps the chat platforms connected as the settings say, also when these change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.config.channels import CHANNEL_SETTINGS, is_configured
from bot.config.settings import Settings
from bot.engine.autonomy.check import SelfCheck, run_check
from bot.transports.ports import Transport
from bot.transports.quota import MonthlyQuota
from bot.transports.supervisor import ChannelSupervisor
from storage.records.autonomy import HealthFinding
from storage.records.people import Channel, Chat

_CHECK_SECONDS = 30.0
_FATAL = frozenset(
    {
        *("telegram_token", "telegram_unreachable"),
        *("feishu_credentials", "feishu_unreachable", "feishu_refuses"),
        *("check_slow", "check_raised"),
    }
)


@dataclass(kw_only=True, eq=False)
class LiveChannels:
    """`in_force` are the settings that the transports run with. `register_owners` records the
    configured owners of a platform that was connected; then `on_applied` is called."""

    in_force: Settings
    supervisor: ChannelSupervisor
    build: Callable[[Channel, Settings], Transport | None]
    register_owners: Callable[[Settings], Awaitable[None]]
    quota: MonthlyQuota
    on_applied: Callable[[], None] = lambda: None

    async def check(self, new: Settings) -> HealthFinding | None:
        """Call each platform that these settings would connect otherwise than now. Returns why one
        cannot be connected; nothing may be changed then."""
        for channel in CHANNEL_SETTINGS:
            if self._differs(channel, new) and is_configured(channel, new):
                probe = build_channel_check(channel, new, self.quota, groups=_no_groups)
                result = await run_check(probe, seconds=_CHECK_SECONDS)
                if (fatal := next(filter(is_fatal, result.findings), None)) is not None:
                    return fatal
        return None

    async def apply(self, settings: Settings) -> None:
        """Connect, connect anew or disconnect the platforms whose settings differ."""
        for channel in CHANNEL_SETTINGS:
            if self._differs(channel, settings):
                await self.supervisor.replace(channel, self.build(channel, settings))
        self.in_force = settings
        await self.register_owners(settings)
        self.on_applied()

    async def reconnect(self, channel: Channel) -> None:
        """With the same settings."""
        await self.supervisor.replace(channel, self.build(channel, self.in_force))

    def _differs(self, channel: Channel, new: Settings) -> bool:
        names = CHANNEL_SETTINGS[channel]
        return any(getattr(new, each) != getattr(self.in_force, each) for each in names)


def is_fatal(finding: HealthFinding) -> bool:
    """Whether a platform that is found so cannot be connected."""
    return finding.text in _FATAL


async def _no_tables() -> bool:
    return False


def build_channel_check(
    channel: Channel,
    settings: Settings,
    quota: MonthlyQuota,
    *,
    groups: Callable[[], Awaitable[Sequence[Chat]]],
    has_tables: Callable[[], Awaitable[bool]] = _no_tables,
) -> SelfCheck:
    """Calls a configured platform by connections of its own. `has_tables`: a Bitable is in use."""
    if channel is Channel.TELEGRAM:
        from bot.transports.telegram.diagnosis import TelegramDiagnosis

        return TelegramDiagnosis(
            token=settings.telegram_bot_token.get_secret_value(),
            base_url=settings.telegram_base_url,
            groups=groups,
        )
    from bot.transports.feishu.diagnosis import FeishuDiagnosis

    return FeishuDiagnosis(
        app_id=settings.feishu_app_id,
        app_secret=settings.feishu_app_secret.get_secret_value(),
        domain=settings.feishu_domain,
        quota=lambda: (quota.calls, quota.quota),
        on_call=quota.count,
        has_tables=has_tables,
        makes_documents=settings.results == "document",
    )


async def _no_groups() -> Sequence[Chat]:
    return ()
