"""Lets an ordered group go on as one that is ordered by key."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.database.retrying import retrying
from streams.database.transactions import own_transaction, short_lock_waits
from streams.errors import GroupActive, PreviewStale
from streams.models import ConsumerGroup, Cursor, Topic
from streams.operate.acts.act import Act, Consent, Effects
from streams.operate.group_deletion import refuse_while_live

# Seconds to wait for a lock of others.
LOCK_SECONDS = 5


@dataclass(frozen=True)
class OrderedByKey(Effects):
    """Whether a group becomes one that is ordered by key."""

    changed: bool

    def texts(self) -> list[str]:
        text = _("ordered by key from now on: its consumer must say ordered='key'")
        return [text] if self.changed else []

    @property
    def shown(self) -> bool:
        return self.changed


@dataclass(frozen=True)
class OrderByKey(Act[ConsumerGroup, OrderedByKey]):
    """The change from the order of the partition to that of each key."""

    name = "order-by-key"
    permission = "ems.change_consumergroup"
    label = gettext_lazy("Order by key")
    text = gettext_lazy(
        "From now on a failed message holds back only those of its key, and no others of its"
        " partition. Stop the consumers first, and start them again with ordered='key'."
    )

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return row.strict

    def preview(self, row: ConsumerGroup, using: str) -> OrderedByKey:
        """Raises GroupActive."""
        _refuse_while_open(row, using, lock=False)
        return OrderedByKey(row.strict)

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> OrderedByKey:
        """Raises GroupActive and PreviewStale."""
        groups = ConsumerGroup.objects.using(using).filter(pk=row.pk)
        tries: list[bool] = []

        def work() -> OrderedByKey:
            with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
                list(Topic.objects.using(using).select_for_update().filter(pk=row.topic_id))
                _refuse_while_open(row, using, lock=True)
                changed = groups.filter(ordered=True, by_key=False).update(by_key=True)
                if not changed and not tries:  # else the reply to an earlier try was lost
                    raise PreviewStale
                tries.append(True)
            return OrderedByKey(True)

        return retrying(work, using)


def _refuse_while_open(row: ConsumerGroup, using: str, *, lock: bool) -> None:
    """Raise GroupActive while a consumer may have read what the group was before."""
    cursors = Cursor.objects.using(using).filter(group=row.pk).order_by("partition", "replay")
    found = cursors.select_for_update() if lock else cursors
    refuse_while_live(row)
    if any(one.open_delivery is not None for one in found):
        raise GroupActive(_("The group %s has open deliveries: let them end first.") % row.name)
