"""Defines ems_doctor, which says what is wrong with the installation, and audits it."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from django.core.management.base import CommandError

from streams.management.base import StreamsCommand, duration, line, positive
from streams.observe.audit.finding import AuditPosition, Finding, joined
from streams.observe.audit.walk import walk
from streams.observe.backlogs import BacklogLimits, beyond
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis, on
from streams.observe.doctor import examine, ready
from streams.operate.rewound import declare
from streams.release import documentation

# An audit stops after this many findings: a longer list would not help.
FINDINGS_AT_MOST = 1000


class Command(StreamsCommand):
    help = (
        "Say what is wrong with this installation and what to do."
        " Exit status: 0 healthy or warnings only, 1 errors."
    )
    requires_system_checks: list[str] = []
    everywhere = frozenset({""})

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--ready", action="store_true", help="only what a probe needs")
        parser.add_argument(
            "--max-age",
            type=duration,
            metavar="DURATION",
            help="an error if an unfinished message of a group is older than this, such as 5m",
        )
        parser.add_argument(
            "--max-behind",
            type=positive,
            metavar="MESSAGES",
            help="an error if a group has more messages than this to claim",
        )
        parser.add_argument(
            "--audit", action="store_true", help="also compare the tables with the promises"
        )
        parser.add_argument(
            "--rewound",
            metavar="TOPIC/PARTITION:OFFSET",
            help=(
                "only this: a failover or a restore has lost commits, and OFFSET is the highest"
                " that had been given. The log goes on beyond it, so that none is given twice"
            ),
        )
        parser.add_argument("--seconds", type=float, help="seconds after which the audit stops")
        parser.add_argument(
            "--resume", metavar="POSITION", help="go on with an audit where one has stopped"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["resume"] and options["all_databases"]:
            raise CommandError("Say with --database where the audit is to go on: in one database.")
        super().handle(*args, **options)

    def run(self, **options: Any) -> None:
        if options["rewound"]:
            self._show([self._rewound(options["rewound"])])
            return
        start = AuditPosition.parse(options["resume"]) if options["resume"] else None
        found = ready(self.using) if options["ready"] else examine(self.using)
        readable = not any(d.level == ERROR and d.name in ("database", "schema") for d in found)
        if readable:
            found += beyond(BacklogLimits(options["max_age"], options["max_behind"]), self.using)
        if readable and (options["audit"] or start):
            found += self._audit(start, options["seconds"])
        self._show(found)
        if any(diagnosis.level == ERROR for diagnosis in found):
            self.status = 1

    def named_topic(self, options: Mapping[str, Any]) -> str | None:
        told = options["rewound"]
        return told.rpartition("/")[0] if told else None

    def _rewound(self, told: str) -> Diagnosis:
        partition, rewind = declare(told, self.using)
        if rewind is None:
            end = partition.next_offset
            text = f"{partition} has reached offset {end}: nothing has to be done."
            return Diagnosis(OK, "rewound", text)
        text = (
            f"{partition} goes on at offset {rewind.next_offset}. Its groups pass"
            f" {rewind.first_offset} … {rewind.next_offset - 1}, which no message will have."
        )
        return Diagnosis(WARNING, "rewound", text)

    def _audit(self, start: AuditPosition | None, seconds: float | None) -> list[Diagnosis]:
        limit = None if seconds is None else time.monotonic() + seconds
        findings: list[Finding] = []
        then = start or AuditPosition()
        windows = walk(self.using, start)
        try:
            for window in windows:
                findings += window.findings
                if window.then is None:
                    return [*_diagnoses(findings), *self._end(findings, start)]
                then = window.then
                self.progress(window.about)
                if (limit and time.monotonic() > limit) or len(findings) >= FINDINGS_AT_MOST:
                    break
        except KeyboardInterrupt:
            pass
        finally:
            self.progress("")
        text = "The audit has stopped before its end."
        go_on = Diagnosis(WARNING, "audit", text, f"ems_doctor --resume {then}{on(self.using)}")
        return [*_diagnoses(findings), go_on]

    def _end(self, findings: list[Finding], start: AuditPosition | None) -> list[Diagnosis]:
        if findings:
            return []
        # In the words of the page that says what else there is, and is not checked.
        text = (
            "Every promise that the audit checks holds: offsets without hole or repeat, order"
            " within a pass of the sequencer, nothing that a group has passed is lost, one claim at"
            " a time in a partition of an ordered group."
        )
        if start:
            text = f"From there on: {text}"
        return [Diagnosis(OK, "audit", text)]

    def _show(self, found: list[Diagnosis]) -> None:
        if self.as_json:
            self.show(("level", "name", "text", "hint"), map(astuple, found))
            return
        width = max(len(diagnosis.name) for diagnosis in found)
        for diagnosis in found:
            begin = f"{diagnosis.level:7}  {diagnosis.name:{width}}  "
            self.stdout.write(begin + line(diagnosis.text))
            if diagnosis.hint:
                self.stdout.write(" " * len(begin) + "→ " + line(diagnosis.hint))


def _diagnoses(findings: list[Finding]) -> list[Diagnosis]:
    hint = f"{documentation('reference/doctor.md')} says what it means."
    return [
        Diagnosis(ERROR, finding.kind, f"{finding.where}: {finding.detail}", hint)
        for finding in joined(findings)
    ]
