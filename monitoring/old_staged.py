"""Deletes what Spark writes have left that will do nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from monitoring.models import LedgerEntry, StagedMessage
from streams.database.batches import delete_all
from streams.models import UtcNow

# A write deletes its rows at its end. Those of a killed one are left: of a stream until its next
# batch, of others until this age.
KEPT = timedelta(days=7)
# The entry of a write that has no number: see sparkjobs/sink/commit.py.
UNNUMBERED = -1


def old_staged(using: str) -> Iterator[int]:
    """Delete them in small batches; yield how many each has deleted."""
    rows = StagedMessage.objects.using(using)
    yield from delete_all(rows.filter(staged_at__lt=UtcNow(-KEPT)).order_by("pk"), using)
    entries = LedgerEntry.objects.using(using).filter(batch=UNNUMBERED)
    yield from delete_all(entries.filter(done_at__lt=UtcNow(-KEPT)).order_by("pk"), using)
