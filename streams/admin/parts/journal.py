"""Records in Django's admin log who did what in the admin, and with which outcome.

The log is one table for all databases. What was done on another one than ``EMS["DATABASE"]`` has
its alias before the id, since the same id is another row there: ``clicks:7``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest

from streams.admin.parts.columns import label
from streams.conf import database, settings
from streams.sharding import aliases

__all__ = [
    "ADDITION",
    "CHANGE",
    "DELETION",
    "is_home",
    "note",
    "note_bulk",
    "parted",
    "placed",
    "placed_id",
]


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


def placed(entry: LogEntry) -> LogEntry:
    """Return an entry that Django has written, after saying in it where the row is."""
    if not is_home():
        entry.object_id = placed_id(entry.object_id)
        entry.object_repr = _named(entry.object_repr)
        entry.save(update_fields=["object_id", "object_repr"])
    return entry


def placed_id(pk: Any) -> str:
    """Return the id of a row of the page's database, as the log has it."""
    return str(pk) if is_home() else f"{database()}:{pk}"


def parted(object_id: str) -> tuple[str, str]:
    """Return the alias and the id of what the log has; the alias is empty if it says none."""
    alias, colon, pk = object_id.partition(":")
    return (alias, pk) if colon and alias in aliases() else ("", object_id)


def is_home() -> bool:
    """Tell whether the page is of the database whose ids the log has as they are."""
    return database() == settings().DATABASE


def _named(text: str) -> str:
    suffix = "" if is_home() else f" ({database()})"
    return text[: 200 - len(suffix)] + suffix


def _entry(
    request: HttpRequest, model: type[Model], outcome: str, flag: int, **about: Any
) -> LogEntry:
    user: Any = request.user  # its key has the type that the host project has chosen
    about["object_repr"] = _named(about["object_repr"])
    if about["object_id"] is not None:
        about["object_id"] = placed_id(about["object_id"])
    return LogEntry(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(model).pk,
        action_flag=flag,
        change_message=outcome,
        **about,
    )
