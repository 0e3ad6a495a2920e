from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.utils.translation import gettext as _

from streams.audit import audit
from streams.conf import database
from streams.doctor import ERROR, examine, ready
from streams.management.base import StreamsCommand, add_json


class Command(StreamsCommand):
    help = (
        "Say what is wrong with this installation and what to do."
        " Exit status: 0 healthy or warnings only, 1 errors."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        add_json(parser)
        parser.add_argument("--ready", action="store_true", help=_("only what a probe needs"))
        parser.add_argument(
            "--audit", action="store_true", help=_("also compare the tables with the promises")
        )

    def handle(self, *args: Any, **options: Any) -> None:
        using = database(options["database"])
        self.as_json = options["json"]
        found = ready(using) if options["ready"] else examine(using)
        rows = [(d.level, d.name, d.text, d.hint) for d in found]
        if options["audit"] and not any(d.level == ERROR and d.name == "schema" for d in found):
            findings = audit(using)
            rows += [
                (ERROR, finding.kind, f"{finding.where}: {finding.detail}", "")
                for finding in findings
            ]
            if not findings:
                rows.append(("ok", "audit", _("Every promise holds."), ""))
        self.show(("level", "name", "text", "hint"), rows)
        if any(row[0] == ERROR for row in rows):
            sys.exit(1)
