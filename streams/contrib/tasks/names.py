"""Names the topics and the group of tasks, and says how long such names may be."""

from __future__ import annotations

from streams.rules.names import MAX_NAME, MAX_TAG

PREFIX = "tasks."
GROUP = "tasks"
MAX_QUEUE = MAX_NAME - len(PREFIX)
MAX_ID, MAX_BACKEND, MAX_PATH = 64, 32, 255


def topic_of(queue: str) -> str:
    return PREFIX + queue


def queue_of(topic: str) -> str:
    return topic.removeprefix(PREFIX)


def tag_of(path: str) -> str:
    """Return the name of a task as a tag: the end of it, if it is too long for one."""
    return path if len(path) <= MAX_TAG else path[-MAX_TAG:]
