"""Runs the step that moves the inbox into the log."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta

from streams.database.binary_log import bodies_left_out
from streams.database.retrying import retrying
from streams.log import kept_ends
from streams.log.sequencer import UNSETTLED_SECONDS, partitions_with_inbox, sequence
from streams.models import Step
from streams.models.step import SEQUENCE
from streams.steps.time_limit import TimeLimit
from streams.wakeup import announce

# How often a sequencer records that it runs; ems_doctor reads it.
NOTE_EVERY = timedelta(seconds=5)


def sequence_all(using: str) -> int:
    """Move the inbox into the log and wake the consumers; return how many were sequenced.

    Consumers are woken after each pass. The run ends in time even if the inbox fills faster than
    it is emptied. After a failover it waits until offsets may be given.
    """
    limit = TimeLimit(SEQUENCE, using)
    total = 0
    while True:
        partitions = partitions_with_inbox(using)
        with bodies_left_out(using) if partitions else nullcontext():
            done = sequence(using, partitions, until=limit.ends)
        total += done.sequenced
        if done.sequenced:
            announce(using)
        note_sequencing(using)
        kept_ends.of(using).keep_if_due()
        if not (done.more or done.unsettled):
            return total
        if limit.over:
            limit.say()
            return total
        if not done.more:
            # A worker may have a process for each task: then each one would come here anew.
            time.sleep(UNSETTLED_SECONDS)


def note_sequencing(using: str) -> None:
    retrying(Step.objects.using(using).win, using, SEQUENCE, NOTE_EVERY)
