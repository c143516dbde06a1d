"""The accounts service that makes an app for whoever scans a code (RFC 8628)."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from tests.emulators.feishu.http_server import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from tests.emulators.feishu.emulator import FeishuEmulator
    from tests.emulators.feishu.users import FeishuUser

PATH: Final = "/oauth/v1/app/registration"
_FORM = "application/x-www-form-urlencoded"
_FIELDS = {
    "init": set[str](),
    "begin": {"archetype", "auth_method", "request_user_info"},
    "poll": {"device_code"},
}
_USER_INFO = {"open_id", "tenant_brand"}
_SLOWER = 5.0


class _OAuthError(Exception):
    def __init__(self, error: str, description: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.description = description


@dataclass(slots=True, kw_only=True)
class DeviceCode:
    """One code that is shown. `scanned_by` is who has confirmed it, on `home`."""

    device_code: str
    user_code: str
    url: str
    expires_at: float
    interval: float
    polled_at: float = 0.0
    is_denied: bool = False
    is_used: bool = False
    scanned_by: str = ""
    home: FeishuEmulator | None = None


@dataclass(kw_only=True)
class AppRegistration:
    """Both open platforms know the same codes, each gives out the secrets of its own apps."""

    fs: FeishuEmulator
    interval: float = 5
    lifetime: float = 600
    methods: list[str] = field(default_factory=lambda: ["client_secret"])
    codes: list[DeviceCode] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def share_codes_with(self, other: AppRegistration) -> None:
        other.codes = self.codes

    @property
    def newest(self) -> DeviceCode:
        return self.codes[-1]

    def scan(self, url: str, user: FeishuUser, *, on: FeishuEmulator | None = None) -> None:
        """The person confirms the page of this address: an app with all it asks for exists. `on`:
        their tenant is on this platform, rather than on the one of the code."""
        query = parse_qs(urlsplit(url).query)
        assert query["from"] == query["tp"] == ["sdk"], "the page would not know whose flow it is"
        assert len(query["name"][0]) > 0
        code = next(each for each in self.codes if each.user_code == query["user_code"][0])
        code.home, code.scanned_by = on or self.fs, user.open_id
        packed = query["addons"][0]
        wanted = json.loads(
            gzip.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        )
        app = code.home.app
        app.scopes = dict.fromkeys(wanted["scopes"]["tenant"], 1)
        app.events = wanted["events"]["items"]["tenant"]
        app.callbacks = wanted["callbacks"]["items"]
        self.fs.world.notify_changed()

    def deny(self, code: DeviceCode) -> None:
        code.is_denied = True
        self.fs.world.notify_changed()

    def answer(self, request: HttpRequest) -> HttpResponse:
        try:
            return _json(200, self._answer(self._read_form(request)))
        except _OAuthError as error:
            return _json(400, {"error": error.error, "error_description": error.description})

    def _read_form(self, request: HttpRequest) -> dict[str, str]:
        if request.headers.get("content-type", "").partition(";")[0] != _FORM:
            raise _OAuthError("invalid_request", "the body must be a form")
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, strict_parsing=True)
        form = dict(pairs)
        self.forms.append(form)
        action = form.get("action", "")
        if len(form) < len(pairs) or form.keys() - {"action"} != _FIELDS.get(action):
            raise _OAuthError("invalid_request", f"fields of {action!r}: {sorted(form)}")
        return form

    def _answer(self, form: dict[str, str]) -> dict[str, Any]:
        match form["action"]:
            case "init":
                return {"supported_auth_methods": self.methods}
            case "begin":
                return self._begin(form)
            case _:
                return self._poll(form["device_code"])

    def _begin(self, form: dict[str, str]) -> dict[str, Any]:
        wanted = (form["archetype"], form["auth_method"])
        if wanted != ("PersonalAgent", "client_secret"):
            raise _OAuthError("invalid_request", f"no such app: {wanted}")
        if not set(form["request_user_info"].split()) <= _USER_INFO:
            raise _OAuthError("invalid_request", "no such user information")
        number = next(self._numbers)
        code = DeviceCode(
            device_code=f"device-code-{number:032x}",
            user_code=f"USER-{number:04d}",
            url=f"{self.fs.domain}/page/launcher?user_code=USER-{number:04d}",
            expires_at=self.fs.clock.now() + self.lifetime,
            interval=self.interval,
        )
        self.codes.append(code)
        return {
            "device_code": code.device_code,
            "user_code": code.user_code,
            "verification_uri": f"{self.fs.domain}/page/launcher",
            "verification_uri_complete": code.url,
            "interval": self.interval,
            "expires_in": self.lifetime,
        }

    def _poll(self, device_code: str) -> dict[str, Any]:
        now = self.fs.clock.now()
        code = next((each for each in self.codes if each.device_code == device_code), None)
        if code is None or code.is_used:
            raise _OAuthError("invalid_grant", "the code is not known or used")
        if now >= code.expires_at:
            raise _OAuthError("expired_token", "the code is too old")
        # Clocks of two processes differ a little.
        early, code.polled_at = now < code.polled_at + 0.9 * code.interval, now
        if code.is_denied:
            raise _OAuthError("access_denied", "the person has refused")
        if code.home is None:
            if early:
                code.interval += _SLOWER
                raise _OAuthError("slow_down", f"every {code.interval:g} s at most")
            raise _OAuthError("authorization_pending", "nobody has scanned it")
        brand = "feishu" if code.home is self.fs and not self.fs.is_lark else "lark"
        told: dict[str, Any] = {"user_info": {"open_id": code.scanned_by, "tenant_brand": brand}}
        if code.home is not self.fs:
            # The platform of the app has its secret, to be asked for there.
            return told
        code.is_used = True
        return {**told, "client_id": self.fs.app_id, "client_secret": self.fs.app_secret}


def _json(status: int, body: dict[str, Any]) -> HttpResponse:
    headers = {"content-type": "application/json; charset=utf-8"}
    return HttpResponse(status=status, body=json.dumps(body).encode(), headers=headers)
