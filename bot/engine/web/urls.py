"""Parses the http and https URLs that may be fetched, and defines the fetched page."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

MAX_URL_CHARS = 2_000
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Reserved and unreserved characters, and the percent sign of quoted ones.
_UNQUOTED = "%/?:@!$&'()*+,;=-._~[]|"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebUrl:
    """`host` is lower-case ASCII without a trailing dot; `port` is None for the default port.

    `path` starts with a slash and includes the query."""

    scheme: str
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.site}{self.path}"

    @property
    def site(self) -> str:
        """The host, with the port unless it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def effective_port(self) -> int:
        return self.port or _DEFAULT_PORTS[self.scheme]

    def join(self, target: str) -> WebUrl | None:
        """Resolve a redirect or link; None if it is not fetchable."""
        try:
            return parse_url(urljoin(str(self), target.strip()))
        except ValueError:
            return None


def parse_url(text: str) -> WebUrl | None:
    """Return None unless it is a plain http or https URL.

    URLs with user names or ambiguous characters are rejected."""
    if (
        len(text) > MAX_URL_CHARS
        or not text.isprintable()
        or any(one in text for one in ' \\"<>`{}^')
    ):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
        name = host if host.isascii() else host.encode("idna").decode()
    except (ValueError, UnicodeError):
        return None
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not name
        or "@" in parts.netloc
        or "%" in name
        or port == 0
    ):
        return None
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return WebUrl(
        scheme=parts.scheme,
        host=name.lower(),
        port=None if port == _DEFAULT_PORTS[parts.scheme] else port,
        path=quote(path or "/", safe=_UNQUOTED)
        if path.startswith("/")
        else f"/{quote(path, _UNQUOTED)}",
    )


_OK = 200


class FetchRefused(Exception):
    """The page was not fetched; the message is one sentence for the model."""


class HostUnreachable(Exception):
    """No connection to this address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A fetched page; `redirect` is a target on another host, which was not followed."""

    url: WebUrl
    status: int
    content_type: str = ""
    charset: str = ""
    body: bytes = b""
    is_truncated: bool = False
    redirect: WebUrl | None = None

    @property
    def is_ok(self) -> bool:
        return self.status == _OK
