"""All stories of memory."""

from __future__ import annotations

from tests.chaos.memory import handwork, passing, talking

STORIES = (*talking.STORIES, *handwork.STORIES, *passing.STORIES)
