"""Defines the Celery task of the demo, as any project does: nothing in it knows of EMS."""

from __future__ import annotations

from django.db.models import F

from emsproject.celery import app
from emsproject.demo.models import Ticket


@app.task
def mail_ticket(ticket: int) -> None:
    """Mail a ticket; here, count how often that was done."""
    Ticket.objects.filter(pk=ticket).update(mailed=F("mailed") + 1)
