"""Defines ems_prepared: prepared messages and check endpoints."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from streams import body as bodies
from streams.database.clock import database_now
from streams.management.acts import ActVerbs
from streams.management.base import add_limit, from_environment
from streams.models import CheckEndpoint, Dialect, PreparedRow, PreparedState
from streams.models.prepared import of_key
from streams.two_phase.asking import ask_about_nothing

STATES = [state.lower() for state in PreparedState.values]


class Command(ActVerbs):
    noun = PreparedRow
    help = "Prepared messages: list them, decide about one, and who is asked over HTTP."
    verbs = {
        "list": "prepared messages, the oldest first",
        "show": "one of them with its body",
        "check": "ask about it at the next step",
        "commit": "send it",
        "rollback": "drop it",
        "resend": "send what could not be sent, or anyway what was rolled back",
        "endpoints": "the check endpoints",
        "endpoint": "change a check endpoint, or make one",
        "remove": "delete a check endpoint",
        "test": "ask an endpoint about a key that cannot be",
    }
    everywhere = frozenset({"list"})

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--state", choices=STATES, help="only in this state")
        parser.add_argument("--biz", help="only of this business")
        parser.add_argument("--checker", help="only of this checker")
        add_limit(parser, 100)

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("biz", help="the business")
        parser.add_argument("key", help="its key")

    add_show_arguments = add_row_arguments

    def row_named(self, options: Mapping[str, Any]) -> PreparedRow:
        return self._row(options["biz"], options["key"])

    def described(self, row: PreparedRow) -> dict[str, Any]:
        return {"biz": row.biz, "biz_key": row.biz_key}

    def add_endpoint_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("endpoint", help="name of the endpoint")
        parser.add_argument("--url", help="where to; env:NAME takes it from the environment")
        parser.add_argument("--dialect", choices=Dialect.values, help="how it is asked")
        parser.add_argument("--secret", help="signs; env:NAME takes it from the environment")
        parser.add_argument("--timeout", type=int, metavar="SECONDS", help="for an answer")
        private = parser.add_mutually_exclusive_group()
        private.add_argument(
            "--allow-private",
            action="store_true",
            default=None,
            help="also http and private addresses",
        )
        private.add_argument(
            "--no-private",
            dest="allow_private",
            action="store_false",
            default=None,
            help="only https and public addresses",
        )
        state = parser.add_mutually_exclusive_group()
        state.add_argument("--on", action="store_true", help="ask it")
        state.add_argument("--off", action="store_true", help="do not ask it")

    def add_remove_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("endpoint", help="name of the endpoint")

    add_test_arguments = add_remove_arguments

    def do_list(
        self, *, state: str | None, biz: str | None, checker: str | None, limit: int, **options: Any
    ) -> None:
        rows = PreparedRow.objects.using(self.using).defer("body", "headers", "context")
        if state:
            rows = rows.filter(state=state.upper())
        if biz:
            rows = rows.filter(biz=biz)
        if checker:
            rows = rows.filter(checker=checker)
        columns = ("biz", "biz_key", "state", "topic", "checker", "created_at", "checks")
        more = ("next_at", "last_answer", "decided_by", "message_id")
        self.show(
            (*columns, *more),
            (
                (*(getattr(row, name) for name in columns), *(_or_none(row, n) for n in more))
                for row in rows.order_by("pk")[:limit]
            ),
        )

    def do_show(self, *, biz: str, key: str, **options: Any) -> None:
        row = self._row(biz, key)
        names = (
            *("biz", "biz_key", "state", "topic", "partition", "key", "tag", "headers", "producer"),
            *("checker", "context", "checks", "sends", "created_at", "next_at", "checked_at"),
            *("last_answer", "last_error", "decided_at", "decided_by", "disputed_at"),
            *("message_id", "sent_partition", "sent_at", "body_type", "size"),
        )
        body = bytes(row.body)
        values = {name: _or_none(row, name) for name in names}
        if self.as_json:
            values["body"] = bodies.preview(body, row.body_type, len(body), len(body)) or None
        self.show_one(values, bodies.preview(body, row.body_type, len(body)) if body else "")

    def do_endpoints(self, **options: Any) -> None:
        columns = ("endpoint", "to", "dialect", "enabled", "failures", "paused_until", "error")
        rows = CheckEndpoint.objects.using(self.home).order_by("name")
        self.show(
            columns,
            (
                (
                    *(row.name, row.target, row.dialect, row.enabled),
                    *(row.failures, row.paused_until, row.last_error or None),
                )
                for row in rows
            ),
        )

    def do_endpoint(self, *, endpoint: str, **options: Any) -> None:
        row = CheckEndpoint.objects.using(self.home).filter(name=endpoint).first()
        row = row or CheckEndpoint(name=endpoint)
        for option in ("url", "secret"):
            if options[option] is not None:
                setattr(row, option, from_environment(options[option]))
        row.dialect = options["dialect"] or row.dialect
        row.timeout_seconds = options["timeout"] or row.timeout_seconds
        if options["allow_private"] is not None:
            row.allow_private = options["allow_private"]
        if options["on"] or options["off"]:
            row.enabled = options["on"]
        self.validate(row, self.home)
        row.save(using=self.home)
        self.tell(f"set: {endpoint}", endpoint=endpoint)

    def do_remove(self, *, endpoint: str, **options: Any) -> None:
        self._endpoint(endpoint).delete(using=self.home)
        self.tell(f"removed: {endpoint}", endpoint=endpoint)

    def do_test(self, *, endpoint: str, **options: Any) -> None:
        found = self._endpoint(endpoint)
        answer = ask_about_nothing(found, database_now(self.using), self.using)
        self.tell(f"it answers: {answer.value}", endpoint=endpoint, answer=answer.value)

    def _row(self, biz: str, key: str) -> PreparedRow:
        row = PreparedRow.objects.using(self.using).filter(of_key(biz, key)).first()
        if row is None:
            raise CommandError(f"There is no prepared message {biz}:{key}.")
        return row

    def _endpoint(self, name: str) -> CheckEndpoint:
        found = CheckEndpoint.objects.using(self.home).filter(name=name).first()
        if found is None:
            raise CommandError(f"There is no check endpoint {name!r}.")
        return found


def _or_none(row: PreparedRow, name: str) -> Any:
    value = getattr(row, name)
    return None if value == "" else value
