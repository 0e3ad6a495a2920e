"""Defines ems_alarms, which shows alarms, acknowledges and mutes them, and tests channels."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Model

from monitoring.alarms import firing
from monitoring.alarms.delivering import send_test
from monitoring.alarms.rules import find_rule, mute, rules, tell_these, told_by_these_alone
from monitoring.alarms.texts import figure
from monitoring.models import (
    Alarm,
    AlarmChannel,
    AlarmRule,
    AlarmState,
    ChannelKind,
    Metric,
    Operator,
    Severity,
)
from streams.database.transactions import own_transaction
from streams.management.base import (
    StreamsCommand,
    add_limit,
    duration,
    from_environment,
    positive,
)

ANY = "any"


class Command(StreamsCommand):
    help = "The alarms: what fires, the rules, and the channels that are told."
    verbs = {
        "list": "what fires; with --resolved also what has fired",
        "rules": "all rules as they are in force",
        "channels": "all channels, and how their last notification went",
        "ack": "say that somebody takes care of an alarm",
        "mute": "tell the channels nothing of a rule for a while",
        "set": "change a rule, or make one",
        "unset": "delete a rule; a default rule is as it was",
        "channel": "change a channel, or make one",
        "remove": "delete a channel",
        "test": "send a test through a channel",
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--resolved", action="store_true", help="the newest resolved, too")
        add_limit(parser, 100)

    def add_ack_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=positive, help="id of the alarm")
        parser.add_argument("--note", default="", help="what is being done")

    def add_mute_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("rule", help="name of the rule")
        time = parser.add_mutually_exclusive_group(required=True)
        time.add_argument("--for", dest="time", type=duration, help="such as 30m, 2h or 1d")
        time.add_argument("--off", action="store_true", help="tell them again from now on")

    def add_set_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("rule", help="name of the rule")
        parser.add_argument("--metric", choices=Metric.values, help="of a new rule")
        parser.add_argument("--topic", help="only this topic; any: all")
        parser.add_argument("--group", help="only this group; any: all")
        parser.add_argument("--operator", choices=Operator.values, help="above or below")
        parser.add_argument("--threshold", type=float, help="in the unit of the metric")
        parser.add_argument("--for", dest="time", type=duration, help="must hold for so long")
        parser.add_argument("--severity", choices=Severity.values, help="how bad it is")
        parser.add_argument("--channel", action="append", help="tell only this one; any: all")
        parser.add_argument("--remind", type=positive, metavar="HOURS", help="tell it again")
        parser.add_argument("--runbook", help="URL of what to do")
        state = parser.add_mutually_exclusive_group()
        state.add_argument("--on", action="store_true", help="evaluate the rule")
        state.add_argument("--off", action="store_true", help="do not evaluate it")

    def add_unset_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("rule", help="name of the rule")

    def add_channel_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("channel", help="name of the channel")
        parser.add_argument("--kind", choices=ChannelKind.values, help="of a new channel")
        parser.add_argument("--url", help="where to; env:NAME takes it from the environment")
        parser.add_argument("--secret", help="signs; env:NAME takes it from the environment")
        parser.add_argument("--to", help="e-mail addresses, separated by commas")
        parser.add_argument("--allow-private", action="store_true", help="also private addresses")
        state = parser.add_mutually_exclusive_group()
        state.add_argument("--on", action="store_true", help="use the channel")
        state.add_argument("--off", action="store_true", help="do not use it")

    def add_remove_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("channel", help="name of the channel")

    add_test_arguments = add_remove_arguments

    def do_list(self, *, resolved: bool, limit: int, **options: Any) -> None:
        found = firing(self.using)[:limit]
        if resolved:
            rows = Alarm.objects.using(self.using).filter(state=AlarmState.RESOLVED)
            found += rows.order_by("-resolved_at")[: limit - len(found)]
        columns = ("id", "severity", "state", "rule", "subject", "is", "since", "resolved_at")
        self.show(
            (*columns, "note", "detail"),
            (
                (
                    row.pk,
                    row.severity,
                    row.state,
                    row.rule,
                    row.subject,
                    row.value if self.as_json else figure(row.value, row.metric),
                    row.since,
                    row.resolved_at,
                    f"{row.acknowledged_by}: {row.note}" if row.acknowledged_by else None,
                    row.detail,
                )
                for row in found
            ),
        )

    def do_rules(self, **options: Any) -> None:
        columns = ("rule", "metric", "enabled", "severity", "topic", "group", "operator")
        self.show(
            (*columns, "threshold", "for", "muted_until"),
            (
                (
                    one.name,
                    one.metric,
                    one.enabled,
                    str(one.severity),
                    one.topic or None,
                    one.group or None,
                    str(one.operator),
                    one.threshold if self.as_json else figure(one.threshold, one.metric),
                    one.for_time,
                    one.muted_until,
                )
                for one in rules(self.home)
            ),
        )

    def do_channels(self, **options: Any) -> None:
        columns = ("channel", "kind", "enabled", "to", "last_sent_at", "last_failed_at", "error")
        rows = AlarmChannel.objects.using(self.home).order_by("name")
        self.show(
            columns,
            (
                (
                    row.name,
                    row.kind,
                    row.enabled,
                    row.target,
                    row.last_sent_at,
                    row.last_failed_at,
                    row.last_error or None,
                )
                for row in rows
            ),
        )

    def do_ack(self, *, id: int, note: str, **options: Any) -> None:  # noqa: A002 - its option
        alarm = Alarm.objects.using(self.using).firing().filter(pk=id).first()
        if alarm is None:
            raise CommandError(f"No alarm {id} fires.")
        done = alarm.acknowledge(self.who, note)
        text = "acknowledged: %s" if done else "was acknowledged already: %s"
        self.tell(text % alarm, id=id, acknowledged=done)

    def do_mute(self, *, rule: str, time: timedelta | None, **options: Any) -> None:
        mute(rule, time, self.home)
        self.tell(f"muted: {rule}" if time else f"not muted: {rule}", rule=rule)

    def do_set(self, *, rule: str, metric: str | None, **options: Any) -> None:
        row = AlarmRule.objects.using(self.home).filter(name=rule).first()
        if row is None:
            metric = metric or (rule if rule in Metric.values else None)
            if metric is None:
                raise CommandError("A new rule needs --metric.")
            row = AlarmRule(name=rule)
        row.metric = metric or row.metric
        for option in ("operator", "threshold", "severity", "runbook"):
            if options[option] is not None:
                setattr(row, option, options[option])
        for option in ("topic", "group"):
            if options[option] is not None:
                setattr(row, option, "" if options[option] == ANY else options[option])
        if options["time"] is not None:
            row.for_seconds = int(options["time"].total_seconds())
        if options["remind"] is not None:
            row.remind_hours = options["remind"]
        if options["on"] or options["off"]:
            row.enabled = options["on"]
        names = options["channel"] or []
        channels = [self._channel(name) for name in names if name != ANY]
        with own_transaction(self.home):
            self._save(row)
            if names:
                tell_these(row, channels, self.home)
        self.tell(f"set: {rule}", rule=rule)

    def do_unset(self, *, rule: str, **options: Any) -> None:
        deleted, _rows = AlarmRule.objects.using(self.home).filter(name=rule).delete()
        if not deleted:
            find_rule(rule, self.home)  # a wrong name is said
        self.tell(f"unset: {rule}", rule=rule, unset=bool(deleted))

    def do_channel(self, *, channel: str, kind: str | None, **options: Any) -> None:
        row = AlarmChannel.objects.using(self.home).filter(name=channel).first()
        row = row or AlarmChannel(name=channel, kind=kind or "")
        row.kind = kind or row.kind
        for option in ("url", "secret"):
            if options[option] is not None:
                setattr(row, option, from_environment(options[option]))
        if options["to"] is not None:
            row.recipients = options["to"]
        if options["on"] or options["off"]:
            row.enabled = options["on"]
        row.allow_private = options["allow_private"] or row.allow_private
        self._save(row)
        self.tell(f"set: {channel}", channel=channel)

    def do_remove(self, *, channel: str, **options: Any) -> None:
        row = self._channel(channel)
        if names := told_by_these_alone([row], self.home):
            text = "The rule %s tells no other channel: choose one for it first."
            raise CommandError(text % ", ".join(names))
        row.delete(using=self.home)
        self.tell(f"removed: {channel}", channel=channel)

    def do_test(self, *, channel: str, **options: Any) -> None:
        if error := send_test(self._channel(channel), self.home):
            raise CommandError(f"{channel}: {error}")
        self.tell(f"sent: {channel}", channel=channel, sent=True)

    def _channel(self, name: str) -> AlarmChannel:
        found = AlarmChannel.objects.using(self.home).filter(name=name).first()
        if found is None:
            raise CommandError(f"There is no channel {name!r}.")
        return found

    def _save(self, row: Model) -> None:
        self.validate(row, self.home)
        row.save(using=self.home)
