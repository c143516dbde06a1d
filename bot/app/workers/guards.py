"""What workers may do, as the settings say: the judge of their calls, and the way to the web."""

from __future__ import annotations

from bot.config.settings import BadSettings, Settings
from bot.engine.agent.policy.closed import Closed, closed_by
from bot.engine.agent.policy.judge import Asking, Levels, Security
from bot.engine.agent.policy.policy import Policy
from bot.engine.agent.policy.rules import BadRule, Rule, Rules, parse_rules
from bot.engine.agent.web.addresses import BadPrivate, Private, private_of
from bot.engine.agent.web.fetching import Fetcher


def build_policy(settings: Settings) -> Policy:
    """Raises BadSettings."""
    levels = Levels(security=Security(settings.tools_security), asking=Asking(settings.tools_ask))
    return Policy(rules=_all_rules(settings), levels=levels)


def build_closed(settings: Settings) -> Closed:
    """Raises BadSettings."""
    return closed_by(_all_rules(settings))


def build_fetcher(settings: Settings) -> Fetcher:
    """Raises BadSettings."""
    return Fetcher(private=_private(settings.fetch_private))


def _all_rules(settings: Settings) -> Rules:
    return Rules(
        allow=_rules("SHIFTBOSS_TOOLS_ALLOW", settings.tools_allow),
        ask=_rules("SHIFTBOSS_TOOLS_ASK_FOR", settings.tools_ask_for),
        deny=_rules("SHIFTBOSS_TOOLS_DENY", settings.tools_deny),
    )


def _rules(name: str, text: str) -> tuple[Rule, ...]:
    try:
        return parse_rules(text)
    except BadRule as error:
        raise BadSettings([f"{name}: {error}"]) from error


def _private(text: str) -> Private:
    try:
        return private_of(text.split(","))
    except BadPrivate as error:
        raise BadSettings([f"SHIFTBOSS_FETCH_PRIVATE: {error}"]) from error
