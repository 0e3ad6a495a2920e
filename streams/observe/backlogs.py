"""Diagnoses backlogs: blocked partitions of ordered groups, and groups beyond a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from streams.consume.blocked import Blocked, blockades
from streams.log.lag import lags
from streams.models import ConsumerGroup
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis, on
from streams.plural import plural


@dataclass(frozen=True)
class BacklogLimits:
    """What the operator calls too much: an age, a number of messages; None is no limit."""

    age: timedelta | None = None
    behind: int | None = None


def blocked(using: str) -> Iterator[Diagnosis]:
    """Yield the partitions in which an ordered group waits for a message that has failed."""
    groups = ConsumerGroup.objects.using(using).filter(ordered=True).select_related("topic")
    for blockade in blockades(groups.order_by("name", "topic__name"), using).values():
        yield from (_blocked(one, using) for one in blockade.worst)
        if blockade.unshown:
            group = f"{blockade.worst[0].group} on {blockade.worst[0].topic}"
            more = plural(
                blockade.unshown, "more partition is blocked", "more partitions are blocked"
            )
            yield Diagnosis(WARNING, "blocked", f"{group}: {more}")


def _blocked(one: Blocked, using: str) -> Diagnosis:
    place = f"{one.group} on {one.topic}: {one.place}"
    behind = plural(one.behind, "message waits behind it", "messages wait behind it")
    if one.waits_for_room:
        text = (
            f"{place} waits, since parkedMessagesMax messages of the group wait for their keys;"
            f" {behind}"
        )
        hint = (
            f"ems_keys list --group {one.group}{on(using)} says which messages hold keys. Correct"
            " the handler, make a dead letter of such a message by ems_keys skip, or raise"
            " parkedMessagesMax."
        )
        return Diagnosis(WARNING, "blocked", text, hint)
    text = f"{place} has failed, attempt {one.attempt} is next; {behind}"
    hint = (
        f"Its error: {one.error or 'unknown'}. Correct the handler, and let the next attempt begin"
        " by ems_groups retry, or make a dead letter of the message: ems_groups skip"
        f" {one.group} --topic {one.topic} --partition {one.partition}{on(using)}"
    )
    return Diagnosis(WARNING, "blocked", text, hint)


def beyond(limits: BacklogLimits, using: str) -> Iterator[Diagnosis]:
    """Yield the groups that are further behind than the ``limits``, or one ok if there are none."""
    if limits.age is None and limits.behind is None:
        return
    groups = ConsumerGroup.objects.using(using).select_related("topic").order_by("name")
    within = True
    for lag in lags(groups, using):
        if limits.behind is not None and (lag.behind or 0) > limits.behind:
            within = False
            text = f"{lag.group} is {lag.behind} messages behind, more than {limits.behind}"
            yield Diagnosis(ERROR, "limit", text)
        if limits.age is not None and lag.age is not None and lag.age > limits.age:
            within = False
            age = timedelta(seconds=int(lag.age.total_seconds()))
            text = (
                f"The oldest unfinished message of {lag.group} is {age} old, more than {limits.age}"
            )
            yield Diagnosis(ERROR, "limit", text)
    if within:
        yield Diagnosis(OK, "limit", "No group is beyond the limits.")
