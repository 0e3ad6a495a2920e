"""Produces: an airport saves each flight and sends an event for it, or does neither."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import date, time
from itertools import islice

from django.conf import settings
from django.db import transaction

from emsproject.demo.models import Flight
from streams import send

TOPIC = "flights"
TIMETABLE = settings.BASE_DIR / "fixtures" / "flights.csv.gz"


class DepartureCancelled(Exception):
    """The flight never left."""


def depart(flight: Flight) -> None:
    """Save the flight and send the event, in one transaction; raises DepartureCancelled.

    A real program would check this first. Here it is checked last, so that the demo shows that a
    message whose transaction is rolled back is never delivered.
    """
    with transaction.atomic():
        flight.save()
        send(TOPIC, flight.event(), key=flight.code)
        if flight.departed is None:
            raise DepartureCancelled


def timetable(limit: int | None = None) -> Iterator[Flight]:
    """Yield the first ``limit`` flights of January 2013 from New York City, also cancelled ones."""
    with gzip.open(TIMETABLE, "rt", encoding="utf-8", newline="") as file:
        for row in islice(csv.DictReader(file), limit):
            yield Flight(
                date=date.fromisoformat(row["date"]),
                scheduled=time.fromisoformat(row["scheduled"]),
                departed=time.fromisoformat(row["departed"]) if row["departed"] else None,
                delay=int(row["delay"]) if row["delay"] else None,
                carrier=row["carrier"],
                number=int(row["flight"]),
                tailnum=row["tailnum"],
                origin=row["origin"],
                dest=row["dest"],
                distance=int(row["distance"]),
            )
