"""Defines ems_keys, which lists the keys that a failed message holds, and lets them go on."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from streams.consume.key_holders import key_holders
from streams.management.acts import ActVerbs
from streams.management.base import add_limit, add_watch, positive
from streams.models import HeldKey
from streams.nouns.held_key import FailedKey

COLUMNS = (
    *("id", "group", "topic", "key", "partition", "offset", "state", "attempt", "due_at"),
    *("held_at", "behind", "error"),
)


class Command(ActVerbs):
    noun = HeldKey
    help = "The keys of groups ordered by key that a failed message holds; let them go on."
    verbs = {
        "list": "the held keys, those that have been held the longest first",
        "retry": "begin the next attempt at the message that holds the key",
        "skip": "make a dead letter of that message; the key goes on with the next one",
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--group", help="only of this group")
        parser.add_argument("--topic", help="only on this topic")
        add_limit(parser, 20)
        add_watch(parser)

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=positive, help="its id, as the list has it")

    def row_named(self, options: Mapping[str, Any]) -> HeldKey:
        found: HeldKey | None = self._rows().filter(pk=options["id"]).first()
        if found is None:
            raise CommandError(f"No key is held with the id {options['id']}.")
        return found

    def described(self, row: HeldKey) -> dict[str, Any]:
        return {"id": row.pk, "group": row.group.name, "topic": row.group.topic.name}

    def do_list(self, *, group: str | None, topic: str | None, limit: int, **options: Any) -> None:
        groups = self.groups(group, topic)
        rows = self._rows().filter(group__in=[one.pk for one in groups]).order_by("pk")[:limit]
        holders = key_holders(list(rows), self.using)
        self.show_nouns((FailedKey.of(one) for one in holders), COLUMNS)

    def _rows(self) -> Any:
        rows = HeldKey.objects.using(self.using)
        return rows.select_related("group__topic", "partition__topic")
