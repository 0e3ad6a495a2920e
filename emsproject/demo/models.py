"""Defines the tables of the demo: flights, what was handled, and tickets."""

from __future__ import annotations

from typing import Any

from django.db import models


class Flight(models.Model):
    """One departure, as in fixtures/flights.csv.gz."""

    date = models.DateField()
    scheduled = models.TimeField()
    departed = models.TimeField(null=True)
    delay = models.IntegerField("delay in minutes", null=True)
    carrier = models.CharField(max_length=2)
    number = models.PositiveIntegerField()
    tailnum = models.CharField(max_length=6, blank=True)
    origin = models.CharField(max_length=3)
    dest = models.CharField("destination", max_length=3)
    distance = models.PositiveIntegerField("distance in miles")

    def __str__(self) -> str:
        return f"{self.code} {self.date}"

    @property
    def code(self) -> str:
        return f"{self.carrier}{self.number}"

    def event(self) -> dict[str, Any]:
        """Return the body of the message for the consumers."""
        return {
            "flight": self.pk,
            "code": self.code,
            "date": self.date,
            "departed": self.departed,
            "delay": self.delay,
            "origin": self.origin,
            "dest": self.dest,
            "distance": self.distance,
        }


class Handled(models.Model):
    """The effect of one handler call on one message.

    It has no unique constraint on purpose, so that a message that was handled twice is seen.
    """

    group = models.CharField(max_length=16)
    partition = models.PositiveIntegerField()
    offset = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    flight = models.BigIntegerField()
    note = models.CharField(max_length=80)

    class Meta:
        verbose_name_plural = "handled"

    def __str__(self) -> str:
        return f"{self.group}: {self.note}"


class Ticket(models.Model):
    """A ticket that was sold, which a Celery task mails."""

    passenger = models.CharField(max_length=30)
    flight = models.CharField(max_length=8)
    mailed = models.PositiveIntegerField("times mailed", default=0)

    def __str__(self) -> str:
        return f"{self.passenger}, {self.flight}"
