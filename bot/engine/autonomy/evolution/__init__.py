"""Improves prompts by trials on a share of the tasks."""
