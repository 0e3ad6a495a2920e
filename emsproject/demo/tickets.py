"""Sells tickets: each is saved, and the task that mails it sent, or neither."""

from __future__ import annotations

from django.db import transaction

from emsproject.demo.models import Flight, Ticket
from emsproject.demo.tasks import mail_ticket


class CardDeclined(Exception):
    """The passenger has not paid."""


def sell(passenger: str, flight: Flight, *, is_paid: bool = True) -> None:
    """Save a ticket and send its task, in one transaction; raises CardDeclined.

    As in departures.py, what a real program would check first is checked last.
    """
    with transaction.atomic():
        ticket = Ticket.objects.create(passenger=passenger, flight=flight.code)
        mail_ticket.delay(ticket.pk)
        if not is_paid:
            raise CardDeclined
