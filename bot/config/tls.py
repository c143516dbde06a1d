"""The certificates that are trusted, loaded once for all connections: 20 ms and 1 MiB each time."""

from __future__ import annotations

import ssl
from functools import cache


@cache
def tls_context() -> ssl.SSLContext:
    """Reads files on its first call."""
    import httpx

    return httpx.create_ssl_context()


@cache
def context_without_tls() -> ssl.SSLContext:
    """For services at plain `http://`, as local ones: trusts nobody, so loads nothing."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def context_for(url: str) -> ssl.SSLContext:
    return context_without_tls() if url.startswith("http://") else tls_context()
