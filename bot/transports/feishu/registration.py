"""Creates a Feishu or Lark app by a code that a person scans: the device flow of RFC 8628."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx

log = logging.getLogger(__name__)

APP_SCOPES = (
    "im:message",
    "im:message:send_as_bot",
    "im:message.p2p_msg:readonly",
    "im:message.group_at_msg:readonly",
    "im:resource",
    "im:chat:readonly",
    "contact:user.base:readonly",
    "cardkit:card:write",
    # Lets `shiftboss doctor` see which events the app gets.
    "application:application:self_manage",
)
APP_EVENTS = (
    "im.message.receive_v1",
    "im.message.recalled_v1",
    "im.chat.access_event.bot_p2p_chat_entered_v1",
    "im.chat.member.bot.added_v1",
    "application.bot.menu_v6",
)
APP_CALLBACKS = ("card.action.trigger",)

_PATH = "/oauth/v1/app/registration"
_BEGIN = {
    "archetype": "PersonalAgent",
    "auth_method": "client_secret",
    "request_user_info": "open_id tenant_brand",
}
_APP_NAME = "Shiftboss"
# The page behind the code expects these of the SDK, whose flow this is.
_SOURCE = {"from": "sdk", "tp": "sdk", "source": "python-sdk/shiftboss"}

_APP_ID = re.compile(r"\w{1,100}", re.ASCII)
_SECRET = re.compile(r"[!-~]{1,500}")
_OPEN_ID = re.compile(r"ou_\w{1,100}", re.ASCII)
_LARK = "lark"

_DEFAULT_INTERVAL, _MAX_INTERVAL = 5.0, 60.0
_DEFAULT_LIFETIME, _MAX_LIFETIME = 600.0, 3600.0
_SLOWER = 5.0
_MAX_PAUSE = 30.0
_MAX_REASON = 200


class RegistrationOutcome(StrEnum):
    """The ways in which a registration can end without an app. USED: the code was used before and
    returns nothing.
    """

    DENIED = "denied"
    EXPIRED = "expired"
    USED = "used"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class RegistrationFailed(Exception):
    """`reason` is the platform's own words, if it has any."""

    def __init__(self, outcome: RegistrationOutcome, reason: str = "") -> None:
        self.outcome = outcome
        self.reason = reason[:_MAX_REASON]
        super().__init__(f"{outcome} {self.reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationCode:
    """`url` is the address to scan or to open, `lifetime` and `interval` are seconds. Only the
    program knows `device_code`: it is the key to the app's secret."""

    url: str
    device_code: str = field(repr=False)
    interval: float
    lifetime: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredApp:
    """The new app. `open_id` is the person who scanned the code, empty if unknown. `domain` is the
    open platform of the app.
    """

    app_id: str
    app_secret: str = field(repr=False)
    open_id: str
    domain: str


@dataclass(kw_only=True, eq=False)
class FeishuRegistration:
    """`client` is used for absolute addresses. `domain` and `lark_domain` are open platforms; the
    code is asked for on the first, and the app of a tenant of Lark is made on the second."""

    client: httpx.AsyncClient
    domain: str
    lark_domain: str
    sleep: Callable[[float], Awaitable[None]]
    now: Callable[[], float]

    async def begin(self) -> RegistrationCode:
        """Request a code. Raises RegistrationFailed."""
        offered = await self._post(self.domain, {"action": "init"})
        if "client_secret" not in _as_list(offered.get("supported_auth_methods")):
            raise RegistrationFailed(RegistrationOutcome.REFUSED, _reason(offered))
        begun = await self._post(self.domain, {"action": "begin", **_BEGIN})
        url, code = _text(begun.get("verification_uri_complete")), _text(begun.get("device_code"))
        if not (code and _is_web_address(url)):
            raise RegistrationFailed(RegistrationOutcome.REFUSED, _reason(begun))
        return RegistrationCode(
            url=_complete_url(url),
            device_code=code,
            interval=_seconds(begun.get("interval"), _DEFAULT_INTERVAL, _MAX_INTERVAL),
            lifetime=_seconds(begun.get("expires_in"), _DEFAULT_LIFETIME, _MAX_LIFETIME),
        )

    async def wait(self, code: RegistrationCode) -> RegisteredApp:
        """Poll until the person has decided. Raises RegistrationFailed. A request without an answer
        is repeated, because the person may be scanning just now.
        """
        domain, interval, failures = self.domain, code.interval, 0
        deadline = self.now() + code.lifetime
        while self.now() < deadline:
            try:
                told = await self._post(domain, {"action": "poll", "device_code": code.device_code})
            except RegistrationFailed as failed:
                if failed.outcome is not RegistrationOutcome.UNREACHABLE:
                    raise
                failures += 1
                log.info("feishu: asking again for the new app: %s", failed.reason)
                await self.sleep(min(interval * 2.0**failures, _MAX_PAUSE))
                continue
            failures = 0
            brand = _user_info(told).get("tenant_brand")
            if told.get("client_secret"):
                is_lark = brand == _LARK or domain == self.lark_domain
                return _read_app(told, self.lark_domain if is_lark else self.domain)
            if brand == _LARK and domain != self.lark_domain:
                domain = self.lark_domain
                continue
            interval = _next_interval(told, interval)
            await self.sleep(interval)
        raise RegistrationFailed(RegistrationOutcome.EXPIRED)

    async def _post(self, domain: str, form: Mapping[str, str]) -> dict[str, Any]:
        """The answer of the platform, refusals included. UNREACHABLE covers everything that is not
        an answer of the platform.
        """
        try:
            response = await self.client.post(f"{accounts_domain(domain)}{_PATH}", data=form)
        except httpx.HTTPError as error:
            # Without its text, which may quote what was sent.
            name = type(error).__name__
            raise RegistrationFailed(RegistrationOutcome.UNREACHABLE, name) from None
        try:
            told = None if response.is_server_error else response.json()
        except ValueError:
            told = None
        if not isinstance(told, dict):
            status = f"HTTP {response.status_code}"
            raise RegistrationFailed(RegistrationOutcome.UNREACHABLE, status)
        return told


def accounts_domain(domain: str) -> str:
    """The accounts service of an open platform: `accounts.` for `open.`; any other address is its
    own.
    """
    parts = urlsplit(domain.rstrip("/"))
    if not parts.netloc.startswith("open."):
        return domain.rstrip("/")
    return urlunsplit(parts._replace(netloc=f"accounts.{parts.netloc.removeprefix('open.')}"))


def _complete_url(url: str) -> str:
    """The address of the page, prefilled with the app's name and everything that
    Shiftboss needs.
    """
    parts = urlsplit(url)
    addons = {
        "scopes": {"tenant": APP_SCOPES},
        "events": {"items": {"tenant": APP_EVENTS}},
        "callbacks": {"items": APP_CALLBACKS},
    }
    packed = gzip.compress(json.dumps(addons, separators=(",", ":")).encode(), mtime=0)
    wanted = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    query = {**parse_qs(parts.query), **_SOURCE, "name": _APP_NAME, "addons": wanted}
    return urlunsplit(parts._replace(query=urlencode(query, doseq=True)))


def _next_interval(told: Mapping[str, Any], interval: float) -> float:
    match told.get("error"):
        case "authorization_pending":
            return interval
        case "slow_down":
            return interval + _SLOWER
        case "access_denied":
            raise RegistrationFailed(RegistrationOutcome.DENIED)
        case "expired_token":
            raise RegistrationFailed(RegistrationOutcome.EXPIRED)
        case "invalid_grant":
            raise RegistrationFailed(RegistrationOutcome.USED)
        case _:
            raise RegistrationFailed(RegistrationOutcome.REFUSED, _reason(told))


def _read_app(told: Mapping[str, Any], domain: str) -> RegisteredApp:
    """The new app's id and secret. They are written to a settings file, so anything but plain
    characters is refused.
    """
    app_id, secret = _text(told.get("client_id")), _text(told.get("client_secret"))
    open_id = _text(_user_info(told).get("open_id"))
    if not (_APP_ID.fullmatch(app_id) and _SECRET.fullmatch(secret)):
        raise RegistrationFailed(RegistrationOutcome.REFUSED)
    return RegisteredApp(
        app_id=app_id,
        app_secret=secret,
        open_id=open_id if _OPEN_ID.fullmatch(open_id) else "",
        domain=domain,
    )


def _is_web_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in {"http", "https"}
    except ValueError:
        return False


def _user_info(told: Mapping[str, Any]) -> Mapping[str, Any]:
    found = told.get("user_info")
    return found if isinstance(found, dict) else {}


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _seconds(value: object, default: float, longest: float) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return min(float(value), longest) if usable and isinstance(value, int | float) else default


def _reason(told: Mapping[str, Any]) -> str:
    return _text(told.get("error_description")) or _text(told.get("error"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
