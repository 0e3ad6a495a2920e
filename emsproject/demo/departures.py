"""The producer's side: an airport that saves each flight and tells the others, or does neither."""

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


class Cancelled(Exception):
    """The flight never left."""


def depart(flight: Flight) -> None:
    """Save the flight and send the event, in one transaction; raises Cancelled, and does neither.

    Of course one would rather ask first. Here it is noticed last, so that the demo shows what
    becomes of a message whose transaction is rolled back: nothing.
    """
    with transaction.atomic():
        flight.save()
        send(TOPIC, flight.event(), key=flight.code)
        if flight.departed is None:
            raise Cancelled


def timetable(limit: int | None = None) -> Iterator[Flight]:
    """The first ``limit`` flights of January 2013 from New York City, departed and cancelled."""
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
