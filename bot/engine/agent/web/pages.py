"""A page as it came, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from bot.engine.agent.web.urls import Url

_OK = 200


class FetchRefused(Exception):
    """It was not fetched; the text says why in one sentence, for the model."""


class NoAnswer(Exception):
    """Nobody listens at this address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`moved` is where the page says it is now, on another host: it was not followed there."""

    url: Url
    status: int
    kind: str = ""
    charset: str = ""
    body: bytes = b""
    is_cut: bool = False
    moved: Url | None = None

    @property
    def is_good(self) -> bool:
        return self.status == _OK
