"""Works on many dead letters: preview with counts, confirmation, steps, entries in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.admin.parts import journal
from streams.admin.parts.columns import list_url
from streams.admin.parts.filters import number
from streams.admin.parts.listing import UPTO
from streams.admin.verbs.offer import OFFER
from streams.admin.verbs.page import page, typed_number
from streams.admin.verbs.plan import Plan
from streams.conf import database
from streams.database.clock import database_now
from streams.errors import StreamsError
from streams.models import Consumer, ConsumerGroup, DeadMessage, Redrive
from streams.operate.redrives import begin

TYPED, RATE, FIRST, SELECTED = "typed", "rate", "first", "_selected_action"


@dataclass(frozen=True)
class Bulk:
    """One verb for many dead letters, and its texts."""

    name: str
    verb: Callable[[DeadMessage], bool]
    title: Any
    what: Any  # says what it will do
    skips: Any  # why a letter is left out
    done: Any
    flag: int = journal.CHANGE
    typed: bool = False  # the number must be typed in: it cannot be undone
    rated: bool = False  # it can be done at a rate

    def respond(self, admin: Any, request: HttpRequest, matching: QuerySet[Any]) -> HttpResponse:
        """Return the preview, the progress after a step of the work, or a redirect to the list."""
        if OFFER not in request.POST:
            return self._preview(admin, request, matching)
        plan = Plan.accepted(request, self.name)
        if plan is None:
            admin.message_user(
                request, _("This preview is not valid any more: begin again."), messages.ERROR
            )
            return HttpResponseRedirect(request.get_full_path())
        # What was given to its group before, and has failed again since, was not counted.
        matching = matching.filter(died_at__lte=datetime.fromisoformat(plan.at))
        typed = request.POST.get(TYPED, "")
        if self.typed and not plan.has_begun and typed_number(typed) != plan.total:
            error = _("That is not the number. Nothing was done.")
            return self._preview(admin, request, plan.rows(matching), plan, error)
        if self.rated and not plan.has_begun:
            oldest = request.POST.get(FIRST, "").strip()
            if oldest:
                most = typed_number(oldest)
                if not most:
                    error = _("%r is not a number from 1 on.") % oldest
                    return self._preview(admin, request, plan.rows(matching), plan, error, FIRST)
                plan = _oldest(plan, matching, most)
            if request.POST.get(RATE, "").strip():
                return self._begin(admin, request, matching, plan)
        return self._step(admin, request, matching, plan)

    def _begin(
        self, admin: Any, request: HttpRequest, matching: QuerySet[Any], plan: Plan
    ) -> HttpResponse:
        """Let a step carry the plan out at the rate that was typed in, also without this page."""
        typed = request.POST[RATE].strip().replace(",", ".")
        ids: tuple[int, ...] | None = None
        # What was posted may be anything. A search finds at most as many as it has read.
        if plan.ids is not None or request.GET.get("q"):
            left = plan.rows(matching).filter(redriven_at=None)
            ids = tuple(left.order_by("pk").values_list("pk", flat=True))
            if not ids:
                return self._preview(admin, request, plan.rows(matching), plan)
        group = number(request.GET.get("group"))
        groups = ConsumerGroup.objects.using(database()).select_related("topic")
        try:
            row = begin(
                groups.filter(pk=group) if group else groups,
                database(),
                rate=float(typed),
                who=str(request.user),
                ids=ids,
                upto=plan.upto,
                total=plan.total,
            )
        except ValueError as error:  # also InvalidValue
            text = (
                str(error) if isinstance(error, StreamsError) else _("%r is not a number.") % typed
            )
            return self._preview(admin, request, plan.rows(matching), plan, text, RATE)
        rate = _("Redriven at %(rate)g a second, %(total)d of them") % {
            "rate": row.rate,
            "total": row.total,
        }
        journal.note(request, [(row, rate)], flag=journal.ADDITION)
        admin.message_user(request, f"{row}: {rate}.", messages.SUCCESS)
        return HttpResponseRedirect(list_url(Redrive))

    def _preview(
        self,
        admin: Any,
        request: HttpRequest,
        matching: QuerySet[Any],
        plan: Plan | None = None,
        error: str = "",
        field: str = TYPED,
    ) -> HttpResponse:
        at = database_now(database())
        groups = self._groups(matching)
        waiting = sum(group["waiting"] for group in groups)
        skipped = sum(group["all"] for group in groups) - waiting
        if not waiting:
            admin.message_user(request, _("Nothing to do: %s.") % self.skips, messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        if plan is None:
            plan = Plan(
                path=_frozen(admin, request),
                back=request.get_full_path(),
                upto=max(group["upto"] for group in groups),
                total=waiting,
                at=at.isoformat(),
                ids=None if _is_across(request) else _selected(request),
            )
        context = {
            "groups": groups,
            "skipped": skipped,
            "errors": {field: error} if error else {},
            "rated": self.rated,
            "rate": request.POST.get(RATE, ""),
            "first": request.POST.get(FIRST, ""),
            "typed": self.typed,
            **self._words(plan),
        }
        return self._page(admin, request, "bulk_preview", plan, context)

    def _step(
        self, admin: Any, request: HttpRequest, matching: QuerySet[Any], plan: Plan
    ) -> HttpResponse:
        now = plan
        outcomes: list[tuple[Any, str]] = []
        try:
            for row, done, now in plan.step(matching, self.verb):  # noqa: B007 - its last value is used
                outcomes.append((row, str(self.done) if done else _("Left out: %s") % self.skips))
        finally:
            self._note(request, plan, now, outcomes)
        plan = now
        if plan.rows(matching).exists():
            return self._page(admin, request, "bulk_progress", plan, self._words(plan))
        level = messages.SUCCESS if plan.done else messages.WARNING
        admin.message_user(request, self._result(plan), level)
        return HttpResponseRedirect(plan.back)

    def _note(
        self, request: HttpRequest, before: Plan, plan: Plan, outcomes: list[tuple[Any, str]]
    ) -> None:
        """Write an entry for each letter chosen by hand, or one with the counts for a filter."""
        if before.ids is not None:
            journal.note(request, outcomes, flag=self.flag)
            return
        step = replace(plan, done=plan.done - before.done, skipped=plan.skipped - before.skipped)
        about = _("all that match %s") % (plan.path.partition("?")[2] or _("no filter"))
        outcome = _("%(result)s Of %(total)d in the preview, up to id %(upto)d.") % {
            "result": self._result(step),
            "total": plan.total,
            "upto": plan.upto,
        }
        journal.note_bulk(request, DeadMessage, about, outcome, flag=self.flag)

    def _result(self, plan: Plan) -> str:
        result = f"{self.done}: {plan.done}."
        if plan.skipped:
            result += " " + _("Left out: %(n)d (%(why)s).") % {"n": plan.skipped, "why": self.skips}
        return result

    def _words(self, plan: Plan) -> dict[str, Any]:
        total = ngettext("%d dead letter", "%d dead letters", plan.total) % plan.total
        return {"title": self.title, "what": self.what % total, "skips": self.skips}

    def _page(
        self, admin: Any, request: HttpRequest, name: str, plan: Plan, context: dict[str, Any]
    ) -> HttpResponse:
        ours = {
            "verb": self.name,
            "plan": plan,
            OFFER: plan.offer(request, self.name),
            # Django requires a selection, also when the plan has its own rows.
            "selected": plan.ids[0] if plan.ids else 0,
        }
        return page(admin, request, name, {**ours, **context})

    @staticmethod
    def _groups(matching: QuerySet[Any]) -> list[dict[str, Any]]:
        """Return for each group how many letters match, and whether it has a live consumer."""
        rows = matching.order_by().prefetch_related(None).values("group")
        counted = rows.annotate(
            all=Count("pk"), waiting=Count("pk", filter=Q(redriven_at=None)), upto=Max("pk")
        )
        found = {row["group"]: row for row in counted}
        using = database()
        groups = ConsumerGroup.objects.using(using).select_related("topic").in_bulk(found)
        live = set(
            Consumer.objects.using(using)
            .live()
            .filter(group__in=found)
            .values_list("group", flat=True)
        )
        return [
            {**row, "group": groups.get(pk), "is_live": pk in live} for pk, row in found.items()
        ]


def _oldest(plan: Plan, matching: QuerySet[Any], most: int) -> Plan:
    """Return the plan for the oldest ``most`` of its letters alone."""
    waiting = plan.rows(matching).filter(redriven_at=None).order_by("pk")
    last = list(waiting.values_list("pk", flat=True)[most - 1 : most])
    return replace(plan, upto=last[0], total=most) if last else plan


def _is_across(request: HttpRequest) -> bool:
    return request.POST.get("select_across") == "1"


def _selected(request: HttpRequest) -> tuple[int, ...]:
    return tuple(int(pk) for pk in request.POST.getlist(SELECTED) if pk.isdecimal())


def _frozen(admin: Any, request: HttpRequest) -> str:
    """Return the URL of the list with its window fixed, so that new letters do not move it."""
    window = admin.window(request)
    if window is None:
        return request.get_full_path()
    parameters = request.GET.copy()
    parameters[UPTO] = str(window.upto)
    return f"{request.path}?{parameters.urlencode()}"
