"""URLs that may be fetched at all: plain http and https, taken apart one way only."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

LONGEST = 2_000
_USUAL = {"http": 80, "https": 443}
# Reserved and unreserved characters, and the percent sign of what is quoted already.
_KEPT = "%/?:@!$&'()*+,;=-._~[]|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """`host` is in lower case and ASCII, without a dot at its end; `port` is None where it is the
    usual one; `path` has the query, and begins with a slash."""

    scheme: str
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.site}{self.path}"

    @property
    def site(self) -> str:
        """The host, and the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def real_port(self) -> int:
        return self.port or _USUAL[self.scheme]

    def joined(self, target: str) -> Url | None:
        """Where a redirect or a link on this page leads."""
        try:
            return url_of(urljoin(str(self), target.strip()))
        except ValueError:
            return None


def url_of(text: str) -> Url | None:
    """None if it is no plain http or https URL: also one with a user name, or with characters
    that others might read in another way."""
    if len(text) > LONGEST or not text.isprintable() or any(one in text for one in ' \\"<>`{}^'):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
        name = host if host.isascii() else host.encode("idna").decode()
    except (ValueError, UnicodeError):
        return None
    if parts.scheme not in _USUAL or not name or "@" in parts.netloc or "%" in name or port == 0:
        return None
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return Url(
        scheme=parts.scheme,
        host=name.lower(),
        port=None if port == _USUAL[parts.scheme] else port,
        path=quote(path or "/", safe=_KEPT) if path.startswith("/") else f"/{quote(path, _KEPT)}",
    )
