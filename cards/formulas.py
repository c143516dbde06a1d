"""Draws LaTeX formulas as MathML for the web; loaded with the first formula."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from html import escape, unescape
from typing import TYPE_CHECKING

from latex2mathml.converter import Converter

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

log = logging.getLogger(__name__)

MAX_FORMULA_CHARS = 2_000
_MAX_NESTING = 30
_MAX_ELEMENTS = 4_000
_MAX_KEPT = 256
"""An answer that is being written is drawn anew with each piece of it."""

_REFUSED = re.compile(
    # Definitions, which multiply, and what is no formula: links, classes and styles.
    r"\\(?:(?:re)?newcommand|providecommand|[egx]?def|let|DeclareMathOperator|(?:re)?newenvironment"
    r"|href|url|class|style|cssId|htmlId|htmlClass|htmlStyle|htmlData|includegraphics|require)"
    r"(?![A-Za-z])"
)
_OPENS_GROUP = re.compile(
    r"\\\\|\\[{}]|\\(?:left|begin)(?![A-Za-z])|\\(?:right|end)(?![A-Za-z])|[{}]"
)
_TAG = re.compile(
    r"m(?:row|i|n|o|text|space|frac|sqrt|root|sup|sub|subsup|under|over|underover|multiscripts"
    r"|prescripts|table|tr|td|style|padded|phantom)|none"
)
_ATTRIBUTE = re.compile(
    r"accent(?:under)?|align|columnlines|columnspacing|depth|display(?:style)?|fence|form|height"
    r"|largeop|linethickness|lspace|mathcolor|mathsize|mathvariant|maxsize|minsize|movablelimits"
    r"|rowalign|rowlines|rowspacing|rspace|scriptlevel|separator|stretchy|symmetric|voffset|width"
)
_CHILDREN = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2}
_CHILDREN |= {"msubsup": 3, "munderover": 3}
_ENVIRONMENTS = {"aligned": "align*", "split": "align*", "gathered": "matrix", "gather*": "matrix"}
"""By their names those that the library knows and that look the same."""
_ENVIRONMENT = re.compile(r"(\\(?:begin|end)\{)(aligned|split|gathered|gather\*)\}")
_VALUE = re.compile(r"[\w.%#+ -]{0,60}", re.ASCII)


class _NotDrawable(ValueError):
    """The result is too large, or has elements that no formula needs."""


@lru_cache(maxsize=_MAX_KEPT)
def draw_formula(latex: str, *, is_block: bool) -> str:
    """The formula as safe HTML, with its LaTeX as annotation; empty if it cannot be drawn, is too
    long, nested too deeply, or does more than show a formula. It takes some milliseconds."""
    if len(latex) > MAX_FORMULA_CHARS or _REFUSED.search(latex) or _nesting(latex) > _MAX_NESTING:
        return ""
    display = "block" if is_block else "inline"
    try:
        known = _ENVIRONMENT.sub(lambda found: f"{found[1]}{_ENVIRONMENTS[found[2]]}}}", latex)
        drawn = "".join(_write(Converter(display=display).convert_to_element(known)[0], [0]))
    except Exception as error:  # noqa: BLE001 - the parser's errors have no common class
        log.debug("formula not drawn: %s", type(error).__name__)
        return ""
    note = f'<annotation encoding="application/x-tex">{escape(latex)}</annotation>'
    return f'<math display="{display}"><semantics>{drawn}{note}</semantics></math>'


def _nesting(latex: str) -> int:
    depth = deepest = 0
    for found in _OPENS_GROUP.finditer(latex):
        if found[0] in {"{", "\\left", "\\begin"}:
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in {"}", "\\right", "\\end"}:
            depth -= 1
    # Arguments may follow without braces: \sqrt\sqrt\sqrt x
    bare = max((len(each[0].split("\\")) for each in _BARE_RUN.finditer(latex)), default=0)
    return max(deepest, bare)


_BARE_RUN = re.compile(r"(?:\\[A-Za-z]+[ \t]*){2,}")


def _write(element: Element, count: list[int]) -> Iterator[str]:
    """Write the element, leaving out unknown tags and attributes and escaping all text. The library
    itself would write text unescaped."""
    count[0] += 1
    text = unescape(element.text or "")
    if (
        not _TAG.fullmatch(element.tag)
        or count[0] > _MAX_ELEMENTS
        or len(element) != _CHILDREN.get(element.tag, len(element))
        # What the library does not know is shown as it was written, and no browser breaks lines.
        or (element.tag in {"mi", "mo"} and (text.startswith("\\") or text == "&"))
        or "linebreak" in element.attrib
    ):
        raise _NotDrawable
    kept = "".join(
        f' {name}="{escape(value)}"'
        for name, value in element.attrib.items()
        if _ATTRIBUTE.fullmatch(name) and _VALUE.fullmatch(value)
    )
    if (side := element.get("columnalign")) in {"left", "right"}:
        # Browsers have dropped the attribute.
        kept += f' class="to-{side}"'
    yield f"<{element.tag}{kept}>{escape(text)}"
    for each in element:
        yield from _write(each, count)
    yield f"</{element.tag}>"
    if element.tail and element.tail.strip():
        raise _NotDrawable
