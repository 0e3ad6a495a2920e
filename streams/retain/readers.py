"""Reads how streams of Spark stand: how far behind, and how near retention is to what is unread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import TextChoices
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from streams.database.clock import database_now
from streams.durations import brief
from streams.log.lag import ages_of
from streams.models import Partition, Reader, Topic
from streams.retain.purge_floor import has_readers, protect_time
from streams.retain.rule import RetentionRule, rule_of

# The most streams that are read, those that were seen last.
AT_MOST = 500
# The share of the retention from which on it is told that a purge comes near.
NEAR = 0.8
# A stream that was not seen for so long is told of, if something is unread.
LONG = timedelta(days=1)


class ReaderState(TextChoices):
    """How a stream stands; the worst first."""

    LOST = "lost", gettext_lazy("purged unread")
    UNPROTECTED = "unprotected", gettext_lazy("no longer protected")
    HOLDING = "holding", gettext_lazy("holds back the purge")
    NEAR = "near", gettext_lazy("the purge comes near")
    SILENT = "silent", gettext_lazy("not seen")
    BEHIND = "behind", gettext_lazy("behind")
    AT_END = "at_end", gettext_lazy("at the end")


@dataclass(frozen=True)
class ReaderNow:
    """How one stream stands in one topic."""

    reader: Reader
    behind: int  # messages in the log that it has not read
    lost: int  # messages that were purged before it had read them
    age: timedelta | None  # since the oldest unread message was sequenced
    silent: timedelta  # since it was last seen
    rate: float | None  # messages a second; unknown once it was not seen for long
    # The share of the retention that what is unread has used, 1 at least if some was purged.
    used: float | None
    room: timedelta | None  # until the oldest unread message is older than is kept; None: no limit
    protects: bool  # a purge waits for it now

    @property
    def state(self) -> ReaderState:
        if self.lost:
            return ReaderState.LOST
        if self.reader.protect and not self.protects and self.behind:
            return ReaderState.UNPROTECTED
        if self.used is not None and self.used >= NEAR:
            return ReaderState.HOLDING if self.protects and self.used >= 1 else ReaderState.NEAR
        if self.behind and self.silent >= LONG:
            return ReaderState.SILENT
        return ReaderState.BEHIND if self.behind else ReaderState.AT_END

    @property
    def needs_somebody(self) -> bool:
        return self.state not in (ReaderState.BEHIND, ReaderState.AT_END)

    @property
    def trouble(self) -> str:
        """Return what its state leaves open; nothing: an empty text."""
        if self.state == ReaderState.LOST:
            text = ngettext(
                "%s message was purged before it was read",
                "%s messages were purged before they were read",
                self.lost,
            )
            return text % _grouped(self.lost)
        if self.state == ReaderState.NEAR and self.room is not None:
            return _("a purge may pass it in %s") % brief(max(self.room, timedelta(0)))
        return ""

    def __str__(self) -> str:
        seen = _("last seen %s ago") % brief(self.silent)
        what = self.trouble or str(self.state.label)
        return "; ".join([what, unread_text(self.behind), seen])


def unread_text(messages: int) -> str:
    text = ngettext("%s message is unread", "%s messages are unread", messages)
    return text % _grouped(messages)


def _grouped(number: int) -> str:
    return str(number_format(number, force_grouping=True))


def readers(using: str, topic: Topic | None = None) -> list[ReaderNow]:
    """Return how the streams stand, those that need somebody first; four statements, and one for
    each topic without a retention of its own.
    """
    rows = Reader.objects.using(using).select_related("topic").order_by("-seen_at", "pk")
    if topic is not None:
        rows = rows.filter(topic=topic.pk)
    chosen = list(rows[:AT_MOST])
    if not chosen:
        return []
    partitions: dict[int, list[Partition]] = {}
    of_topics = Partition.objects.using(using).filter(topic__in={one.topic.pk for one in chosen})
    for partition in of_topics.order_by("number"):
        partitions.setdefault(partition.topic_id, []).append(partition)
    unread = {
        (reader.pk, partition.pk): max(reader.position(partition.pk), partition.first_offset)
        for reader in chosen
        for partition in partitions.get(reader.topic.pk, [])
        if reader.position(partition.pk) < partition.next_offset
    }
    ages: dict[int, timedelta] = {}
    for (of, _partition), age in ages_of(unread, using).items():
        ages[of] = max(age, ages.get(of, age))
    rules = dict(_rules({reader.topic for reader in chosen}, using))
    now, protected = database_now(using), protect_time(using)
    found = []
    for reader in chosen:
        mine, rule = partitions.get(reader.topic.pk, []), rules[reader.topic.pk]
        places = [(one, reader.position(one.pk)) for one in mine]
        lags = [max(0, one.next_offset - max(at, one.first_offset)) for one, at in places]
        lost = sum(max(0, one.first_offset - at) for one, at in places)
        oldest, silent = ages.get(reader.pk), now - reader.seen_at
        used = _used(rule, oldest, max(lags, default=0))
        found.append(
            ReaderNow(
                reader,
                behind=sum(lags),
                lost=lost,
                age=oldest,
                silent=silent,
                used=max(1.0, used or 0.0) if lost else used,
                rate=reader.rate if silent < LONG else None,
                room=rule.age - oldest if rule and rule.age and oldest is not None else None,
                protects=reader.protect and silent < protected,
            )
        )
    order = list(ReaderState)
    return sorted(found, key=lambda one: (order.index(one.state), -one.behind))


def _rules(topics: set[Topic], using: str) -> Iterator[tuple[int, RetentionRule | None]]:
    for topic in topics:
        rule = rule_of(topic, using)
        yield topic.pk, rule if rule.is_bounded and has_readers(topic, rule, using) else None


def _used(rule: RetentionRule | None, age: timedelta | None, lag: int) -> float | None:
    """Return the share of the age or of the count that is used, whichever is more."""
    if rule is None or (rule.age is None and rule.count is None):
        return None
    shares = [0.0]
    if rule.age and age is not None:
        shares.append(age / rule.age)
    if rule.count and lag:
        shares.append(lag / rule.count)
    return max(shares)
