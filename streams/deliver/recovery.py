"""Ends the claims of a process that has died, by what its slots say.

Calls that had ended are settled, the call that ran has spent an attempt, and the rest is given
back. Each write is fenced by the token of the delivery, and each may be the last one of this
process: whoever goes on finds the rest in the tables and in the slots, which stay until all is
done. Without a slot, the end of the lease does less: it knows neither what was done nor what ran.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from streams.consume.limits import (
    Limits,
    delay_after_expiry,
    known_max_retries,
    limits,
)
from streams.consume.outcome.any_order import Ends, bits, offsets_of, settle_any_order, split
from streams.consume.outcome.expire import expire
from streams.consume.outcome.failure import Failure, Judged
from streams.consume.outcome.settle import Settlement, keep_below, release
from streams.consume.registry import find
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.deliver.closing import Closed, close, not_begun
from streams.deliver.reading import LeftOut
from streams.deliver.slot import Noted
from streams.errors import LeaseLost
from streams.models import Cursor, Delivery

# For how long locks of others are waited for before the next claim has its turn.
LOCK_PATIENCE_SECONDS = 2.0


class OutcomeLost(Exception):
    """The handler failed, and its process died before the error was written."""

    def __str__(self) -> str:
        return str(self.__doc__)


@dataclass
class Recovered:
    """What became of one claim of a process that has died."""

    delivery: Delivery
    closed: Closed | None = None  # the calls that had ended
    died: Settlement | None = None  # the call that ran
    repeated: int = 0  # messages of the call that ran
    released: int = 0


def recover(delivery_id: int, token: str, noted: Noted | None, using: str) -> Recovered | None:
    """End a claim of a process that has died; return what became of it.

    Without ``noted`` no call of it had begun. None: somebody has ended it. Raises LeaseLost if it
    changes meanwhile, or is locked: the next look goes on.
    """
    delivery = retrying(
        _as_written, using, delivery_id, token, using, patience=LOCK_PATIENCE_SECONDS
    )
    if delivery is None:
        return None
    found = Recovered(delivery)
    in_force = _limits(delivery)
    if delivery.group.ordered and noted and noted.begun is not None:
        _recover_lanes(found, noted, in_force)
        return found
    if (delivery.settled and not delivery.group.ordered) or (noted and noted.begun is not None):
        _recover_parts(found, noted, in_force.max_retries)
        return found
    end = delivery.last_offset + 1
    # What was in flight at the death is committed by now: what is settled needs no slot.
    ended, running = delivery.progress, range(0)
    if noted:
        ended = max(ended, min(noted.ended, end))
        running = range(max(noted.running.start, ended), min(noted.running.stop, end))
    if noted and ended > delivery.progress:
        failed = noted.failed.intersection(range(delivery.progress, ended))
        failures = [Failure(offset, OutcomeLost()) for offset in sorted(failed)]
        found.closed = close(delivery, ended, failures, in_force, noted.left_out)
        if delivery.progress > delivery.last_offset:
            return found
    if noted is None or not running:
        found.released = len(range(delivery.progress, end))
        release(delivery)
        return found
    called = noted.called.intersection(running)
    if len(called) < len(running) and not delivery.group.ordered:
        # Each message becomes a part with a row of its own. Whoever finds these rows takes from the
        # same slot which of them the call got, see deaths._claims.
        _recover_parts(found, replace(noted, begun=called), in_force.max_retries)
        return found
    if running.stop < end and not delivery.group.strict:
        found.released = end - running.stop
        keep_below(delivery, running.stop)
    found.repeated = len(running)
    delay = delay_after_expiry(delivery.group, delivery.attempt)
    found.died = expire(delivery, in_force.max_retries, delay, dead=True)
    if found.died is None:  # its rows are locked
        raise LeaseLost
    return found


def _recover_lanes(found: Recovered, noted: Noted, in_force: Limits) -> None:
    """End a claim in lanes. A call that had failed counts as one that ran: its outcome is lost."""
    delivery = found.delivery
    begun = noted.begun or frozenset()
    delivery.settled = bits(noted.done, delivery.first_offset) | (delivery.settled or 0)
    delivery.in_lanes = True
    done = offsets_of(delivery.settled, delivery.first_offset)
    stop = max([delivery.progress - 1, *begun]) + 1
    ran = [at for at in begun - done if at >= delivery.progress]
    found.released = delivery.last_offset + 1 - stop
    if ran:
        found.repeated = len(ran)
        delay = delay_after_expiry(delivery.group, delivery.attempt)
        found.died = expire(
            *(delivery, in_force.max_retries, delay),
            dead=True,
            begun=begun,
            passed=noted.left_out.passed,
        )
        if found.died is None:  # its rows are locked
            raise LeaseLost
        return
    if stop > delivery.progress:
        # What was absent is read once more, as a retry: it does not stop what is done behind it.
        passed = LeftOut(passed=noted.left_out.passed)
        rest = not_begun(delivery, begun, stop, passed)
        found.closed = close(delivery, stop, rest, in_force, passed)
    if delivery.progress <= delivery.last_offset:
        release(delivery)


def _recover_parts(found: Recovered, noted: Noted | None, max_retries: int) -> None:
    """End a claim that was settled in any order: what had not begun comes back together."""
    delivery = found.delivery
    begun = (noted and noted.begun) or frozenset()
    # What is noted may be of a whole claim, of which this is a part by now.
    ended = noted.done.intersection(delivery.offsets) if noted else ()
    done = bits(ended, delivery.first_offset) | (delivery.settled or 0)
    ends = Ends(delivery, done)
    if done and settle_any_order([ends], delivery.using):
        raise LeaseLost
    if ends.whole:
        return
    delay = delay_after_expiry(delivery.group, delivery.attempt)
    judged: list[Judged] = []
    for part in split(delivery, begun):
        if part.first_offset not in begun:
            found.released += len(part.offsets)
            release(part)
            continue
        found.repeated += 1
        died = expire(part, max_retries, delay, dead=True)
        if died is None:  # its rows are locked
            raise LeaseLost
        judged += died.judged
    found.died = Settlement(judged)


def _as_written(delivery_id: int, token: str, using: str) -> Delivery | None:
    """Read the delivery, if its token is still in force, after all that was in flight."""
    rows = Delivery.objects.using(using).held().filter(pk=delivery_id, token=token)
    with own_transaction(using):
        place = rows.values_list("group_id", "partition_id").first()
        if place is None:
            return None
        # The order of all locks: a transaction of the dead process has the cursor first, too.
        cursors = Cursor.objects.using(using).filter(group=place[0], partition=place[1])
        list(cursors.order_by("replay").select_for_update().values_list("pk"))
        if not list(rows.select_for_update().values_list("pk")):
            return None
        return rows.select_related("group__topic", "partition").first()  # None: without a group


def _limits(delivery: Delivery) -> Limits:
    """Return the limits in force. The process that claims the message next may know a lower one."""
    group, using = delivery.group, delivery.using
    in_force = limits(group, find(group.topic.name, group.name), using)
    known = known_max_retries(group, using)
    return replace(in_force, max_retries=sys.maxsize if known is None else known)
