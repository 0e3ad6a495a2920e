"""Shows the page that deletes a topic, and records it."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from streams.admin.parts import journal
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, done, page
from streams.conf import database
from streams.errors import StreamsError
from streams.models import Topic
from streams.operate import topic_deletion

# In rows: to delete more takes longer than a web request should.
DELETE_AT_MOST = 20_000


def remove(admin: Any, request: HttpRequest, topic: Topic) -> HttpResponse:
    """Show what would be deleted; when its name is typed in, delete the topic.

    SETTLED_SECONDS must be between both requests, since sends may still be under way. The page
    has, signed, the time at which the retired topic was shown.
    """
    work = topic_deletion.TopicDeletion(topic, database())
    try:
        contents = _contents(work)
    except (Refused, StreamsError) as error:
        admin.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())
    shown = {
        "title": _("Delete a topic"),
        "text": _(
            "The topic %s will be deleted with all of the rows below. This cannot be undone."
            " If anybody sends to it later, or consumes it, a new one is made."
        )
        % topic,
        "asked": _("To go on, type the name of the topic: %s") % topic,
        "contents": contents,
    }
    since = _since(request, topic)
    if since is None:
        return _page(admin, request, topic, shown)
    left = since + topic_deletion.SETTLED_SECONDS - time.time()
    shown |= {OFFER: request.POST[OFFER], "typed": request.POST.get("typed", "")}
    if request.POST.get("typed") != topic.name:
        shown["errors"] = {"typed": _("That is not its name. Nothing was done.")}
    elif left > 0:
        shown["error"] = _("Sends may be under way: wait for %d seconds, and try again.") % (
            left + 1
        )
    else:
        try:
            work.finish()
        except StreamsError as error:
            shown["error"] = str(error)
        else:
            text = ", ".join(f"{count} {name}" for name, count in contents.items())
            return done(admin, request, topic, _("Deleted, with %s") % text, journal.DELETION)
    return _page(admin, request, topic, shown)


def _contents(work: topic_deletion.TopicDeletion) -> dict[str, int]:
    if obstacles := work.obstacles():
        raise Refused(" ".join(obstacles))
    contents = work.contents(DELETE_AT_MOST + 1)
    if sum(contents.values()) > DELETE_AT_MOST:
        values = {"topic": work.topic, "rows": DELETE_AT_MOST}
        raise Refused(
            _(
                "%(topic)s has more than %(rows)d rows, too many for a web page: run"
                " “manage.py ems_topics delete”."
            )
            % values
        )
    return contents


def _since(request: HttpRequest, topic: Topic) -> float | None:
    """Return when this user was shown the preview of this topic, which was retired by then."""
    at: float | None = accepted(request, "remove", topic.pk)
    return at


def _page(admin: Any, request: HttpRequest, topic: Topic, shown: dict[str, Any]) -> HttpResponse:
    now = offer(request, "remove", topic.pk, time.time())
    return page(admin, request, "topic_delete", {"topic": topic, OFFER: now, **shown})
