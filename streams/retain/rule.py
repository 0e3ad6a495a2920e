"""Tells how long the messages of a topic are kept: what the topic says, or else the default."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams import runtime_settings
from streams.models import Topic

# Matches the topics that leave their retention to messageRetentionDays.
WITHOUT_OWN_RULE = Q(
    retention_seconds__isnull=True, retention_count__isnull=True, retention_consumed=False
)

UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


@dataclass(frozen=True)
class RetentionRule:
    """What limits the messages of a topic; without any limit they are kept for ever.

    A default rule also waits for a reader: it holds in topics that have a group, and as every
    rule it waits for the cluster groups.
    """

    age: timedelta | None
    count: int | None
    consumed: bool
    is_default: bool

    @property
    def is_bounded(self) -> bool:
        return self.age is not None or self.count is not None or self.consumed

    def __str__(self) -> str:
        parts = []
        if self.age is not None:
            parts.append(span(self.age))
        if self.count is not None:
            text = ngettext("%d message", "%d messages", self.count)
            parts.append(text % self.count)
        if self.consumed:
            parts.append(_("until consumed"))
        text = " / ".join(parts) or _("for ever")
        return _("%s (default)") % text if self.is_default else text


def rule_of(topic: Topic, using: str, default: RetentionRule | None = None) -> RetentionRule:
    """Return the rule in force for ``topic``, at most FRESH_SECONDS old.

    Who asks for many topics gives the ``default_rule()``.
    """
    own = (topic.retention_seconds, topic.retention_count, topic.retention_consumed)
    if own == (None, None, False):
        return default or default_rule(using)
    # 0 seconds say "for ever" where messageRetentionDays says otherwise.
    age = timedelta(seconds=topic.retention_seconds) if topic.retention_seconds else None
    return RetentionRule(age, topic.retention_count, topic.retention_consumed, is_default=False)


def default_rule(using: str) -> RetentionRule:
    return default_of(runtime_settings.system("messageRetentionDays", using))


def default_of(days: int) -> RetentionRule:
    """Return what messageRetentionDays means; 0 is for ever."""
    age = timedelta(days=days) if days else None
    return RetentionRule(age, None, consumed=False, is_default=True)


def bounded(using: str) -> Q:
    """Return the condition for topics that do not keep their messages for ever."""
    own = Q(retention_seconds__gt=0) | Q(retention_count__isnull=False) | Q(retention_consumed=True)
    return own | WITHOUT_OWN_RULE if default_rule(using).is_bounded else own


def span(age: timedelta) -> str:
    """Return a duration in the largest unit that it is a whole number of: "7 days"."""
    seconds = round(age.total_seconds())
    size, unit = next(one for one in UNITS if seconds % one[0] == 0)
    count = seconds // size
    return {
        "days": ngettext("%d day", "%d days", count),
        "hours": ngettext("%d hour", "%d hours", count),
        "minutes": ngettext("%d minute", "%d minutes", count),
        "seconds": ngettext("%d second", "%d seconds", count),
    }[unit] % count
