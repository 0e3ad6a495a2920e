"""Shows the page that sends a test message: a form, who will get it, and the message sent."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from streams.admin.parts import journal
from streams.admin.verbs.edit import field_of
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, page
from streams.conf import database
from streams.errors import InvalidMessage, InvalidName, StreamsError
from streams.models import BodyType, Topic
from streams.operate.edited_letter import EditableContent
from streams.produce.outgoing import checked_row
from streams.produce.send import send

VERB = "produce"
EXAMPLE = EditableContent(
    body='{"test": true}', body_type=BodyType.JSON, key="", tag="", headers=""
)


def produce(admin: Any, request: HttpRequest, topic: Topic) -> HttpResponse:
    asked = request.POST
    content = EXAMPLE
    try:
        if OFFER in asked:
            content, once = _accepted(request, topic)
            if "again" not in asked:
                return _send(admin, request, topic, content, once)
        elif "body" in asked:
            content = _typed(request)
            return _preview(admin, request, topic, content)
    except (Refused, StreamsError) as error:
        shown: dict[str, Any] = {"error": str(error)}
        if isinstance(error, InvalidMessage | InvalidName):
            shown = {"errors": {field_of(error): str(error)}}
        return _form(admin, request, topic, content, **shown)
    return _form(admin, request, topic, content)


def _preview(
    admin: Any, request: HttpRequest, topic: Topic, content: EditableContent
) -> HttpResponse:
    using = database()
    value, headers = content.values()
    row = checked_row(using, topic.name, value, content.key or None, content.tag, headers)
    groups = topic.groups.using(using).order_by("name")
    # A form that is posted twice sends one message: the dedup key is of this preview.
    what = {"content": asdict(content), "once": str(uuid.uuid4())}
    context = {
        "title": _("Send a test message"),
        "topic": topic,
        "content": EditableContent.of(row),
        "groups": list(groups),
        OFFER: offer(request, VERB, topic.pk, what),
    }
    return page(admin, request, "produce_preview", context)


def _accepted(request: HttpRequest, topic: Topic) -> tuple[EditableContent, str]:
    what = accepted(request, VERB, topic.pk)
    if what is None:
        raise Refused(_("This preview is not valid any more: begin again."))
    return EditableContent(**what["content"]), what["once"]


def _send(
    admin: Any, request: HttpRequest, topic: Topic, content: EditableContent, once: str
) -> HttpResponse:
    using = database()
    value, headers = content.values()
    sent = send(
        topic.name,
        value,
        key=content.key or None,
        tag=content.tag,
        headers=headers,
        dedup_key=f"admin-{once}",
        using=using,
    )
    values = {"topic": topic, "id": sent.message_id}
    if sent.duplicate:
        text = _("It was sent before: message %(id)d of %(topic)s.") % values
        admin.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())
    outcome = _("Test message %(id)d sent to %(topic)s") % values
    journal.note(request, [(topic, outcome)])
    shown: Any = f"{outcome}."
    if request.user.has_perm("ems.view_message"):
        url = reverse("admin:ems_message_change", args=[sent.message_id])
        shown = format_html('<a href="{}">{}</a>', url, shown)
    admin.message_user(request, shown, messages.SUCCESS)
    return HttpResponseRedirect(request.get_full_path())


def _form(
    admin: Any, request: HttpRequest, topic: Topic, content: EditableContent, **more: Any
) -> HttpResponse:
    context = {
        "title": _("Send a test message"),
        "topic": topic,
        "content": content,
        "types": BodyType.choices,
        **more,
    }
    return page(admin, request, "produce", context)


def _typed(request: HttpRequest) -> EditableContent:
    names = ("body", "body_type", "key", "tag", "headers")
    given = {name: request.POST.get(name, "") for name in names}
    if given["body_type"] not in BodyType.values:
        given["body_type"] = BodyType.JSON
    # Browsers send the ends of lines as \r\n.
    return EditableContent(**{name: text.replace("\r\n", "\n") for name, text in given.items()})
