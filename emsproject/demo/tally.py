"""Reads the counts of a running demo from the database."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db.models import Count, Max, Min

from emsproject.demo.departures import TOPIC
from emsproject.demo.models import Handled
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    RetryMessage,
    State,
)


@dataclass
class Tally:
    """How far the producer and the groups are."""

    groups: tuple[str, ...]
    sent: int = 0
    rolled_back: int = 0
    handled: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read what the groups have done by now."""
        handled = Handled.objects.values_list("group").annotate(n=Count("id"))
        dead = DeadMessage.objects.values_list("group__name").annotate(n=Count("id"))
        self.handled = dict(handled)
        self.dead = dict(dead)

    def finished(self, group: str) -> int:
        """Return how many messages the group has handled or given up."""
        return self.handled.get(group, 0) + self.dead.get(group, 0)

    def all_idle(self) -> bool:
        """Tell whether nothing is left to do, as EMS sees it.

        The order of the queries matters: work only moves from the inbox to a cursor that is behind,
        to an open delivery, to a retry. A retry that is being handled keeps its row.
        """
        return not (
            Message.objects.inbox().exists()
            or ConsumerGroup.objects.filter(topic__name=TOPIC).count() < len(self.groups)
            or Cursor.objects.behind().exists()
            or Delivery.objects.open().exists()
            or RetryMessage.objects.exists()
        )


@dataclass(frozen=True)
class GroupReport:
    """What a group has done, from the deliveries of EMS."""

    retries: int
    seconds: float


def group_report(group: str) -> GroupReport:
    """Count retries, and measure the time in seconds from the first claim to the last end."""
    deliveries = Delivery.objects.filter(group__name=group)
    retries = deliveries.filter(kind=Kind.RETRY).exclude(state=State.RELEASED)
    span = deliveries.aggregate(start=Min("claimed_at"), end=Max("finished_at"))
    seconds = (span["end"] - span["start"]).total_seconds() if span["end"] else 0.0
    return GroupReport(retries.count(), seconds)
