"""Runs the step that purges once a night, in slices."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from django.db import Error
from django.utils import timezone

from streams.database.retrying import retrying
from streams.models import Step, UtcNow
from streams.models.step import PURGE
from streams.retain.purge import Purge

# The name of the row in ems_step that lets one process at a time purge, and the seconds after the
# end of a slice that was killed when another process may take it.
PURGE_SLICE = "purge slice"
SLICE_GRACE = 60.0
# The purge is due once a day, from this hour on, in the project's TIME_ZONE.
PURGE_HOUR = 3
DAY = timedelta(days=1)

# By alias: the id of the partition behind which the next slice of this process goes on, and whether
# an earlier slice had to leave out a partition that was locked.
_purged: dict[str, tuple[int, bool]] = {}


def purge_if_due(using: str, seconds: float) -> bool:
    """Purge for at most ``seconds``, unless a purge has finished since the last night.

    Returns whether there is more to purge. Then the next call goes on, in any process, also after
    a kill or an error.
    """
    if not retrying(_purge_is_due, using, using):
        return False
    lease = timedelta(seconds=seconds + SLICE_GRACE)
    if not retrying(Step.objects.using(using).win, using, PURGE_SLICE, lease):
        return False
    try:
        # The process that had the slice before may have finished meanwhile.
        return retrying(_purge_is_due, using, using) and _purge_slice(using, seconds)
    finally:
        with suppress(Error):  # without the delete, the row is free after the lease
            Step.objects.using(using).filter(name=PURGE_SLICE).delete()


def _purge_slice(using: str, seconds: float) -> bool:
    after, failed = _purged.pop(using, (0, False))
    work = Purge(using, seconds=seconds, after=after)
    work.failed = failed
    work.run()
    if work.finished:
        work.delete_old_rows()
    if not work.finished:
        _purged[using] = work.after, work.failed
        return True
    if not work.failed:
        note_purge(using)
    return False


def note_purge(using: str) -> None:
    """Record that all has been purged, so that the next purge begins in the next night."""
    steps, now = Step.objects.using(using), {"last_run_at": UtcNow()}
    retrying(lambda: steps.update_or_create(name=PURGE, defaults=now), using)


def _purge_is_due(using: str) -> bool:
    steps = Step.objects.using(using).filter(name=PURGE)
    row = steps.annotate(now=UtcNow()).values_list("now", "last_run_at").first()
    if row is None:
        # A new installation has nothing to purge before the next night.
        Step.objects.using(using).get_or_create(name=PURGE, defaults={"last_run_at": UtcNow()})
        return False
    now, last = row
    # A last run in the future means that the clock was set back: purge now.
    return last < _last_night(now) or last > now + DAY


def _last_night(now: datetime) -> datetime:
    """Return the last instant at which it was PURGE_HOUR."""
    local = now.astimezone(timezone.get_default_timezone())
    night = local.replace(hour=PURGE_HOUR, minute=0, second=0, microsecond=0)
    return night if night <= local else night - DAY
