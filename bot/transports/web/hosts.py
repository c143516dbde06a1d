"""Under which names the web chat answers, and which addresses are this machine only."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - named to be recognised, not bound


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class HostRule:
    """A foreign name that leads here (DNS rebinding) is refused. Where the program listens on
    every address, plain addresses are accepted too: no foreign name hides in those."""

    def __init__(self, bound: str, extra: Iterable[str] = ()) -> None:
        self._names = {*_LOCAL_NAMES, bound.lower(), *(name.lower() for name in extra)} - {""}
        self._any_address = bound in _EVERYWHERE

    def allows(self, header: str) -> bool:
        name = _name(header)
        return name in self._names or (self._any_address and _is_address(name))


def address(host: str, port: int) -> str:
    """What to type into the browser on this machine."""
    shown = "127.0.0.1" if host in _EVERYWHERE else host
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


def _name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
