"""Runs the step that moves the inbox into the log."""

from __future__ import annotations

from datetime import timedelta

from streams.database.retrying import retrying
from streams.log.sequencer import sequence
from streams.models import Step
from streams.models.step import SEQUENCE
from streams.wakeup import announce

# How often a sequencer records that it runs; ems_doctor reads it.
NOTE_EVERY = timedelta(seconds=5)
# The most passes of one run, so that a task ends even if the inbox fills faster than it is emptied.
PASSES = 20


def sequence_all(using: str) -> int:
    """Move the inbox into the log and wake the consumers; return how many were sequenced."""
    total = 0
    for _ in range(PASSES):
        done = sequence(using)
        total += done.sequenced
        if not done.more:
            break
    note_sequencing(using)
    if total:
        announce(using)
    return total


def note_sequencing(using: str) -> None:
    retrying(Step.objects.using(using).win, using, SEQUENCE, NOTE_EVERY)
