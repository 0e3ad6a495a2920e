"""Shows the page that resets a group: it asks where to, previews the reset, and does it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from streams.admin.parts import journal
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, page
from streams.conf import database
from streams.errors import StreamsError
from streams.models import ConsumerGroup, Cursor
from streams.operate.reset import Goal, Move, Reset, towards
from streams.operate.target import Target

VERB = "reset"


def reset(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    asked = request.POST
    try:
        if OFFER in asked:
            return _reset(admin, request, group)
        if "undo" in asked or asked.get("to", "").strip():
            return _preview(admin, request, group)
    except (Refused, StreamsError) as error:
        return _page(admin, request, group, error=str(error))
    return _page(admin, request, group)


def _preview(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    is_undo = "undo" in request.POST
    goal = None if is_undo else towards(Target.parse(request.POST["to"]))
    number = _number(request.POST.get("partition", ""))
    moves = Reset(group, goal, database(), number=number).preview()
    if all(move.is_nothing for move in moves):
        raise Refused(_("Nothing to do: the group is there."))
    what = {"undo": is_undo, "number": number, "targets": _targets(moves)}
    return _page(admin, request, group, moves=moves, offer=offer(request, VERB, group.pk, what))


def _reset(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    what = accepted(request, VERB, group.pk)
    if what is None:
        raise Refused(_("This preview is not valid any more: begin again."))
    force = "force" in request.POST
    goal = None if what["undo"] else _exactly(dict(what["targets"]))
    here = Reset(group, goal, database(), number=what["number"], force=force)
    if what["undo"] and _targets(here.preview()) != what["targets"]:
        raise Refused(_("The group was reset meanwhile: begin again."))
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


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise Refused(_("%r is no partition.") % text)
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
