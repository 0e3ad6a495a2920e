"""Shows on the page of a topic what its next purge would do."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html_join
from django.utils.translation import gettext as _

from streams.conf import database
from streams.models import ConsumerGroup, Topic
from streams.retain.purge import Purge, Purged
from streams.retain.purge_floor import has_readers
from streams.retain.rule import rule_of

# In partitions: each one takes some twenty short statements.
PARTITIONS_AT_MOST = 20


def purge_preview(topic: Topic) -> Any:
    """Return a line for each partition, or why there are none."""
    using = database()
    rule = rule_of(topic, using)
    if not rule.is_bounded:
        return _("Messages are kept for ever.")
    if not has_readers(topic, rule, using):
        return _("Messages are kept until a group reads the topic; then for %s.") % rule
    if topic.partitions.using(using).count() > PARTITIONS_AT_MOST:
        return _("Too many partitions for a page: “manage.py ems_purge --dry-run”.")
    groups = ConsumerGroup.objects.using(using).filter(topic=topic.pk)
    names = dict(groups.values_list("pk", "name"))
    lines = [_line(outcome, names) for outcome in Purge(using).preview(topic)]
    return format_html_join("", "<div>{}</div>", ((line,) for line in lines))


def _line(outcome: Purged, names: dict[int, str]) -> str:
    now = outcome.floor
    values = {"partition": now.partition, "count": now.messages, "offset": now.offset}
    line = _("%(partition)s: %(count)d messages, those below offset %(offset)d") % values
    if now.holds:
        hold = now.holds[0]
        held = {"who": hold.who(names), "what": hold}
        line += _("; more is held back: %(who)s %(what)s") % held
    return line
