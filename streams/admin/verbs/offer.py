"""Signs what a page has shown that it would do, so that a user confirms exactly this."""

from __future__ import annotations

from typing import Any

from django.core import signing
from django.http import HttpRequest

from streams.conf import database

OFFER = "offer"
VALID_SECONDS = 3600


def offer(request: HttpRequest, verb: str, about: int | str, what: Any) -> str:
    """Return the signed text for the page, ``about`` a row or a list; ``what`` must be JSON."""
    values = [str(request.user.pk), about, what]
    return signing.dumps(values, salt=_salt(verb), compress=True)


def accepted(request: HttpRequest, verb: str, about: int | str) -> Any:
    """Return what was offered to this user about this; None for another or too old offer."""
    text = request.POST.get(OFFER, "")
    try:
        user, of, what = signing.loads(text, salt=_salt(verb), max_age=VALID_SECONDS)
    except signing.BadSignature:
        return None
    return what if (user, of) == (str(request.user.pk), about) else None


def _salt(verb: str) -> str:
    # An id means another row on another database.
    return f"ems.admin.{database()}.{verb}"
