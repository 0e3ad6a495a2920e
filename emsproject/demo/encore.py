"""Plays the encore of the demo: a delayed message, order by key, a replay, and a Celery task."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from emsproject.demo.interruption import Interruption
from emsproject.demo.models import Flight, Handled, Ticket
from emsproject.demo.processes import Child, celery, manage, running
from streams import send
from streams.conf import database
from streams.models import ConsumerGroup, Delivery, Message, Partition
from streams.observe.audit.walk import audit
from streams.operate import replay
from streams.operate.topics import create

CALLS, GATES = "calls", "gates"
GATE, TOWER = "gate", "tower"
STEPS = ("boarding", "push back", "take-off")
PLANES = 4
PARTITIONS = 3
DELAY_SECONDS = 2.0
LOOK_SECONDS = 0.05
# More than a busy machine needs to start a process.
TIMEOUT_SECONDS = 120.0
# The topic of Celery's default queue.
TASKS = "celery.celery"


class Encore:
    """Four more features, with two more processes; ``run()`` returns what was wrong."""

    def __init__(
        self,
        flights: Sequence[Flight],
        folder: Path,
        console: Console,
        interruption: Interruption,
    ) -> None:
        self._planes = {flight.code: flight for flight in flights[:PLANES]}
        self._folder = folder
        self._console = console
        self._interruption = interruption
        self._wrong: list[str] = []

    def run(self) -> list[str]:
        create(GATES, PARTITIONS, database())
        consume = manage(
            "ems_consume",
            "--no-supervisor",
            "--start",
            "earliest",
            "--topic",
            CALLS,
            "--topic",
            GATES,
        )
        # What workers say to each other is of no use to one worker.
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        work = celery("worker", "--pool", "solo", *quiet)
        commands = {"encore": consume, "celery": work}
        self._console.print("An encore:")
        with running(commands, self._folder, self._interruption) as (consumer, worker):
            self._send()
            self._in_order(consumer)
            self._replayed(consumer)
            self._delayed(consumer)
            self._with_its_row(worker)
        return [*self._wrong, *map(str, audit(database()))]

    def _send(self) -> None:
        # The consumers import this module, and need no Celery.
        from emsproject.demo.tickets import CardDeclined, sell

        flight = next(iter(self._planes.values()))
        send(CALLS, flight.event(), key=flight.code, delay=DELAY_SECONDS)
        for step in STEPS:
            for code, plane in self._planes.items():
                send(GATES, {**plane.event(), "step": step}, key=code)
        with suppress(CardDeclined):
            sell("Smith", flight, is_paid=False)
        sell("Jones", flight)  # the last one: when its task has run, one of Smith would have, too

    def _in_order(self, consumer: Child) -> None:
        rows = Handled.objects.filter(group=TOWER).order_by("id")
        steps = len(STEPS) * len(self._planes)
        self._wait(consumer, lambda: rows.count() == steps)
        for code in self._planes:
            seen = [row.note for row in rows if row.note.startswith(f"{code} ")]
            if seen != [f"{code} {step}" for step in STEPS]:
                self._wrong.append(f"out of order: {', '.join(seen)}")
        again = rows.filter(attempt__gt=1).count()
        self._say(
            "in order",
            f"{steps} steps of {len(self._planes)} planes, each plane's one after the other,"
            f" though {again} came at the second attempt",
        )

    def _replayed(self, consumer: Child) -> None:
        group = ConsumerGroup.objects.get(name=TOWER)
        full = Partition.objects.filter(topic__name=GATES, next_offset__gt=0).order_by("number")
        partition = full.select_related("topic")[0]
        before = Handled.objects.filter(group=TOWER).count()
        span = replay.Span(partition, 0, partition.next_offset)
        replay.start(group, [span], database())
        again = before + len(span)
        self._wait(consumer, lambda: Handled.objects.filter(group=TOWER).count() == again)
        self._say("replayed", f"{len(span)} messages of {partition} to the group {TOWER}")

    def _delayed(self, consumer: Child) -> None:
        self._wait(consumer, lambda: Handled.objects.filter(group=GATE).exists())
        sent = Message.objects.get(partition__topic__name=CALLS).created_at
        claimed = Delivery.objects.get(group__name=GATE).claimed_at
        late = (claimed - sent).total_seconds()
        if late < DELAY_SECONDS:
            self._wrong.append(f"a delayed message came after {late:.2f} s")
        self._say("delayed", f"sent for {DELAY_SECONDS:g} s later, came after {late:.2f} s")

    def _with_its_row(self, worker: Child) -> None:
        self._wait(worker, lambda: Ticket.objects.filter(mailed__gt=0).exists())
        tickets = list(Ticket.objects.values_list("passenger", "mailed"))
        tasks = Message.objects.filter(partition__topic__name=TASKS).count()
        if tickets != [("Jones", 1)] or tasks != 1:
            self._wrong.append(
                f"tickets and how often they were mailed: {tickets}, by {tasks} tasks"
            )
            return
        self._say("celery", "a ticket and its task, committed: it is there, and its task ran once")
        self._say("", "a ticket and its task, rolled back: no ticket, and never a task")

    def _say(self, name: str, text: str) -> None:
        self._console.print(f"  {name:9} {text}", markup=False, soft_wrap=True)

    def _wait(self, consumer: Child, done: Callable[[], bool]) -> None:
        limit = time.monotonic() + TIMEOUT_SECONDS
        while not done():
            self._interruption.check()
            consumer.check()
            if time.monotonic() > limit:
                self._wrong.append("the encore does not come to an end")
                return
            time.sleep(LOOK_SECONDS)
