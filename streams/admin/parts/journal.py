"""Records in Django's admin log who did what in the admin, and with which outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest

from streams.admin.parts.columns import label

__all__ = ["ADDITION", "CHANGE", "DELETION", "note", "note_bulk"]


def note(
    request: HttpRequest, outcomes: Iterable[tuple[Model, str]], *, flag: int = CHANGE
) -> None:
    """Write one entry for each row, with its outcome."""
    LogEntry.objects.bulk_create(
        _entry(request, type(row), outcome, flag, object_id=row.pk, object_repr=label(row))
        for row, outcome in outcomes
    )


def note_bulk(
    request: HttpRequest, model: type[Model], about: str, outcome: str, *, flag: int = CHANGE
) -> None:
    """Write one entry for many rows: which ones were chosen, and the counts."""
    _entry(request, model, outcome, flag, object_id=None, object_repr=about).save()


def _entry(
    request: HttpRequest, model: type[Model], outcome: str, flag: int, **about: Any
) -> LogEntry:
    user: Any = request.user  # its key has the type that the host project has chosen
    about["object_repr"] = about["object_repr"][:200]
    return LogEntry(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(model).pk,
        action_flag=flag,
        change_message=outcome,
        **about,
    )
