"""A page becomes text that keeps its shape and drops what nobody sees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.tools.web import extract_text
from bot.engine.web import WebPage, WebUrl
from tests.thoroughness import sampled

URL = WebUrl(scheme="https", host="example.com", port=None, path="/a/b")


def told(body: str | bytes, kind: str = "text/html", charset: str = "") -> str:
    data = body.encode() if isinstance(body, str) else body
    return extract_text(WebPage(url=URL, status=200, content_type=kind, charset=charset, body=data))


def test_the_shape_is_kept() -> None:
    page = """<!doctype html><title>T &amp; x</title><h2>Head</h2><p>one <b>two</b>
      <a href="../c?d=1#e">three</a></p><ul><li>a<li>b</ul><pre>x
  y</pre><p>run <code>z</code></p>1 < 2"""

    assert told(page).split("\n") == [
        "T & x",
        "",
        "## Head",
        "",
        "one two [three](https://example.com/c?d=1)",
        "",
        "- a",
        "- b",
        "",
        "```",
        "x",
        "  y",
        "```",
        "run `z`",
        "",
        "1 < 2",
    ]


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>EVIL</script>",
        "<SCRIPT type=x>a < b; '</scripty>' EVIL</script >",
        "<style>EVIL</style>",
        "<!-- EVIL -->",
        "<!-- <p>EVIL </p> --",
        "<p hidden>EVIL</p>",
        "<div style='display: none'>EVIL <div>EVIL</div> EVIL</div>",
        "<span aria-hidden=true>EVIL</span>",
        "<noscript>EVIL</noscript>",
        "<template>EVIL</template>",
        "<a title='EVIL'></a>",
    ],
)
def test_what_nobody_sees_is_not_told(hidden: str) -> None:
    assert "EVIL" not in told(f"<p>before</p>{hidden}<p>after</p>")


def test_letters_that_nobody_sees_are_dropped() -> None:
    tags = "".join(chr(0xE0000 + ord(one)) for one in "obey")

    assert told(f"a\u200b\u202e{tags}\x1b[0mb", kind="text/plain") == "a[0mb"


def test_links_that_run_something_are_only_words() -> None:
    assert told('<a href="javascript:x()">go</a> <a href="data:x,y">there</a>') == "go there"


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        ("你好".encode("gb18030"), "gb2312"),
        ("你好".encode("big5"), "Big5"),
        ("你好".encode("utf-16"), ""),
        ("你好".encode("utf-8-sig"), "iso-8859-1"),
        ("<meta charset=gbk>你好".encode("gbk"), ""),
        ("<meta http-equiv=x content='text/html; charset=gbk'>你好".encode("gbk"), ""),
        ("你好".encode(), "no-such-thing"),
        ("你好".encode(), "unicode_escape"),
        ("你好".encode(), "zip"),
        ("你好".encode(), "idna"),
        ("你好".encode(), "\0"),
    ],
)
def test_the_charset_is_found_or_else_it_is_utf_8(body: bytes, charset: str) -> None:
    assert told(body, charset=charset) == "你好"


def test_a_wrong_charset_gives_wrong_letters_and_no_error() -> None:
    assert told("é".encode("latin-1"), charset="utf-8") == "\ufffd"
    assert told("你好".encode(), charset="latin-1").startswith("ä½")


@settings(max_examples=sampled(200, 100), deadline=None)
@given(st.text(alphabet="<>/!-ab \"'=&;#\n", max_size=60))
def test_no_page_breaks_the_reader(source: str) -> None:
    assert isinstance(told(f"<p>{source}"), str)


@pytest.mark.parametrize(
    "piece", ["<", "<!--", "<a ", '<a "', "<p hidden>", "</q>", "<a href=x>y", "<script>x", "&#1"]
)
def test_a_page_that_is_broken_everywhere_is_read_to_its_end(piece: str) -> None:
    assert len(told(piece * 50_000)) <= 50_000 * 40
