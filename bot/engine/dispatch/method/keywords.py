"""The words of an instruction by which earlier logs are found again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 5

_RUN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]{2,}|[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9_]")
_SHORTEST_LATIN = 3
_WORD = 2

_ENGLISH = """about after all also and any are ask back because been before but can could did does
doing done each file files find first for from get give had has have her here him his how into its
just know last let like line list look make many may more most must need new not now off one only
other our out over own per please put read save say see send she should show some take task tell
than that the their them then there these they this those through too two under use using very want
was well were what when where which who why will with work would write you your"""
_CHINESE = """帮我 请你 请帮 一下 一个 一首 一份 一些 一篇 关于 我们 你们 他们 这个 那个 这些 那些
什么 怎么 如何 为什么 可以 需要 应该 能够 进行 使用 通过 以及 或者 并且 然后 之后 以后 之前 现在
今天 任务 文件 内容 完成 保存 写到 保存到 没有 不要 不是 就是 所有 全部 其中 如果 因为 所以 但是
而且 还有 根据 按照 对于 的 了 和 与 及 或 在 到 把 将 给 从 是 请 帮 我 你 他 它 这 那 写 并 吗 呢
吧 啊"""
_SAYS_NOTHING = frozenset(_ENGLISH.split())
_BETWEEN = re.compile("|".join(sorted(_CHINESE.split(), key=len, reverse=True)))


def keywords(text: str, most: int = MOST) -> tuple[str, ...]:
    """At most `most`, each once, as they come."""
    found = dict.fromkeys(word for run in _RUN.findall(text) for word in _words_of(run))
    return tuple(found)[:most]


def _words_of(run: str) -> Iterator[str]:
    if run.isascii():
        word = run.lower()
        if len(word) >= _SHORTEST_LATIN and word not in _SAYS_NOTHING:
            yield word
        return
    for piece in _BETWEEN.split(run):
        yield from _pairs(piece)


def _pairs(piece: str) -> Iterator[str]:
    """Chinese writes no blanks; most of its words are two characters long."""
    while len(piece) >= _WORD:
        cut = len(piece) if len(piece) <= _WORD + 1 else _WORD
        yield piece[:cut]
        piece = piece[cut:]
