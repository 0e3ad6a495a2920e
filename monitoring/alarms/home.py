"""Copies rules and channels from ``EMS["DATABASE"]`` to the other databases of ``EMS["SHARDS"]``.

Alarms are evaluated and told on the database of their topic, by what is there. So they are told
while ``EMS["DATABASE"]`` is away, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Prefetch

from monitoring.alarms.rules import tell_these
from monitoring.models import AlarmChannel, AlarmRule
from streams.database.each import ask_each
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.sharding import home_of

# What is copied; how the last notification went is of each database.
OF_CHANNEL = ("name", "kind", "enabled", "recipients", "url", "secret", "allow_private")
# A channel of another name that leads to the same is the same, renamed.
ADDRESS = ("kind", "recipients", "url")
OF_RULE = (
    *("name", "metric", "enabled", "topic", "group", "operator", "threshold", "for_seconds"),
    *("severity", "remind_hours", "muted_until", "runbook"),
)


@dataclass(frozen=True)
class Home:
    """The rows of ``EMS["DATABASE"]``, and the names of the channels of each rule."""

    channels: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    told: dict[str, set[str]]


def copy_from_home(using: str) -> None:
    """Let ``using`` have the same rules and channels; those of before hold if there is no answer.

    Does nothing for ``EMS["DATABASE"]``, and for a database that is none of ``EMS["SHARDS"]``. The
    sweep waits for it, which runs in the same thread.
    """
    home = home_of(using)
    if using == home:
        return
    for reply in ask_each("alarm rules", [home], _read):
        for one in reply.said:
            retrying(_write, using, one, using)


def _read(home: str) -> Iterator[Home]:
    channels = Prefetch("channels", AlarmChannel.objects.using(home))
    rules = list(AlarmRule.objects.using(home).prefetch_related(channels))
    yield Home(
        list(AlarmChannel.objects.using(home).values(*OF_CHANNEL)),
        [{name: getattr(rule, name) for name in OF_RULE} for rule in rules],
        {rule.name: {channel.name for channel in rule.channels.all()} for rule in rules},
    )


def _write(home: Home, using: str) -> None:
    with own_transaction(using):
        channels = _same(AlarmChannel, home.channels, using, ADDRESS)
        for name, rule in _same(AlarmRule, home.rules, using).items():
            told = {channel.name for channel in rule.channels.using(using)}
            if told != home.told[name]:
                chosen = (channels[one] for one in home.told[name] if one in channels)
                tell_these(rule, chosen, using)


def _same(
    model: Any, wanted: list[dict[str, Any]], using: str, known_by: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Let the rows be as ``wanted``, by their names; return them.

    A row whose name is gone keeps its id under a new name if it agrees in ``known_by``.
    """
    rows = {row.name: row for row in model.objects.using(using)}
    gone = rows.keys() - {values["name"] for values in wanted}
    for values in wanted if known_by else ():
        if values["name"] in rows:
            continue
        for name in sorted(gone):
            if all(getattr(rows[name], one) == values[one] for one in known_by):
                rows[values["name"]] = rows.pop(name)
                gone.remove(name)
                break
    for name in gone:
        rows.pop(name).delete(using=using)
    for values in wanted:
        row = rows.setdefault(values["name"], model(name=values["name"]))
        changed = [name for name, value in values.items() if getattr(row, name) != value]
        for name in changed:
            setattr(row, name, values[name])
        if row.pk is None or changed:
            row.save(using=using, update_fields=changed if row.pk else None)
    return rows
