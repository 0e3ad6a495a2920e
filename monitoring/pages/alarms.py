"""Shows the alarms, rules and channels; acknowledges, mutes and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from monitoring.alarms import firing
from monitoring.alarms.delivering import send_test
from monitoring.alarms.rules import Rule, UnknownRule, mute, rules
from monitoring.alarms.texts import figure, span
from monitoring.models import (
    Alarm,
    AlarmChannel,
    AlarmNotification,
    AlarmRule,
    AlarmState,
    Metric,
    Severity,
)
from monitoring.pages.base import FiguresPage
from streams.admin.parts import journal
from streams.conf import database, working_on
from streams.models import ConsumerGroup
from streams.sharding import home_of

LEVELS = {Severity.CRITICAL: "bad", Severity.WARNING: "warning", Severity.INFO: "quiet"}
RESOLVED_AT_MOST = 20
# How long a rule can be muted here; a command takes any time.
MUTES = {"1": gettext_lazy("1 h"), "8": gettext_lazy("8 h"), "72": gettext_lazy("3 d")}

ACKNOWLEDGE = "ems_monitoring.acknowledge_alarm"
MUTE = "ems_monitoring.mute_alarmrule"
TEST = "ems_monitoring.test_alarmchannel"


@dataclass(frozen=True)
class AlarmRow:
    """What the page shows of an alarm."""

    pk: int
    rule: str
    subject: str
    url: str
    severity: str
    severity_text: str
    level: str
    state: str
    label: str
    value: str
    threshold: str
    detail: str
    runbook: str
    since: datetime  # when the condition began; it has to hold for the rule's time before it fires
    fired_at: datetime | None
    age: timedelta  # since then; of a resolved one, until it was resolved
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    resolved_at: datetime | None


@dataclass(frozen=True)
class RuleRow:
    """What the page shows of a rule."""

    name: str
    label: str
    condition: str
    scope: str
    severity_text: str
    level: str
    enabled: bool
    is_changed: bool
    muted_until: datetime | None
    url: str


@dataclass(frozen=True)
class ChannelRow:
    """What the page shows of a channel: nothing of it that is secret."""

    pk: int
    name: str
    kind: str
    target: str
    enabled: bool
    is_down: bool
    last_sent_at: datetime | None
    last_failed_at: datetime | None
    error: str
    waiting: int
    url: str


class AlarmsPage(FiguresPage):
    name = "alarms"
    route = "alarms/"
    title = gettext_lazy("Alarms")
    template_name = "ems_monitoring/alarms.html"
    tab: ClassVar[str] = "alarms"
    permissions: ClassVar[tuple[str, ...]] = ("ems_monitoring.view_alarm",)
    http_method_names = ["get", "head", "options", "post"]

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        unresolved = firing(self.using)
        resolved = Alarm.objects.using(self.using).filter(state=AlarmState.RESOLVED)
        newest = list(resolved.order_by("-resolved_at")[:RESOLVED_AT_MOST])
        groups = self._groups({row.group for row in [*unresolved, *newest] if row.group})
        shown = [self._alarm(row, groups) for row in unresolved]
        return {
            "firing": [row for row in shown if row.state == AlarmState.FIRING],
            "acknowledged": [row for row in shown if row.state == AlarmState.ACKNOWLEDGED],
            "resolved": [self._alarm(row, groups) for row in newest],
            "channels": self._channels() if self.may_view(AlarmChannel) else None,
            "rules": self._rules() if self.may_view(AlarmRule) else None,
        }

    def render(self, request: HttpRequest, figures: Mapping[str, Any]) -> HttpResponse:
        user: Any = request.user
        may = {
            "may_acknowledge": user.has_perm(ACKNOWLEDGE),
            "may_mute": user.has_perm(MUTE),
            "may_test": user.has_perm(TEST),
            "may_change_rules": user.has_perms(
                ("ems_monitoring.add_alarmrule", "ems_monitoring.change_alarmrule")
            ),
            "may_add_channels": user.has_perm("ems_monitoring.add_alarmchannel"),
            "may_change_channels": user.has_perm("ems_monitoring.change_alarmchannel"),
        }
        urls = {
            "add_rule": reverse("admin:ems_monitoring_alarmrule_add"),
            "add_channel": reverse("admin:ems_monitoring_alarmchannel_add"),
        }
        return super().render(request, {**figures, **may, **urls, "mutes": MUTES})

    # -- what a user does --

    def post(self, request: HttpRequest, **arguments: Any) -> HttpResponse:
        self.using = database()
        verbs: dict[str, tuple[str, Callable[[HttpRequest], bool]]] = {
            "acknowledge": (ACKNOWLEDGE, self._acknowledge),
            "mute": (MUTE, self._mute),
            "test": (TEST, self._test),
        }
        permission, verb = verbs.get(request.POST.get("verb", ""), ("", None))
        if verb is None:
            return HttpResponseBadRequest(_("This page has no such verb."))
        user: Any = request.user
        if not user.has_perm(permission):
            raise PermissionDenied
        if not verb(request):
            messages.error(request, _("That is not there any more: nothing was done."))
        return HttpResponseRedirect(request.get_full_path())

    def _acknowledge(self, request: HttpRequest) -> bool:
        row = Alarm.objects.using(self.using).firing().filter(pk=_id(request)).first()
        if row is None:
            return False
        user: Any = request.user
        note = " ".join(request.POST.get("note", "").split())
        if not row.acknowledge(user.get_username(), note):
            messages.warning(request, _("%s: somebody has acknowledged it already.") % row)
            return True
        outcome = _("Acknowledged: %s") % note if note else _("Acknowledged")
        journal.note(request, [(row, outcome)])
        messages.success(request, f"{row}: {outcome}.")
        return True

    def _mute(self, request: HttpRequest) -> bool:
        hours = request.POST.get("hours", "")
        name = request.POST.get("rule", "")
        if hours not in ("", *MUTES):
            return False
        try:
            # At home first: a shard, whose rules are a copy, follows if it is away just now.
            for using in dict.fromkeys((home_of(self.using), self.using)):
                mute(name, timedelta(hours=int(hours)) if hours else None, using)
        except UnknownRule:
            return False
        row = AlarmRule.objects.using(self.using).get(name=name)
        outcome = _("Muted for %s") % MUTES[hours] if hours else _("Not muted any more")
        self._note(request, row, outcome)
        messages.success(request, f"{row}: {outcome}.")
        return True

    def _test(self, request: HttpRequest) -> bool:
        row = AlarmChannel.objects.using(self.using).filter(pk=_id(request)).first()
        if row is None:
            return False
        error = send_test(row, self.using)
        outcome = _("The test failed: %s") % error if error else _("A test was sent")
        self._note(request, row, outcome)
        say = messages.error if error else messages.success
        say(request, f"{row}: {outcome}.")
        return True

    def _note(self, request: HttpRequest, row: Any, outcome: str) -> None:
        """Note it of the row at home, which has a page; a shard has a copy with another id."""
        home = home_of(self.using)
        if self.using != home:
            row = type(row).objects.using(home).filter(name=row.name).first() or row
        with working_on(home):
            journal.note(request, [(row, outcome)])

    # -- what it shows --

    def _groups(self, names: set[str]) -> dict[tuple[str, str], int]:
        rows = ConsumerGroup.objects.using(self.using).filter(name__in=names)
        found = rows.values_list("topic__name", "name", "pk") if names else []
        return {(topic, name): pk for topic, name, pk in found}

    def _alarm(self, row: Alarm, groups: dict[tuple[str, str], int]) -> AlarmRow:
        pk = groups.get((row.topic, row.group))
        until = row.resolved_at or self.now
        return AlarmRow(
            pk=row.pk,
            rule=row.rule,
            subject=row.about,
            url=reverse("admin:ems_consumergroup_change", args=[pk]) if pk else "",
            severity=row.severity,
            severity_text=row.get_severity_display(),
            level=LEVELS[Severity(row.severity)],
            state=row.state,
            label=row.label,
            value=figure(row.value, row.metric),
            threshold=figure(row.threshold, row.metric),
            detail=row.detail,
            runbook=row.runbook if row.runbook.startswith(("http://", "https://")) else "",
            since=row.since,
            fired_at=row.fired_at,
            age=max(until - row.since, timedelta(0)),
            acknowledged_by=row.acknowledged_by,
            acknowledged_at=row.acknowledged_at,
            note=row.note,
            resolved_at=row.resolved_at,
        )

    def _rules(self) -> list[RuleRow]:
        return [self._rule(one) for one in rules(self.using)]

    def _rule(self, one: Rule) -> RuleRow:
        condition = f"{one.operator} {figure(one.threshold, one.metric)}"
        if one.for_time:
            values = {"condition": condition, "time": span(one.for_time)}
            condition = _("%(condition)s for %(time)s") % values
        query = urlencode({"name": one.name, "metric": one.metric})
        return RuleRow(
            name=one.name,
            label=str(Metric(one.metric).label),
            condition=condition,
            scope=" · ".join(filter(None, (one.topic, one.group))),
            severity_text=str(Severity(one.severity).label),
            level=LEVELS[Severity(one.severity)] if one.enabled else "quiet",
            enabled=one.enabled,
            is_changed=one.pk is not None,
            muted_until=one.muted_until if one.is_muted(self.now) else None,
            url=self._row(AlarmRule, one.pk)
            if one.pk
            else f"{reverse('admin:ems_monitoring_alarmrule_add')}?{query}",
        )

    def _row(self, model: type[Model], pk: int) -> str:
        """Return the URL of the page of a row; on a shard, whose ids are of a copy, of the list."""
        if self.using == home_of(self.using):
            return reverse(f"admin:ems_monitoring_{model._meta.model_name}_change", args=[pk])
        return reverse(f"admin:ems_monitoring_{model._meta.model_name}_changelist")

    def _channels(self) -> list[ChannelRow]:
        notifications = AlarmNotification.objects.using(self.using).waiting()
        waiting = Counter(notifications.values_list("channel", flat=True)[:10_000])
        return [
            ChannelRow(
                pk=row.pk,
                name=row.name,
                kind=row.get_kind_display(),
                target=row.target,
                enabled=row.enabled,
                is_down=row.is_down,
                last_sent_at=row.last_sent_at,
                last_failed_at=row.last_failed_at,
                error=row.last_error,
                waiting=waiting[row.pk],
                url=self._row(AlarmChannel, row.pk),
            )
            for row in AlarmChannel.objects.using(self.using).order_by("name")
        ]


def _id(request: HttpRequest) -> int:
    text = request.POST.get("id", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
