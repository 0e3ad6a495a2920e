"""Shows the page that resets a group: it asks where to, previews the reset, and does it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from streams.admin.parts import journal
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, page, refusal, typed_number
from streams.conf import database
from streams.errors import (
    InvalidTarget,
    NaiveDatetime,
    OffsetOutOfRange,
    StreamsError,
    UnknownPartition,
)
from streams.models import ConsumerGroup, Cursor
from streams.operate.reset import Goal, Move, Reset, towards
from streams.operate.target import Target

VERB = "reset"

# In messages: who skips as many types in the number, since it is easily meant otherwise.
TYPED_FROM = 1000

FIELDS = {
    InvalidTarget: "to",
    NaiveDatetime: "to",
    OffsetOutOfRange: "to",
    UnknownPartition: "partition",
}


def reset(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    asked = request.POST
    try:
        if OFFER in asked:
            return _reset(admin, request, group)
        if "undo" in asked or asked.get("to", "").strip():
            return _preview(admin, request, group)
    except (Refused, StreamsError) as error:
        return _page(admin, request, group, **refusal(error, FIELDS))
    return _page(admin, request, group)


def _preview(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    is_undo = "undo" in request.POST
    number = _number(request.POST.get("partition", "").strip(), group)
    goal = None
    if not is_undo:
        target = Target.parse(request.POST["to"])
        goal, number = towards(target), target.only(group, number, database())
    moves = Reset(group, goal, database(), number=number).preview()
    if all(move.is_nothing for move in moves):
        raise Refused(_("Nothing to do: the group is there."))
    skips = sum(move.skipped for move in moves)
    what = {"undo": is_undo, "number": number, "targets": _targets(moves), "skips": skips}
    return _shown(admin, request, group, moves, what)


def _shown(
    admin: Any,
    request: HttpRequest,
    group: ConsumerGroup,
    moves: list[Move],
    what: dict[str, Any],
    **more: Any,
) -> HttpResponse:
    skips = what["skips"] if what["skips"] >= TYPED_FROM else 0
    signed = offer(request, VERB, group.pk, what)
    return _page(admin, request, group, moves=moves, offer=signed, skips=skips, **more)


def _reset(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    what = accepted(request, VERB, group.pk)
    if what is None:
        raise Refused(_("This preview is not valid any more: begin again."))
    force = "force" in request.POST
    goal = None if what["undo"] else _exactly(dict(what["targets"]))
    here = Reset(group, goal, database(), number=what["number"], force=force)
    if what["undo"] and _targets(here.preview()) != what["targets"]:
        raise Refused(_("The group was reset meanwhile: begin again."))
    typed = typed_number(request.POST.get("typed", ""))
    if what["skips"] >= TYPED_FROM and typed != what["skips"]:
        error = _("That is not the number. Nothing was done.")
        return _shown(admin, request, group, here.preview(), what, errors={"typed": error})
    moves = here.run()
    text = "; ".join(str(move) for move in moves if not move.is_nothing)
    journal.note(request, [(group, _("Reset: %s") % text)])
    admin.message_user(
        request, _("Reset %(group)s: %(text)s.") % {"group": group, "text": text}, messages.SUCCESS
    )
    return HttpResponseRedirect(request.get_full_path())


def _targets(moves: list[Move]) -> list[list[int]]:
    return [[move.partition.number, move.target] for move in moves]


def _exactly(targets: dict[int, int]) -> Goal:
    """Return the goal that the page has shown; in a partition added since, the group stays."""
    return lambda cursor, position: targets.get(cursor.partition.number, position)


def _number(text: str, group: ConsumerGroup) -> int | None:
    if not text:
        return None
    partitions = group.topic.partitions.using(database()).order_by("number")
    last = max(partitions.values_list("number", flat=True), default=0)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= last):
        values = {"text": text, "last": last}
        text = _("“%(text)s” is no partition: 0 to %(last)d, or nothing for all.") % values
        raise Refused(text, "partition")
    return int(text)


def _page(admin: Any, request: HttpRequest, group: ConsumerGroup, **more: Any) -> HttpResponse:
    rows = Cursor.objects.using(database()).filter(group=group.pk, replay=0)
    cursors = list(rows.select_related("partition__topic").order_by("partition__number"))
    context = {
        "title": _("Reset a group"),
        "group": group,
        "cursors": cursors,
        "was_reset": any(cursor.previous_offset is not None for cursor in cursors),
        "live": group.clients.using(database()).live().count(),
        "to": request.POST.get("to", ""),
        "partition": request.POST.get("partition", ""),
        **more,
    }
    return page(admin, request, "reset", context)
