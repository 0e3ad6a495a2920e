"""Shows the page that rehearses messages: a part of the log, or dead letters, of one group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from streams.admin.parts.figures import BAD, GOOD, WARNING
from streams.admin.verbs.page import Refused, page, refusal, typed_number
from streams.conf import database
from streams.consume.outcome.dead_letter import newest
from streams.errors import StreamsError, UnknownPartition
from streams.models import ConsumerGroup
from streams.operate.rehearsal import FAILS, PASSES, UNCLEAR, Rehearsal, rehearsable, rehearse
from streams.operate.replay import Span, named_spans
from streams.operate.undone import databases

# In messages and seconds: a web request is short. The command takes more.
MOST = 100
SECONDS = 10


def of_group(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    """Ask which messages, and show what came of them."""
    context: dict[str, Any] = {}
    try:
        context["handler"] = rehearsable(group).name
        if any(request.POST.get(name, "").strip() for name in ("from", "to", "message")):
            context["result"] = _rehearsed(request, group, spans=_spans(request, group))
        elif typed := request.POST.get("newest", "").strip():
            number = typed_number(typed)
            if not number:
                raise Refused(_("%r is not a number from 1 on.") % typed, "newest")
            letters = newest(group, min(number, MOST + 1), database())
            context["result"] = _rehearsed(request, group, letters=letters)
    except (Refused, StreamsError) as error:
        context |= refusal(error, {UnknownPartition: "partition"})
    return _page(admin, request, group, context)


def of_letters(admin: Any, request: HttpRequest, letters: QuerySet[Any]) -> HttpResponse | None:
    """Say what will be called for the chosen dead letters, and show what came of them."""
    chosen = list(letters.select_related("group__topic").order_by("-pk")[: MOST + 1])
    if len({letter.group_id for letter in chosen}) != 1:
        text = _("Dead letters of one group are rehearsed at a time: filter the list by it.")
        admin.message_user(request, text, messages.WARNING)
        return None
    group, ids = chosen[0].group, [letter.pk for letter in chosen]
    context: dict[str, Any] = {"letters": ids}
    try:
        context["handler"] = rehearsable(group).name
        if "run" in request.POST:
            context["result"] = _rehearsed(request, group, letters=ids)
    except StreamsError as error:
        context |= refusal(error, {})
    return _page(admin, request, group, context)


def _spans(request: HttpRequest, group: ConsumerGroup) -> list[Span]:
    names = ("from", "to", "message", "partition")
    first, end, message, number = (request.POST.get(name, "").strip() for name in names)
    only = typed_number(number)
    if number and only is None:
        raise Refused(_("%r is not a number.") % number, "partition")
    return named_spans(group, first, end, message, database(), only)


def _rehearsed(request: HttpRequest, group: ConsumerGroup, **what: Any) -> Rehearsal:
    by = request.user.get_username()
    return rehearse(group, database(), by=by, limit=MOST, seconds=SECONDS, **what)


def _page(
    admin: Any, request: HttpRequest, group: ConsumerGroup, context: dict[str, Any]
) -> HttpResponse:
    result: Rehearsal | None = context.get("result")
    levels: dict[str, tuple[str, str]] = {
        PASSES: (_("passes"), GOOD),
        FAILS: (_("fails"), BAD),
        UNCLEAR: (_("unclear"), WARNING),
    }
    rows: Sequence[Any] = [
        (one, *levels[one.state], timedelta(seconds=one.seconds))
        for one in (result.messages if result else ())
    ]
    counts = [
        (*levels[state], result.count(state)) for state in levels if result and result.count(state)
    ]
    names = ("from", "to", "partition", "message", "newest")
    shown = {
        "title": _("Rehearse messages"),
        "group": group,
        "databases": ", ".join(databases()),
        "most": MOST,
        "asked": {name: request.POST.get(name, "") for name in names},
        "rows": rows,
        "counts": counts,
        **context,
    }
    return page(admin, request, "rehearse", shown)
