"""Issues, lists and revokes the tokens of the HTTP API."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Prefetch

from streams.management.base import StreamsCommand, positive
from streams.models import ApiToken
from streams.models.token import HOLDS, ApiRight
from streams.operate.tokens import expiry, issue, revoke, right_of


class Command(StreamsCommand):
    help = "Issues, lists and revokes the tokens of the HTTP API."
    verbs = {
        "create": "issue a token, and print it: it is not shown again",
        "list": "list the valid tokens",
        "revoke": "revoke a token: it is refused within five seconds",
    }

    def add_create_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what it is for, such as the name of a service")
        parser.add_argument(
            "--right",
            action="append",
            default=[],
            metavar="VERB:PATTERN",
            help="such as send:orders.* or consume:orders/mail; several times",
        )
        parser.add_argument("--days", type=positive, help="how long it is valid; without: for ever")
        parser.add_argument("--rate", type=positive, help="requests a second, in each process")
        parser.add_argument("--holds", type=positive, help="held requests, in each process")

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="expired and revoked ones, too")

    def add_revoke_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("token", help="its name, or the eight characters after ems_")

    def do_create(self, *, name: str, right: list[str], **options: Any) -> None:
        rights = [right_of(text) for text in dict.fromkeys(right)]
        token = ApiToken(
            name=name,
            created_by=self.who,
            expires_at=expiry(options["days"]),
            max_rate=options["rate"],
            max_holds=options["holds"] or HOLDS,
        )
        self.validate(token, self.using, exclude=["expires_at"])
        text = issue(token, rights, self.using)
        self.tell(text, name=name, prefix=token.prefix, token=text)

    def do_list(self, **options: Any) -> None:
        found = ApiToken.objects.using(self.using)
        rows = found.all() if options["all"] else found.valid()
        rights = Prefetch("rights", ApiRight.objects.using(self.using))
        columns = ("name", "prefix", "rights", "created_by", "created_at", "expires_at")
        more = ("last_used_at", "revoked_at", "max_rate", "max_holds")
        self.show(
            (*columns, *more),
            (
                (
                    *(row.name, row.prefix, ", ".join(sorted(map(str, row.rights.all())))),
                    *(getattr(row, name) for name in (*columns[3:], *more)),
                )
                for row in rows.order_by("name", "pk").prefetch_related(rights)
            ),
        )

    def do_revoke(self, *, token: str, **options: Any) -> None:
        row = self._one(token)
        if not revoke(row, self.who, self.using):
            raise CommandError(f"{row} was revoked before.")
        self.tell(f"revoked: {row}", name=row.name, prefix=row.prefix)

    def _one(self, text: str) -> ApiToken:
        """Return the token with this prefix, or else the one with this name that is valid."""
        rows = ApiToken.objects.using(self.using)
        if row := rows.filter(prefix=text).first():
            return row
        named = list(rows.filter(name=text).order_by("pk"))
        found = [row for row in named if row.revoked_at is None] or named[-1:]
        if not found:
            raise CommandError(f"There is no token {text!r}: ems_tokens list shows them.")
        if len(found) > 1:
            prefixes = ", ".join(row.prefix for row in found)
            raise CommandError(
                f"Several tokens are named {text!r}: revoke each by its prefix ({prefixes})."
            )
        return found[0]
