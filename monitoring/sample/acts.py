"""Marks what operators do with groups and topics, and what a forced purge has skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitoring.models import Mark, MarkKind
from monitoring.models.mark import MAX_TEXT
from streams import signals
from streams.models import ConsumerGroup, Topic


def connect() -> None:
    signals.act_done.connect(_mark_act, dispatch_uid=__name__)
    signals.purge_forced.connect(_mark_purge, dispatch_uid=__name__)


def _mark_act(
    *, act: str, row: Any, texts: Sequence[str], who: str, using: str, **_signal: Any
) -> None:
    if act not in MarkKind.values or not isinstance(row, ConsumerGroup | Topic):
        return
    Mark.objects.using(using).create(
        kind=act,
        topic_id=row.topic_id if isinstance(row, ConsumerGroup) else row.pk,
        groups=[row.pk] if isinstance(row, ConsumerGroup) else [],
        text="; ".join(texts)[:MAX_TEXT],
        who=who[:190],
    )


def _mark_purge(*, topic: str, partition: int, messages: int, using: str, **_signal: Any) -> None:
    row = Topic.objects.using(using).filter(name=topic).first()
    if row is not None:
        text = f"{topic}/{partition}"
        Mark.objects.using(using).create(
            kind=MarkKind.PURGE, topic_id=row.pk, count=messages, text=text
        )
