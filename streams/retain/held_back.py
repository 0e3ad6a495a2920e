"""Finds who has held back the purge of old messages for a day, though its consumers may live."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.utils.translation import gettext as _

from streams.models import ConsumerGroup, Message, Partition, Topic, UtcNow
from streams.retain.abandoned_groups import LONG
from streams.retain.purge_floor import Hold, has_readers, holds
from streams.retain.rule import RetentionRule, bounded, rule_of


@dataclass(frozen=True)
class HeldBack:
    """Who needs a message of one partition that is older than its rule says by a day."""

    partition: Partition
    hold: Hold
    group: ConsumerGroup | None
    age: timedelta
    rule: RetentionRule

    def __str__(self) -> str:
        return _(
            "%(who)s %(what)s in %(partition)s: that message is %(days)d days old, and is to be"
            " kept for %(rule)s"
        ) % {
            "who": self._who(),
            "what": self.hold,
            "partition": self.partition,
            "days": self.age.days,
            "rule": self.rule,
        }

    def _who(self) -> str:
        if self.group is None:
            return self.hold.who({})
        name = str(self.group.name)
        return _("%s (paused)") % name if self.group.paused else name


def held_back(using: str) -> Iterator[HeldBack]:
    """Yield the first hold of each partition that is held back by age; two statements for each."""
    topics = Topic.objects.using(using).filter(bounded(using))
    groups = ConsumerGroup.objects.using(using).in_bulk()
    for topic in topics.order_by("name"):
        rule = rule_of(topic, using)
        if rule.age is None or not has_readers(topic, rule, using):
            continue
        for partition in Partition.objects.using(using).filter(topic=topic.pk).order_by("number"):
            partition.topic = topic
            needed = sorted(holds(partition, topic, using), key=lambda hold: hold.offset)
            if needed and (age := _age(partition, needed[0].offset, using)) > rule.age + LONG:
                group = groups.get(needed[0].group or 0)
                yield HeldBack(partition, needed[0], group, age, rule)


def _age(partition: Partition, offset: int, using: str) -> timedelta:
    """Return how long ago the message was sequenced; 0 if it is not in the log."""
    place = Message.objects.using(using).filter(partition=partition.pk, offset=offset)
    row = place.annotate(now=UtcNow()).values_list("now", "sequenced_at").first()
    return timedelta(0) if row is None or row[1] is None else row[0] - row[1]
