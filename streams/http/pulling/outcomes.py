"""Records what clients say of the messages that they pulled: outcomes, longer leases, releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from django.db import connections

from streams.consume.limits import Limits, limits
from streams.consume.outcome import notices, settle
from streams.consume.outcome.failure import Failure
from streams.consume.registry import find, registration_of
from streams.database.retrying import retrying
from streams.database.sql import pull as sql
from streams.database.sql.dialect import fetch
from streams.deliver.closing import Closed, close
from streams.errors import InvalidValue, LeaseLost, Reject, Retry
from streams.http.pulling.clients import keep_lease, leave
from streams.models import Delivery, State
from streams.telemetry import handled

# A client may ask for a timeout of at most this many times the one of its group.
MOST_TIMEOUTS = 10


class HttpFailure(Exception):
    """The client says that it has failed on the message."""


@dataclass(frozen=True)
class Result:
    """What became of one message; ``delay``, in seconds, is that of a retry."""

    offset: int
    outcome: Literal["done", "retry", "reject", "fail"] = "done"
    reason: str = ""
    delay: float | None = None

    def error(self) -> Exception | None:
        """Return what a handler would have raised; raises InvalidValue."""
        if self.delay is not None and self.outcome != "retry":
            raise InvalidValue("Only a retry has a delay.")
        if self.outcome == "done":
            return None
        if self.outcome == "reject":
            return Reject(self.reason)
        if self.outcome == "fail":
            return HttpFailure(self.reason)
        try:
            return Retry(self.reason, delay=self.delay)
        except (ValueError, OverflowError) as error:
            raise InvalidValue(str(error)) from error


class Settled(NamedTuple):
    """How many offsets of the delivery are open, and which is the first of them."""

    open: int
    progress: int


def acknowledge(
    delivery: Delivery, results: Sequence[Result], running: timedelta = timedelta(0)
) -> Settled:
    """Record ``results``, which begin at the first open offset and leave none out.

    ``running`` is how long ago the delivery was claimed. The last offset ends it; in an ordered
    group the first failure does, too; in one by key all results count, and the rest is given
    back. Results that an earlier call has recorded, whose answer was
    lost, are not recorded again. Raises LeaseLost, and InvalidValue for results that are refused.
    """
    errors = [(result.offset, result.error()) for result in results]
    failures = [Failure(offset, error) for offset, error in errors if error is not None]
    if not results:
        raise InvalidValue("There are no results.")
    progress = results[-1].offset + 1
    if _recorded(delivery, results, failures):
        return _settled(delivery)
    if delivery.state != State.START:
        raise LeaseLost
    _check(delivery, results, failures)
    tell(delivery, close(delivery, progress, failures, _limits(delivery), running=running))
    return _settled(delivery)


def _recorded(delivery: Delivery, results: Sequence[Result], failures: Sequence[Failure]) -> bool:
    """Tell whether these results are what moved progress to where it is.

    Only the holder of the token moves it, and the sweep, which takes the token away. In a group by
    key a failure that blocks has ended the delivery: the results after it did not count.
    """
    ends = {results[-1].offset + 1}
    if delivery.group.by_key and delivery.state == State.RETRY:
        ends.update(failure.offset + 1 for failure in failures)
    return delivery.progress in ends and results[0].offset >= delivery.first_offset


def _check(delivery: Delivery, results: Sequence[Result], failures: Sequence[Failure]) -> None:
    first = delivery.progress
    offsets = [result.offset for result in results]
    if offsets != list(range(first, first + len(offsets))) or offsets[-1] > delivery.last_offset:
        raise InvalidValue(
            f"The results must begin at offset {first}, leave none out, and end by"
            f" {delivery.last_offset}."
        )
    if delivery.group.strict and failures and failures[0].offset != offsets[-1]:
        raise InvalidValue(
            f"The group is ordered: the failure at offset {failures[0].offset} ends the delivery,"
            " so leave out"
            " what comes after it."
        )


def _settled(delivery: Delivery) -> Settled:
    return Settled(max(0, delivery.last_offset + 1 - delivery.progress), delivery.progress)


def tell(delivery: Delivery, closed: Closed) -> None:
    """Tell what became of messages.

    What a request with the same results has recorded at the same moment is told of by that one.
    """
    if closed.settlement.by_another:
        return
    topic, group = delivery.group.topic.name, delivery.group.name
    name = f"{group} ({delivery.client_id})"
    notices.settled(delivery, closed.settlement, closed.gone, topic, name)
    handled(registration_of(topic, group), closed.outcome)


def extend(delivery: Delivery, seconds: float) -> datetime:
    """Let the delivery be held for ``seconds`` from now; return its deadline. Raises LeaseLost."""
    if delivery.state != State.START:  # its client may have left: its lease must not begin again
        raise LeaseLost
    timeout = checked_timeout(seconds, _limits(delivery))
    using = delivery.using
    keep_lease(delivery.client_id, delivery.group_id, timeout.total_seconds(), using)
    if not retrying(delivery.extend, using, timeout):
        raise LeaseLost
    found = delivery.held().values_list("deadline", flat=True)
    deadline: datetime | None = retrying(found.first, using)
    if deadline is None:
        raise LeaseLost
    return deadline


def checked_timeout(seconds: float | None, limits: Limits) -> timedelta:
    """Return how long a client may take; by default as long as the group. Raises InvalidValue."""
    if seconds is None:
        return limits.consume_timeout
    most = limits.consume_timeout * MOST_TIMEOUTS
    if not 1 <= seconds <= most.total_seconds():
        raise InvalidValue(
            f"The timeout must be 1 … {most.total_seconds():.0f} seconds for this group."
        )
    return timedelta(seconds=seconds)


def give_back(delivery: Delivery) -> None:
    """Release what is open of the delivery, with its attempts unspent. Raises LeaseLost."""
    if delivery.state != State.START:
        raise LeaseLost
    settle.release(delivery)


def forget_client(client: str, group_id: int, using: str) -> int:
    """Release all that the client holds in the group, and delete it; return how many deliveries."""
    vendor = connections[using].vendor
    ids = retrying(fetch, using, using, sql.HELD_BY_CLIENT[vendor], [group_id, client])
    released = 0
    for (pk,) in ids:
        rows = Delivery.objects.using(using).held().filter(pk=pk)
        delivery = rows.select_related("group__topic", "partition").first()
        if delivery is None:
            continue
        try:
            settle.release(delivery)
        except LeaseLost:
            continue  # settled, or taken away, at this moment
        released += 1
    leave(client, group_id, using)
    return released


def _limits(delivery: Delivery) -> Limits:
    group = delivery.group
    return limits(group, find(group.topic.name, group.name), delivery.using)
