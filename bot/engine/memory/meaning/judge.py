"""A cross-encoder that says how well texts fit a query, in the wire forms of Jina and of TEI."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from bot.engine.memory.meaning.embedder import NoMeaning, Service
from bot.engine.memory.ranking import normalised

log = logging.getLogger(__name__)

_MOST = 20
_LONGEST = 2_000


class CrossEncoder:
    """Satisfies `recall.Judge`. With a `model` it is asked as Jina's is, without one as TEI's."""

    def __init__(self, service: Service, url: str, model: str = "") -> None:
        self._service = service
        self._url = url
        self._model = model

    async def judge(self, query: str, texts: Sequence[str]) -> Mapping[int, float]:
        shown = [text[:_LONGEST] for text in texts[:_MOST]]
        body: dict[str, Any] = {"query": query[:_LONGEST], "texts": shown}
        if self._model:
            body = {
                "model": self._model,
                "query": query[:_LONGEST],
                "documents": shown,
                "top_n": len(shown),
            }
        try:
            return _scores(await self._service.post(self._url, body), len(shown))
        except NoMeaning as error:
            log.warning("nobody judges what was found: %s", error)
            return {}


def _scores(answer: Any, most: int) -> Mapping[int, float]:
    try:
        rows = answer["results"] if isinstance(answer, dict) else answer
        scores = {
            int(row["index"]): float(row["relevance_score"] if "score" not in row else row["score"])
            for row in rows
        }
    except (TypeError, KeyError, ValueError, OverflowError):
        raise NoMeaning("an answer of another form") from None
    kept = {at: score for at, score in scores.items() if 0 <= at < most and isfinite(score)}
    within = all(0 <= score <= 1 for score in kept.values())
    return kept if within else normalised(kept)
