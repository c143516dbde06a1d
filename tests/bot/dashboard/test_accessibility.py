"""The checks of accessibility find what they are for, and colours can be told apart."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product

import pytest

from tests.bot.dashboard.accessibility import contrast, find_faults, read_colours

GOOD = (
    '<html lang="en"><head><title>T</title></head><body><a href="#main">Skip</a>'
    '<header><nav aria-label="Pages"><a href="/">Home</a></nav></header>'
    '<main id="main"><h1>Title</h1>{}</main></body></html>'
)
FAULTS = [
    ("<h1>Again</h1>", "2 times <h1>"),
    ("<h3>Deep</h3>", "skips a level"),
    ('<input name="a">', "no label"),
    ("<label><input></label>", "no label"),
    ('<img src="a.png">', "no alt"),
    ("<table><tr><th>A</th></tr></table>", "no scope"),
    ("<table><tr><td>A</td></tr></table>", "no headings"),
    ('<p tabindex="3">A</p>', "positive tabindex"),
    ('<p id="main">A</p>', "occurs 2 times"),
    ('<button><span aria-hidden="true">x</span></button>', "no name"),
    ('<a href="/x"></a>', "no name"),
    ('<svg viewBox="0 0 1 1"></svg>', "neither hidden nor a picture"),
    ('<svg role="img"></svg>', "a picture without a name"),
    ('<section aria-labelledby="nothing"></section>', "leads nowhere"),
    ("<section></section>", "no name"),
    ('<div tabindex="0">A</div>', "without a name"),
    ("<progress></progress>", "no name"),
    ("<nav>A</nav>", "menus without names"),
    ("<main></main>", "2 times <main>"),
    ("<div><p>A</div>", "closes <p>"),
    ("<li>A</li>", "outside of a list"),
    ('<p class="a" class="b">A</p>', "repeats an attribute"),
]


def test_faults_are_found() -> None:
    assert find_faults(GOOD.format('<label>A <input></label><h2>B</h2><img alt="" src="x">')) == []
    missed = [
        (html, fault)
        for html, fault in FAULTS
        if not any(fault in found for found in find_faults(GOOD.format(html)))
    ]
    assert missed == []
    bare = find_faults("<html><body><p>A</p></body></html>")
    assert {"no <nav>", "no language", "no title", "no way to skip to the content"} <= set(bare)


def test_text_can_be_told_from_its_background_in_both_schemes() -> None:
    css = files("bot.transports.web").joinpath("static", "app.css").read_text("utf-8")
    pairs = [
        *product(("ink", "soft", "accent", "bad"), ("bg", "surface", "sunk")),
        ("accent-ink", "accent"),
        ("tint-ink", "tint"),
        ("ink", "bad-tint"),
        ("bad", "bad-tint"),
        ("ink", "warn-tint"),
    ]
    weak = [
        (scheme, text, ground, round(contrast(colours[text], colours[ground]), 2))
        for scheme, colours in zip(("light", "dark"), read_colours(css), strict=True)
        for text, ground in pairs
        if contrast(colours[text], colours[ground]) < 4.5
    ]
    assert weak == []
    assert contrast("000000", "ffffff") == pytest.approx(21)


def test_the_dashboard_has_no_colours_of_its_own() -> None:
    css = files("bot.dashboard").joinpath("static", "dashboard.css").read_text("utf-8")
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgb\(|\bhsl\(", css) == []
