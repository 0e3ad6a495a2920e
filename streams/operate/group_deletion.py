"""Deletes a consumer group with all its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import models
from django.utils.translation import gettext as _

from streams.database.batches import delete_all
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import GroupActive
from streams.models import ConsumerGroup, Topic


def contents(group: ConsumerGroup, at_most: int) -> dict[type[models.Model], int]:
    """Return how many rows of each kind its deletion would delete, counted up to ``at_most``."""
    return {
        rows.model: rows.order_by().values("pk")[:at_most].count() for rows in belongings(group)
    }


def delete_group(
    group: ConsumerGroup, say: Callable[[int], None] = lambda rows: None, *, force: bool = False
) -> None:
    """Delete the group with its cursors, retries, dead letters and deliveries.

    Rows are deleted in batches, and at last the cursors and the group in one transaction. A run
    that is stopped can be repeated; until then the group can go on from its cursors, without the
    rows that are deleted. Retries come last. ``say`` is called with the number of rows so far.
    Unless ``force``, raises GroupActive while the group has a live consumer, also if one comes
    meanwhile.
    """
    using, deleted = str(group._state.db), 0

    def check() -> None:
        if not force:
            retrying(refuse_while_live, using, group)

    check()
    ended = group.deliveries.using(group._state.db).filter(group=group.pk).ended()
    dead_letters, retries = _of_group(group, group.dead_letters, group.retries)
    of_group = f"`group_id` = {group.pk:d}"
    for rows, condition in (
        (ended, f"{of_group} AND `state` <> 'START'"),
        (dead_letters, of_group),
        (retries, of_group),
    ):
        # In the order of the group's index: in the order of the key, each batch would read rows of
        # other groups.
        for count in delete_all(rows.order_by(), using, condition):
            deleted += count
            say(deleted)
            check()
    retrying(_end, using, group, force)


def _end(group: ConsumerGroup, force: bool) -> None:
    with own_transaction(str(group._state.db)):
        # While the topic is locked the group gets no cursor, and without cursors it claims nothing.
        list(Topic.objects.using(group._state.db).select_for_update().filter(pk=group.topic_id))
        cursors, *others = belongings(group)
        cursors.delete()
        if not force:
            refuse_while_live(group)
        # A settlement holds its delivery until its retries and dead letters are written.
        (deliveries,) = _of_group(group, group.deliveries)
        list(deliveries.select_for_update().values_list("pk"))
        for rows in others:
            rows.delete()
        ConsumerGroup.objects.using(group._state.db).filter(pk=group.pk).delete()


def refuse_while_live(group: ConsumerGroup) -> None:
    """Raise GroupActive if the group has a live consumer."""
    if group.clients.using(group._state.db).filter(group=group.pk).live().exists():
        raise GroupActive(_("The group %s has live consumers: stop them first.") % group.name)


def belongings(group: ConsumerGroup) -> list[models.QuerySet[Any]]:
    """Return queries of the rows of each kind that belong to the group; the cursors come first."""
    return _of_group(
        group,
        *(group.cursors, group.retries, group.dead_letters, group.deliveries, group.clients),
        *(group.held_keys, group.buckets, group.key_buckets),
    )


def _of_group(group: ConsumerGroup, *related: Any) -> list[models.QuerySet[Any]]:
    # A router must not send any of this to another database.
    return [manager.using(group._state.db).filter(group=group.pk) for manager in related]
