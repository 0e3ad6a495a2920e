"""Records in Django's admin log what a token has done, for the user who has created it."""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Model

from streams.http.access import Caller


def note(caller: Caller, about: Model | type[Model], text: str, *, name: str = "") -> None:
    """Write an entry about a row, or about several of a model; ``name`` says which ones.

    Nothing is written where the project has no admin, or the user is gone.
    """
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
        object_repr=(name or str(about))[:200],
        action_flag=CHANGE,
        change_message=f"API token {caller.name} ({caller.prefix}): {text}",
    )


def who(caller: Caller) -> str:
    """Return how logs and rows name a token."""
    return f"token:{caller.prefix}"
