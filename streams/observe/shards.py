"""Diagnoses shards: topics that ``EMS["SHARDS"]`` has on another database than this one."""

from __future__ import annotations

from collections.abc import Iterator

from streams.log.lag import lags
from streams.models import ConsumerGroup, Message, Move, Topic
from streams.models.topic import WRITABLE
from streams.observe.diagnoses import ERROR, OK, Diagnosis
from streams.sharding import alias_of, aliases, is_sharded


def shards(using: str) -> Iterator[Diagnosis]:
    """Yield the topics that are used here, or have unread messages, and belong elsewhere."""
    if not is_sharded() or using not in aliases():
        return
    strayed = [
        topic
        for topic in Topic.objects.using(using).order_by("name")
        if alias_of(topic.name) != using
    ]
    found = [topic for topic in strayed if topic.access in WRITABLE or _unread(topic, using)]
    for topic in found:
        alias = alias_of(topic.name)
        move = Move.last_of(topic.name, using)
        if move and move.target == using:
            text = f"{topic} was moved here, and EMS['SHARDS'] has it on {alias!r}."
            hint = f"put it on {using} in EMS['SHARDS'] in all processes: ems_topics routes"
        else:
            text = f"{topic} is here, and EMS['SHARDS'] has it on {alias!r}: it was not moved."
            hint = f"ems_topics move {topic} --to {alias}, with the old EMS['SHARDS']"
        yield Diagnosis(ERROR, "shards", text, hint)
    if not found:
        yield Diagnosis(OK, "shards", "Each topic is on the database that EMS['SHARDS'] says.")


def _unread(topic: Topic, using: str) -> bool:
    """Tell whether a group, or the sequencer, has anything left to do here."""
    inbox = Message.objects.using(using).inbox().filter(partition__topic=topic.pk)
    groups = ConsumerGroup.objects.using(using).select_related("topic").filter(topic=topic.pk)
    return inbox.exists() or any(lag.unfinished for lag in lags(groups, using))
