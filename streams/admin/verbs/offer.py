"""An offer: what a page has shown that it would do, signed, so that exactly this is confirmed."""

from __future__ import annotations

from typing import Any

from django.core import signing
from django.db.models import Model
from django.http import HttpRequest

OFFER = "offer"
VALID_SECONDS = 3600


def offer(request: HttpRequest, verb: str, row: Model, what: Any) -> str:
    """The text that the page holds; ``what`` must be JSON."""
    return signing.dumps([str(request.user.pk), row.pk, what], salt=f"ems.admin.{verb}")


def accepted(request: HttpRequest, verb: str, row: Model) -> Any:
    """What was offered to this user for this row; None if it is another offer, or too old."""
    text = request.POST.get(OFFER, "")
    try:
        user, pk, what = signing.loads(text, salt=f"ems.admin.{verb}", max_age=VALID_SECONDS)
    except signing.BadSignature:
        return None
    return what if (user, pk) == (str(request.user.pk), row.pk) else None
