"""Writes the worst case: two million behind, one group stuck, one blocked, 5,803 dead letters.

By rows, as five million messages of 300 topics and an hour of samples would have left them; of the
messages only those that the pages read.
"""

from __future__ import annotations

from streams.database.clock import database_now
from streams.models import Step, UtcNow
from tests.browser.worst import many
from tests.browser.worst.alarms import alarms
from tests.browser.worst.figures import GROUPS, QUIET, TOPICS
from tests.browser.worst.nights import nights
from tests.browser.worst.past import past
from tests.browser.worst.site import group, samples, topic
from tests.browser.worst.spark import by_spark
from tests.browser.worst.streams import streams
from tests.browser.worst.trouble import blocked, dead, paused, retries, stuck, traced


def make_worst() -> None:
    now = database_now("default")
    logs = {name: topic(name, *figures) for name, figures in TOPICS.items()}
    groups = {name: group(name, *figures, logs) for name, figures in GROUPS.items()}
    for number in range(QUIET):
        group(f"reader-{number}", "stock", 0, 0.0, 1, {}, logs)
    samples(now, logs, groups)
    paused(groups["pdf"])
    stuck(groups["billing"])
    blocked(groups["shipping"])
    dead(groups["ledger"])
    retries(groups["ledger"])
    traced(groups)
    by_spark(now, logs, groups)
    nights(now, logs)
    past(now, groups)
    many.topics(now)
    many.busy_topics(now, logs)
    many.handled(now, groups["ledger"])
    streams(logs)
    alarms(now)
    tick()


def tick() -> None:
    """Record that the steps have run just now."""
    for name in ("sequence", "sweep", "purge", "sample", "alarms", "notifications", "audit"):
        Step.objects.update_or_create(name=name, defaults={"last_run_at": UtcNow()})
