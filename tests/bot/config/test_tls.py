"""Certificates are loaded once, and only for services that need them."""

from __future__ import annotations

from bot.config.tls import context_for


def test_services_share_one_set_of_certificates() -> None:
    shared = context_for("https://a.example")

    assert context_for("https://b.example") is shared
    assert shared.get_ca_certs()


def test_a_plain_service_loads_none_and_trusts_nobody_elsewhere() -> None:
    plain = context_for("http://127.0.0.1:8081")

    assert plain.cert_store_stats()["x509"] == 0
    assert plain.check_hostname
