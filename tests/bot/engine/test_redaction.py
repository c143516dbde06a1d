"""No configured secret is seen in any form, and what is not secret is left alone."""

from __future__ import annotations

import base64
import json
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.redaction import MASK, SecretMasker, find_secret_patterns

PRINTED = st.text(st.characters(codec="utf-8", exclude_characters="•"), max_size=80)
SECRETS = st.text(
    st.characters(codec="utf-8", exclude_characters="•"), min_size=4, max_size=40
).filter(str.strip)
WORDS = st.lists(st.text(string.ascii_letters + "äß中文", min_size=1, max_size=15), max_size=40)
TOKEN = "1234567890:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9"
SECRET = 'Kx7/+pa ss&wört"99'


@given(st.lists(SECRETS, min_size=1, max_size=4), st.data())
def test_a_configured_secret_survives_in_no_position(
    secrets: list[str], data: st.DataObject
) -> None:
    parts = data.draw(st.lists(st.one_of(PRINTED, st.sampled_from(secrets)), max_size=8))

    masked = SecretMasker(secrets).mask("".join(parts))

    assert not [secret for secret in secrets if secret in masked]


@given(SECRETS, PRINTED, PRINTED)
def test_neither_does_its_base64_in_the_middle_of_something_longer(
    secret: str, before: str, after: str
) -> None:
    coded = base64.b64encode(f"{before}{secret}{after}".encode()).decode()

    masked = SecretMasker([secret]).mask(coded)

    whole = base64.b64encode(secret.encode()).decode()
    if len(whole.rstrip("=")) > 12:
        assert masked != coded


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        SECRET.encode().hex(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_found_in_the_form_in_which_it_travels(form: str) -> None:
    secret = SECRET.lower() if form == quote(SECRET, safe="").lower() else SECRET

    assert form not in SecretMasker([secret]).mask(f"before {form} after")


@given(st.integers(min_value=8, max_value=29))
def test_a_piece_that_was_cut_off_at_an_edge_goes_too(length: int) -> None:
    secret = "q9Zr-Lm2Xw-77bVt-p0Kd-8sJn-Ye"[:30]
    masking = SecretMasker([secret])

    assert masking.mask(f"it ends {secret[:length]}") == f"it ends {MASK}"
    assert masking.mask(f"{secret[-length:]} begins it") == f"{MASK} begins it"


def test_secrets_that_overlap_leave_no_piece_of_each_other() -> None:
    assert SecretMasker(["abc12345", "345xyzuv"]).mask("<abc12345xyzuv>") == f"<{MASK}>"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"https://api.telegram.org/bot{TOKEN}/getMe", TOKEN),
        ("key sk-ant-api03-" + "x" * 20, "x" * 20),
        ("OPENAI=sk-proj-abc123" + "d" * 20, "abc123"),
        ("ghp_" + "a1B2" * 9, "a1B2a1B2"),
        ("github_pat_" + "11ABCDEFG0" * 3, "11ABCDEFG0"),
        ("aws AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE"),
        ("xoxb-123456789012-abcdef", "123456789012"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("authorization: Basic dXNlcjpwYXNzd29yZDEyMw==", "dXNlcjpwYXNzd29yZDEyMw"),
        ("t-g1044qeGEDXTB6NDJOGV4JQCYDGHRBARFTGT1234", "g1044qeGEDXTB6"),
        ("u-6U1SbDiM6XIH2DcTCPyeub", "6U1SbDiM6XIH2DcTCPyeub"),
        ('{"app_secret": "dskLLdkasdjlasdKK1234567890abcde"}', "dskLLdkasdjlasdKK"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4", "SflKxwRJSMeKKF2QT4"),
        ("postgres://boss:hunter22@db/x", "hunter22"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n", "MIIEvQIBADANBgkqhkiG9w0"),
    ],
)
def test_a_well_known_shape_is_masked_though_nobody_configured_it(text: str, secret: str) -> None:
    masked = SecretMasker(()).mask(text)

    assert secret not in masked
    assert MASK in masked


@given(WORDS)
def test_ordinary_words_are_left_alone(words: list[str]) -> None:
    text = " ".join(words)

    assert SecretMasker([SECRET, TOKEN]).mask(text) is text


@pytest.mark.parametrize(
    "text",
    [
        "a task-management-of-everything, a risk-assessment-framework-for-all",
        "sk-learn-based-pipelines-and-more",
        ".u-margin-bottom-large-on-mobile-devices { color: red }",
        "https://example.com:8080/path?at=user@host",
        "git@github.com:owner/repo.git at 12:30:45, is 3f786850e387550fdab836ed7e6dc881de23001b",
        "postgres://$USER:${PASSWORD}@db/x and http://<me>:<word>@host",
        "Bearer authentication is used; bearer internationalization",
        "import sk_learn; t-shirt; u-turn; x = {'app_secret': get()}",
        "2026-11-22T06:20:00 12345678:short",
    ],
)
def test_what_only_looks_like_one_is_left_alone(text: str) -> None:
    assert SecretMasker([SECRET]).mask(text) == text


@pytest.mark.parametrize(
    "piece",
    ["eyJ-", "sk-", "sk-a", "eyJaaaaaaa.", "://a:", "12345678:", "t-", "Bearer ", "-" * 5 + "BEGIN "
     "PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----A-----END ", "A", ":", "AKIA", "ghp_a"],
)  # fmt: skip
def test_nothing_makes_the_search_take_more_than_linear_work(piece: str) -> None:
    """Counted in spans and, implicitly, in time: quadratic work on this would take hours."""
    text = piece * (2_000_000 // len(piece))

    assert len(list(find_secret_patterns(text))) <= len(text)
