"""Shows the pages that let a blocked partition go on: which one, what happens, and do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, done, page, refusal
from streams.conf import database
from streams.errors import AttemptRunning, StreamsError
from streams.models import ConsumerGroup
from streams.operate.unblock import Shown, preview, retry_now, skip


@dataclass(frozen=True)
class Verb:
    """One way to let a partition go on; ``work`` does it for a user, and returns the outcome."""

    name: str
    title: Any
    text: Any
    work: Callable[[ConsumerGroup, Shown, str], str]
    destroys: bool = False

    def respond(self, admin: Any, request: HttpRequest, group: ConsumerGroup) -> HttpResponse:
        """Return the choice of a partition, then the preview; do what that has shown."""
        try:
            if OFFER in request.POST:
                what = accepted(request, self.name, group.pk)
                if what is None:
                    raise Refused(_("This preview is not valid any more: begin again."))
                outcome = self.work(group, Shown(*what), request.user.get_username())
                return done(admin, request, group, outcome)
            return self._page(admin, request, group, **self._shown(request, group))
        except (Refused, StreamsError) as error:
            return self._page(admin, request, group, **refusal(error, {}))

    def _shown(self, request: HttpRequest, group: ConsumerGroup) -> dict[str, Any]:
        asked = request.POST.get("partition", "")
        if asked and not (asked.isascii() and asked.isdecimal() and len(asked) < 10):
            raise Refused(_("“%s” is no partition.") % asked)
        found = preview(group, database(), int(asked) if asked else None)
        if found.partitions > 1:
            return {"blockade": found, "unblock": [(self.name, self.title)]}
        (one,) = found.worst
        if one.is_running:
            raise AttemptRunning
        return {"blockade": found, OFFER: offer(request, self.name, group.pk, Shown.of(one))}

    def _page(
        self, admin: Any, request: HttpRequest, group: ConsumerGroup, **more: Any
    ) -> HttpResponse:
        context = {"title": self.title, "verb": self, "group": group, "pk": group.pk, **more}
        return page(admin, request, "unblock", context)


def _retry(group: ConsumerGroup, shown: Shown, _who: str) -> str:
    retry_now(group, shown, database())
    return _("Offset %(offset)d of partition %(partition)d: its next attempt begins now") % (
        shown._asdict()
    )


def _skip(group: ConsumerGroup, shown: Shown, who: str) -> str:
    if skip(group, shown, database(), who):
        text = _("Offset %(offset)d of partition %(partition)d: skipped, it is a dead letter now")
    else:
        text = _(
            "Offset %(offset)d of partition %(partition)d: passed; it was gone from the log, so"
            " there is no dead letter"
        )
    return text % shown._asdict()


RETRY = Verb(
    "retry",
    gettext_lazy("Retry now"),
    gettext_lazy(
        "The next attempt begins as soon as a consumer is free, without the rest of the wait. It"
        " counts as always: if it fails, the message waits again."
    ),
    _retry,
)
SKIP = Verb(
    "skip",
    gettext_lazy("Skip to dead letters"),
    gettext_lazy(
        "The group goes on with the message behind it. This one becomes a dead letter with its"
        " last error, which can be redriven later, but then it comes after those behind it."
    ),
    _skip,
    destroys=True,
)
# What lets a blocked group go on.
UNBLOCKING = {RETRY.name, SKIP.name}
