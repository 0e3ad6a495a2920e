"""Measures handler calls that run."""

from __future__ import annotations

from django.utils.translation import gettext as _

from monitoring.alarms.measured import Subject, Value, Values
from streams.consume.limits import limits
from streams.consume.registry import find
from streams.models import ConsumerGroup, Delivery, UtcNow

# The most open deliveries that are read: the ones with the earliest deadline.
AT_MOST = 1000


def slow_call(using: str) -> Values:
    """Return the longest running call of each group, as a share of its timeout.

    The deadline of an open delivery is the start of its running call plus the timeout, to a
    quarter of the timeout and at most 5 s. Unknown where neither the group nor the code of this
    process says the timeout.
    """
    # Without a join, in which a server could begin with the groups and sort the deliveries.
    held = Delivery.objects.using(using).held().annotate(now=UtcNow()).order_by("deadline")
    rows = list(held[:AT_MOST])
    ids = {row.group_id for row in rows}
    groups = ConsumerGroup.objects.using(using).select_related("topic").in_bulk(ids)
    found: dict[Subject, Value] = {}
    for row in rows:
        group = groups.get(row.group_id)
        if group is None:
            continue
        subject = Subject(group.topic.name, group.name)
        registration = find(*(subject.topic, subject.group))
        if registration is None and group.consume_timeout is None:
            found.setdefault(subject, Value(None))
            continue
        timeout = limits(group, registration, using).consume_timeout
        left = row.deadline - row.now  # type: ignore[attr-defined]
        share = max(0.0, 1 - left / timeout)  # below 0 for a moment: instants are rounded
        longest = found.get(subject, Value(None)).number
        if longest is None or share > longest:
            text = _("%(handler)s at offset %(offset)d, client %(client)s, thread %(thread)s")
            values = {
                "handler": registration.name if registration else group.name,
                "offset": row.progress,
                "client": row.client_id,
                "thread": row.thread,
            }
            found[subject] = Value(share, text % values)
    return found
