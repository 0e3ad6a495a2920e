"""Signs what an answer has shown that it would do, so that exactly this is done."""

from __future__ import annotations

from typing import Any

from django.core import signing

from streams.http.access import Caller
from streams.http.problems import Problem

VALID_SECONDS = 600


def offer(caller: Caller, verb: str, about: str, what: Any) -> str:
    """Return the signed text; it is of use to the same token alone. ``what`` must be JSON."""
    return signing.dumps([caller.prefix, about, what], salt=_salt(verb), compress=True)


def accepted(caller: Caller, verb: str, about: str, text: str) -> Any:
    """Return what was offered; raises Problem (409) for another or too old offer."""
    try:
        prefix, of, what = signing.loads(text, salt=_salt(verb), max_age=VALID_SECONDS)
    except signing.BadSignature:
        prefix = of = what = None
    if (prefix, of) != (caller.prefix, about):
        raise Problem(
            409,
            "preview_expired",
            f"The token of a preview is valid for {VALID_SECONDS // 60} minutes, for what it was"
            " made for: ask for a new preview.",
        )
    return what


def _salt(verb: str) -> str:
    return f"ems.http.{verb}"
