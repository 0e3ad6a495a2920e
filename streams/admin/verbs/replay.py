"""Shows the page of a group's replays: how far they are, cancel one, begin another."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, done, page, refusal
from streams.conf import database
from streams.errors import InvalidTarget, StreamsError, UnknownPartition
from streams.log.places import message_name
from streams.models import ConsumerGroup, Partition
from streams.operate.replay import Span, cancel, replays, span_of, spans, start
from streams.operate.target import Target

VERB = "replay"


def replay(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    asked = request.POST
    try:
        if OFFER in asked:
            return _start(admin, request, group)
        if "cancel" in asked:
            return _cancel(admin, request, group)
        if any(asked.get(name, "").strip() for name in ("from", "to", "message")):
            return _preview(admin, request, group)
    except (Refused, StreamsError) as error:
        return _page(admin, request, group, **refusal(error, {UnknownPartition: "partition"}))
    return _page(admin, request, group)


def _preview(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    found = asked_spans(request, group)
    what = [[span.partition.pk, span.first, span.end] for span in found]
    return _page(
        admin,
        request,
        group,
        spans=found,
        messages_in_all=sum(map(len, found)),
        offer=offer(request, VERB, group.pk, what),
    )


def asked_spans(request: HttpRequest, group: ConsumerGroup) -> list[Span]:
    names = ("from", "to", "message", "partition")
    first, end, message, number = (request.POST.get(name, "").strip() for name in names)
    if message and not (first or end):
        name = _in(message_name, "message", message)
        found: list[Span] = _in(span_of, "message", group, name, database())
        return found
    if message or not (first and end):
        missing = "message" if message else "from" if not first else "to"
        raise Refused(_("Give from and to, or one message."), missing)
    only = _integer(number, "partition") if number else None
    targets = _absolute(first, "from"), _absolute(end, "to")
    try:
        return spans(group, *targets, database(), number=only)
    except InvalidTarget as error:
        raise Refused(str(error), "from") from error


def _in(verb: Any, field: str, *args: Any) -> Any:
    """Call the verb; an error of it belongs to ``field``."""
    try:
        return verb(*args)
    except StreamsError as error:
        raise Refused(str(error), field) from error


def _start(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    what = accepted(request, VERB, group.pk)
    if what is None:
        raise Refused(_("This preview is not valid any more: begin again."))
    rows = Partition.objects.using(database()).select_related("topic")
    partitions = rows.in_bulk([pk for pk, _first, _end in what])
    if len(partitions) < len(what):
        raise Refused(_("A partition was deleted meanwhile: begin again."))
    wanted = [Span(partitions[pk], first, end) for pk, first, end in what]
    number = start(group, wanted, database())
    values = {"number": number, "spans": ", ".join(map(str, wanted))}
    return done(admin, request, group, _("Replay %(number)d begun: %(spans)s") % values)


def _cancel(admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
    number = _integer(request.POST["cancel"])
    values = {"number": number, "left": cancel(group, number, database())}
    text = _("Replay %(number)d cancelled: %(left)d messages were not given out") % values
    return done(admin, request, group, text)


def _absolute(text: str, field: str) -> Target:
    target: Target = _in(Target.parse, field, text)
    if not target.is_absolute:
        problem = _("A part of the log is from an offset or a time to another, not %r.") % text
        raise Refused(problem, field)
    return target


def _integer(text: str, field: str = "") -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Refused(_("%r is no number.") % text, field)
    return int(text)


def _page(admin: Any, request: HttpRequest, group: ConsumerGroup, **more: Any) -> HttpResponse:
    context = {
        "title": _("Replay to a group"),
        "group": group,
        "replays": replays([group], database()),
        "asked": {name: request.POST.get(name, "") for name in ("to", "message", "partition")},
        "first": request.POST.get("from", ""),
        **more,
    }
    return page(admin, request, "replay", context)
