"""All stories of memory."""

from __future__ import annotations

from tests.chaos.memory import decay_stories, ingestion_stories, manual_stories

STORIES = (*ingestion_stories.STORIES, *manual_stories.STORIES, *decay_stories.STORIES)
