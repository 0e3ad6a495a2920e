"""Defines ems_topics, which lists, creates, changes, grows, retires and deletes topics."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.db.models import Count

from streams.conf import ANY_REST, settings
from streams.database.clock import database_now
from streams.database.transactions import committing
from streams.log.routes import accept_routes, routes_agree
from streams.management.acts import ActVerbs
from streams.management.base import add_dry_run, add_sort, add_watch, counted, number
from streams.management.verbs.change import ChangeVerb
from streams.management.verbs.contract import ContractVerbs
from streams.management.verbs.move import MoveVerb
from streams.models import Message, Partition, Topic
from streams.nouns.topic import TopicListed, with_counts
from streams.observe.producers import producers
from streams.operate.changes import change
from streams.operate.key_index import complete
from streams.operate.topic_deletion import SETTLED_SECONDS, TopicDeletion
from streams.operate.topics import create, topic_of
from streams.retain.rule import default_rule, rule_of
from streams.sharding import aliases

COLUMNS = ("topic", "access", "partitions", "inbox", "sequenced", "kept", "retention")
PRODUCERS = ("host", "process", "threads", "topics", "messages", "last_sent_at")


class Command(ActVerbs, ChangeVerb, MoveVerb, ContractVerbs):
    noun = Topic
    help = "The topics and their logs: create, change, grow, retire and delete them."
    verbs = {
        "list": "all topics with their partitions and messages",
        "producers": "who has sent in the last 15 minutes, and from where",
        "create": "a new topic",
        "grow": "more partitions",
        "set": "change the access, the retention or the archive of a topic",
        "index": "index the keys of a topic, also of the messages that it has",
        "retire": "refuse producers; consumers finish",
        "delete": "delete a retired topic with its messages and groups",
        "routes": "which topics are on which database",
        "move": "move a topic to another database; its offsets and groups go on",
        "schema": "the JSON Schema of the bodies, as the consumers of the project say it",
        "asyncapi": "the AsyncAPI document of all topics, groups and types of bodies",
    }
    everywhere = frozenset({"list", "producers"})

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        add_sort(parser, COLUMNS)
        add_watch(parser)

    def add_producers_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", nargs="?", help="only to this topic")
        add_sort(parser, PRODUCERS)
        add_watch(parser)

    def add_create_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help="name of the topic")
        parser.add_argument("--partitions", type=int, default=1, help="how many (1)")

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help="name of the topic")

    def row_named(self, options: Mapping[str, Any]) -> Topic:
        return topic_of(options["topic"], self.using)

    def described(self, row: Topic) -> dict[str, Any]:
        return {"topic": row.name}

    def add_set_arguments(self, parser: ArgumentParser) -> None:
        self.add_row_arguments(parser)
        self.add_changes(parser, Topic)

    add_index_arguments = add_row_arguments

    def add_delete_arguments(self, parser: ArgumentParser) -> None:
        self.add_row_arguments(parser)
        add_dry_run(parser)
        parser.add_argument(
            "--force",
            action="store_true",
            help="also if it is not retired, or groups have not finished",
        )

    def add_routes_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--accept",
            action="store_true",
            help="write EMS['SHARDS'] of this process into its databases",
        )

    def do_list(self, *, sort: str | None, **options: Any) -> None:
        rows = with_counts(Topic.objects.using(self.using)).order_by("name")
        inbox, default = self._inbox(), default_rule(self.using)
        self.show_nouns(
            (
                TopicListed.of(
                    row,
                    inbox=inbox.get(row.pk, 0),
                    retention=str(rule_of(row, self.using, default)),
                )
                for row in rows
            ),
            COLUMNS,
            sort,
        )

    def do_producers(self, *, topic: str | None, sort: str | None, **options: Any) -> None:
        chosen = topic_of(topic, self.using).pk if topic else None
        found = producers(self.using, database_now(self.using), chosen)
        rows = (
            (
                *(one.host, one.process, one.threads),
                *(one.topics, one.messages, one.last_sent_at),
            )
            for one in found.listed
        )
        self.show(PRODUCERS, rows, sort=sort)

    def do_create(self, *, topic: str, partitions: int, **options: Any) -> None:
        create(topic, partitions, self.using)
        self.tell(f"created: {topic}", topic=topic, partitions=partitions)

    def do_set(self, *, topic: str, **options: Any) -> None:
        self.apply_changes(topic_of(topic, self.using), **options)

    def do_index(self, *, topic: str, **options: Any) -> None:
        row = topic_of(topic, self.using)
        change(row, {"index_keys": True}, self.using, self.who)
        written = complete(row, self.using, self._show_indexed)
        self.progress("")
        self.tell(
            f"{topic}: every message is found by its key now; entries written: {number(written)}",
            topic=topic,
            written=written,
        )

    def _show_indexed(self, row: Partition) -> None:
        left = (row.keys_from or 0) - row.first_offset
        self.progress(f"{row}: about {number(max(0, left))} messages are left")

    def do_delete(self, *, topic: str, dry_run: bool, force: bool, **options: Any) -> None:
        removal = TopicDeletion(topic_of(topic, self.using), self.using, force=force)
        contents, obstacles = removal.contents(), removal.obstacles()
        if not dry_run:
            removal.close()
            self.progress(f"waiting {SETTLED_SECONDS:.0f} s for sends that are under way")
            removal.wait()
            removal.finish(self._show_deleted)
            self.progress("")
        text = counted(contents)
        verb = "would delete" if dry_run else "deleted"
        if dry_run and obstacles:
            text += "\n" + "\n".join(obstacles)
        self.tell(
            f"{verb} {topic}: {text}",
            deleted=not dry_run,
            topic=topic,
            contents=contents,
            obstacles=obstacles,
        )

    def do_routes(self, *, accept: bool, **options: Any) -> None:
        if accept:
            for alias in aliases():
                with committing(alias):
                    accept_routes(alias)
        agreeing = {alias: routes_agree(alias) for alias in aliases()}
        routes = [*settings().SHARDS.items(), (ANY_REST, settings().DATABASE)]
        rows = [(topics, alias, agreeing[alias]) for topics, alias in routes]
        self.show(("topics", "database", "agrees"), rows)

    def _show_deleted(self, name: str, rows: int) -> None:
        self.progress(f"{name}: {number(rows)} rows deleted")

    def _inbox(self) -> dict[int, int]:
        """Return the number of messages without an offset, delayed ones too, by topic id."""
        partitions = dict(
            Topic.objects.using(self.using).values_list("partitions__id", "id").order_by()
        )
        inbox = Message.objects.using(self.using).inbox().filter(partition__in=partitions)
        counted: dict[int, int] = {}
        for partition, count in inbox.values_list("partition").annotate(n=Count("pk")).order_by():
            topic = partitions[partition]
            counted[topic] = counted.get(topic, 0) + count
        return counted
