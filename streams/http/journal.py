"""Records what a token has changed: in the log, and in that of the admin for its user."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Model

from streams.http.access import Caller
from streams.logs import event

logger = logging.getLogger("streams.http")


def note(caller: Caller, about: Model | type[Model], text: str, *, name: str = "") -> None:
    """Write a record about a row, or about several of a model; ``name`` says which ones.

    And an entry of the admin's log under the user who has made the token, if there is one.
    """
    text, place = f"API token {caller.name} ({caller.prefix}): {text}", name or str(about)
    logger.info(
        "%s: %s", place, text, extra=event("api.changed", token=caller.prefix, by=caller.created_by)
    )
    if not apps.is_installed("django.contrib.admin") or not caller.owner:
        return
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    users = get_user_model()
    try:
        user = users._default_manager.filter(pk=caller.owner).first()
    except (ValueError, ValidationError):  # the project has changed its model of users
        return
    if user is None:
        return
    is_row = isinstance(about, Model)
    LogEntry.objects.create(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(about).pk,
        object_id=about.pk if is_row else None,
        object_repr=place[:200],
        action_flag=CHANGE,
        change_message=text,
    )


def note_changes(caller: Caller, row: Model, changed: Mapping[str, tuple[Any, Any]]) -> None:
    """Write a record about the fields of a row that have changed, by their old and new values."""
    if changed:
        note(
            caller, row, "; ".join(f"{name}: {old} → {new}" for name, (old, new) in changed.items())
        )


def who(caller: Caller) -> str:
    """Return how logs and rows name a token."""
    return f"token:{caller.prefix}"
