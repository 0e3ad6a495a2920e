"""Writes what reconcile has found to the findings of the audit, each finding once.

The alarm rule ``reconcile`` and the pages read them: monitoring/alarms/log.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sparkjobs.config import EVERY, Config
from sparkjobs.database import Connection, execute, insert
from sparkjobs.instants import stored

SOURCE = "reconcile"
# In characters: what a row keeps of its texts.
MAX_PLACE, MAX_DETAIL = 300, 500
COLUMNS = (
    *("namespace", "digest", "source", "kind", "place", "detail", "count"),
    *("found_at", "seen_at"),
)


@dataclass(frozen=True)
class NamedFinding:
    """One finding, with names instead of ids."""

    kind: str
    where: str
    first: int
    last: int
    detail: str

    @property
    def place(self) -> str:
        offsets = f"@{self.first}" + (f"-{self.last}" if self.last != self.first else "")
        return f"{self.where}{offsets}"

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}: {self.detail}"


def note(
    connection: Connection, config: Config, found: Iterable[NamedFinding], moment: datetime
) -> None:
    """Write the findings of ``moment`` inside the caller's transaction.

    One that is there is only seen again. What is wrong now are those that the last verdict, whose
    run has ``moment`` as its end, has seen.
    """
    namespace = "" if config.namespace == EVERY else config.namespace
    at = stored(moment)
    for finding in found:
        texts = SOURCE, finding.kind, finding.place[:MAX_PLACE], finding.detail[:MAX_DETAIL]
        digest = hashlib.sha256("\0".join(texts).encode()).digest()
        if not execute(
            connection,
            "UPDATE `ems_monitoring_finding` SET `seen_at` = %s"
            " WHERE `namespace` = %s AND `digest` = %s",
            [at, namespace, digest],
        ):
            count = finding.last - finding.first + 1
            row = (namespace, digest, *texts, count, at, at)
            insert(connection, "ems_monitoring_finding", COLUMNS, [row])
