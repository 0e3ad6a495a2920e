"""Commits, rolls back and sends prepared messages: a preview, what is typed in, and the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.admin.parts import journal
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import page, typed_number
from streams.conf import database
from streams.errors import StreamsError
from streams.models import PreparedRow, PreparedState
from streams.two_phase.decide import commit, roll_back
from streams.two_phase.operator import send_again, send_anyway
from streams.two_phase.record import OPERATOR

# The most messages of one selection.
AT_MOST = 50


def _commit(row: PreparedRow, by: str) -> str:
    done = commit(row.biz, row.biz_key, by=by, using=database())
    if done.state == PreparedState.SENT:
        return _("Committed")
    return _("Committed, and waits for its topic: %s") % done.last_error


def _roll_back(row: PreparedRow, by: str) -> str:
    roll_back(row.biz, row.biz_key, by=by, using=database())
    return _("Rolled back")


def _resend(row: PreparedRow, by: str) -> str:
    if row.state == PreparedState.ROLLED_BACK:
        return _("Sent anyway") if send_anyway(row, by, database()) else _("It was sent before")
    return _("Sent") if send_again(row, database()) else _("It cannot be sent yet")


@dataclass(frozen=True)
class Verb:
    """Holds one verb, the states in which it is possible, and its texts."""

    name: str
    work: Callable[[PreparedRow, str], str]
    states: tuple[str, ...]
    title: Any
    text: Any

    def is_possible(self, row: PreparedRow) -> bool:
        """Tell whether it may be done; to roll back what is disputed says that this was right."""
        return row.state in self.states or (self.name == "rollback" and row.is_disputed)

    def respond(self, admin: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse:
        """Return the preview; what was shown is done once its key or number is typed in."""
        rows = list(chosen.order_by("pk")[: AT_MOST + 1])
        possible = [row for row in rows if self.is_possible(row)]
        if len(rows) > 1:  # of several, only those that wait for a person
            possible = [row for row in possible if row.state == PreparedState.MANUAL]
        if not possible or len(rows) > AT_MOST:
            text = _("Nothing was done: choose one, or at most %d that wait for a person.")
            admin.message_user(request, text % AT_MOST, messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        shown = [[row.pk, row.state] for row in possible]
        typed = request.POST.get("typed", "")
        if accepted(request, self.name, request.path) != shown:
            return self._page(admin, request, possible, shown, "")
        if not self._is_right(typed, possible):
            text = _("That is not it. Nothing was done.")
            return self._page(admin, request, possible, shown, text)
        by = f"{OPERATOR}{request.user.get_username()}"
        for row in possible:
            try:
                outcome, level = self.work(row, by), messages.SUCCESS
            except StreamsError as error:
                outcome, level = str(error), messages.ERROR
            journal.note(request, [(row, outcome)])
            admin.message_user(request, f"{row}: {outcome}.", level)
        return HttpResponseRedirect(request.get_full_path())

    @staticmethod
    def _is_right(typed: str, rows: list[PreparedRow]) -> bool:
        if len(rows) == 1:
            return bool(typed.strip() == rows[0].biz_key)
        return typed_number(typed) == len(rows)

    def _page(
        self,
        admin: Any,
        request: HttpRequest,
        rows: list[PreparedRow],
        shown: list[list[Any]],
        error: str,
    ) -> HttpResponse:
        one = rows[0].biz_key if len(rows) == 1 else None
        asked = (
            _("To go on, type how many there are.")
            if one is None
            else _("To go on, type its key: %s") % one
        )
        context = {
            "title": self.title,
            "text": self.text,
            "verb": self.name,
            "rows": rows,
            "asked": asked,
            "errors": {"typed": error} if error else {},
            OFFER: offer(request, self.name, request.path, shown),
        }
        return page(admin, request, "prepared_verb", context)


UNDECIDED = (PreparedState.PREPARED, PreparedState.MANUAL)
COMMIT = Verb(
    "commit",
    _commit,
    UNDECIDED,
    gettext_lazy("Commit prepared messages"),
    gettext_lazy("They will be sent to their topics. This cannot be undone."),
)
ROLL_BACK = Verb(
    "rollback",
    _roll_back,
    UNDECIDED,
    gettext_lazy("Roll back prepared messages"),
    gettext_lazy("They will not be sent. A caller that comes later to commit gets an error."),
)
RESEND = Verb(
    "resend",
    _resend,
    (PreparedState.UNSENT, PreparedState.ROLLED_BACK),
    gettext_lazy("Send prepared messages"),
    gettext_lazy(
        "What could not be sent is tried again. What was rolled back is sent anyway, once."
    ),
)
