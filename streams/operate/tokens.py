"""Issues and revokes the tokens of the HTTP API."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import IntegrityError

from streams.conf import YEARS
from streams.database.transactions import own_transaction
from streams.errors import InvalidValue
from streams.logs import event
from streams.models import ApiRight, ApiToken, UtcNow, Verb
from streams.models.token import ANY, MAX_WHO, PREFIX

logger = logging.getLogger("streams.operate")

# ems_, eight letters or digits that name the token, and 32 random bytes in Base64.
FORM = re.compile(rf"ems_([a-z0-9]{{{PREFIX}}})_([A-Za-z0-9_-]{{43}})")
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
SECRET_BYTES = 32


def digest(secret: str) -> bytes:
    """Return what is stored of a secret. It is random and long: a slow hash is for passwords."""
    return hashlib.sha256(secret.encode()).digest()


def issue(token: ApiToken, rights: Iterable[ApiRight], using: str) -> str:
    """Save a new ``token`` with its ``rights``; return its text, which is not stored."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=")
    token.hash = digest(secret)
    token.created_by = token.created_by[:MAX_WHO]
    while True:
        token.prefix = "".join(secrets.choice(ALPHABET) for _place in range(PREFIX))
        try:
            with own_transaction(using):
                token.save(using=using, force_insert=True)
                for right in rights:
                    # Set before the relation: otherwise Django would ask the project's routers.
                    right._state.db = using
                    right.token = token
                    right.save(using=using, force_insert=True)
        except IntegrityError:
            if ApiToken._base_manager.using(using).filter(prefix=token.prefix).exists():
                continue  # 36^8 prefixes: it is the first time that this happens
            raise
        logger.info(
            "Token %s is issued by %s",
            *(token, token.created_by),
            extra=event("token.issued", token=token.prefix, by=token.created_by),
        )
        return f"ems_{token.prefix}_{secret}"


def revoke(token: ApiToken, by: str, using: str) -> bool:
    """Revoke a token; tell whether it was not revoked before. In force within five seconds."""
    rows = ApiToken.objects.using(using).filter(pk=token.pk, revoked_at=None)
    if not rows.update(revoked_at=UtcNow()):
        return False
    logger.info(
        "Token %s is revoked by %s",
        *(token, by),
        extra=event("token.revoked", token=token.prefix, by=by),
    )
    return True


def right_of(text: str) -> ApiRight:
    """Return the right that ``send:orders.*`` or ``look`` names; raises InvalidValue."""
    verb, _colon, pattern = text.partition(":")
    if verb not in Verb.values:
        verbs = ", ".join(Verb.values)
        raise InvalidValue(f"There is no right {verb!r}: {verbs}.")
    right = ApiRight(verb=verb, pattern=pattern or ANY)
    try:
        right.clean()
    except ValidationError as error:
        raise InvalidValue(f"{text}: {' '.join(error.messages)}") from error
    return right


def expiry(days: int | None) -> UtcNow | None:
    """Return when a token expires that is valid for so many days; None is never.

    Raises InvalidValue for more than a century.
    """
    if days is None:
        return None
    if days > YEARS:
        raise InvalidValue(f"{days} days are longer than a century.")
    return UtcNow(timedelta(days=days))
