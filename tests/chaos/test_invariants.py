"""A message may stand in a chat twice only where something excuses it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.invariants import has_excuse

TRIED, SHOWN = "moved outbox.queued>tried reply:8", "moved outbox.tried>shown reply:8"


@pytest.mark.parametrize(
    ("points", "excused"),
    [
        ([TRIED, "died page:before:1"], True),
        ([TRIED, "commit 175 outbox.retry_later"], True),
        ([TRIED, SHOWN, "died page:before:1"], False),
        ([TRIED, SHOWN], False),
        (["commit 1 outbox.retry_later", TRIED, SHOWN], False),
    ],
)
def test_a_repeat_is_excused_by_what_happened_while_it_was_sent(
    points: Sequence[str], *, excused: bool
) -> None:
    assert has_excuse(points) is excused
