"""Writes dead letters as CSV for a spreadsheet: the newest first, streamed, at most AT_MOST."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Substr
from django.http import StreamingHttpResponse
from django.utils.translation import gettext as _

from streams.errors import DamagedBody
from streams.models import BodyType, DeadMessage
from streams.nouns.at_place import with_names
from streams.nouns.letter import LetterShown
from streams.rules.stored_body import beginning, bytes_to_cut

AT_MOST = 50_000
# Letters of one statement.
PAGE = 500
# In bytes: what is written of a body.
BODY_BYTES = 4000

COLUMNS = (
    *("id", "topic", "group", "partition", "offset", "message_id", "key", "tag"),
    *("attempts", "sent_at", "died_at", "redriven_at", "edited_at"),
    *("error_class", "error", "body_type", "size", "body"),
)
# A spreadsheet takes a cell that begins with one of these for a formula, and runs it.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def respond(rows: QuerySet[DeadMessage]) -> StreamingHttpResponse:
    """Return the rows as a file. What dies or is deleted meanwhile may be in it or not."""
    # The ids first: each page by itself would sort all rows that match the filters.
    ids = list(rows.order_by("-pk").values_list("pk", flat=True)[: AT_MOST + 1])
    response = StreamingHttpResponse(_lines(rows, ids), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="dead-letters.csv"'
    return response


def _lines(rows: QuerySet[DeadMessage], ids: Sequence[int]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    rest = {"has_body": True, "damaged": False, "headers": {}, "traceback": ""}
    yield writer.writerow(COLUMNS)
    for start in range(0, min(len(ids), AT_MOST), PAGE):
        chosen = ids[start : min(start + PAGE, AT_MOST)]
        page = rows.model._base_manager.using(rows.db).filter(pk__in=chosen).order_by("-pk")
        page = page.defer("body", "headers", "traceback")
        cut = Substr("body", 1, bytes_to_cut(BODY_BYTES))
        page = page.annotate(cut=cut, stored_type=F("body_type"))
        for row in with_names(page, rows.db):
            letter = LetterShown.of(row, body=_text(row), **rest)
            yield writer.writerow([cell(getattr(letter, name)) for name in COLUMNS])
    if len(ids) > AT_MOST:
        yield writer.writerow([_("There are more than %d: narrow the list.") % AT_MOST])


def _text(letter: Any) -> str:
    """Return the begin of the body as text; nothing of bytes."""
    if letter.body_type == BodyType.BYTES:
        return ""
    try:
        begin = beginning(letter.cut, letter.stored_type, BODY_BYTES)
    except DamagedBody as error:
        return str(error)
    return begin.decode(errors="replace")


def cell(value: Any) -> Any:
    """Return the value as a cell that no spreadsheet takes for a formula."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULAS):
        return f"'{value}"
    return value


class _Echo:
    """A file whose ``write`` returns what csv writes."""

    def write(self, line: str) -> str:
        return line
