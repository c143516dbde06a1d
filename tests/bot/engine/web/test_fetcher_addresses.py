"""Only the open internet may be reached, in whatever way another address is written."""

from __future__ import annotations

import pytest

from bot.engine.web import (
    PrivateHostError,
    is_public,
    parse_address,
    parse_private_hosts,
    parse_url,
)
from tests.case_tables import all_cases


@all_cases(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::1",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "2001:0:7f00:1::1",
        "2001:db8::1",
        "2001:2::1",
        "3fff::1",
        "100::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "5f00::1",
    ],
)
def test_what_is_not_on_the_open_internet_is_closed(address: str) -> None:
    assert not is_public(parse_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450::1"]
)
def test_the_open_internet_is_open(address: str) -> None:
    assert is_public(parse_address(address))


def test_the_owner_may_open_hosts_addresses_and_networks() -> None:
    private = parse_private_hosts([" NAS.local ", "192.168.1.0/24", "::1", ""])

    assert private.allows("nas.local", parse_address("10.0.0.1"))
    assert private.allows("any.test", parse_address("192.168.1.7"))
    assert private.allows("any.test", parse_address("::1"))
    assert not private.allows("any.test", parse_address("192.168.2.7"))
    assert not private.allows("any.test", parse_address("::ffff:192.168.1.7"))


@pytest.mark.parametrize("entry", ["192.168.1.0/99", "http://nas", "a b", "192.168.1.5/24"])
def test_what_is_no_place_is_refused(entry: str) -> None:
    with pytest.raises(PrivateHostError):
        parse_private_hosts([entry])


@all_cases(
    "text",
    [
        "",
        "example.com",
        "file:///etc/passwd",
        "ftp://example.com",
        "gopher://example.com",
        "data:text/html,x",
        "javascript:alert(1)",
        "http://",
        "http:///x",
        "http://user@example.com",
        "http://user:pass@example.com",
        "http://example.com\\@evil.org",
        "http://example.com:99999",
        "http://example.com:0",
        "http://exa mple.com",
        "http://example.com/\nHost: evil",
        "http://example.com/\r\nX: y",
        "http://%31%32%37.0.0.1",
        "http://[::1",
        "http://example.com/" + "a" * 3_000,
        "http://ex\u200bample.com",
    ],
)
def test_what_is_no_plain_url_is_none(text: str) -> None:
    assert parse_url(text) is None


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("HTTP://Example.COM.:80/a?b=c#d", "http://example.com/a?b=c"),
        ("https://例え.jp/路径", "https://xn--r8jz45g.jp/%E8%B7%AF%E5%BE%84"),
        ("https://example.com", "https://example.com/"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://example.com?q", "https://example.com/?q"),
        ("https://example.com/a%20b", "https://example.com/a%20b"),
    ],
)
def test_urls_are_told_in_one_form(text: str, same: str) -> None:
    assert str(parse_url(text)) == same
