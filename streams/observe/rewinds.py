"""Says which logs were rewound lately: by a failover or a restore that has lost commits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from streams.models import Rewind, UtcNow
from streams.models.namespaces import own
from streams.observe.diagnoses import WARNING, Diagnosis
from streams.release import documentation

# How long the doctor tells of it.
TOLD_FOR = timedelta(days=7)


def rewound(using: str, within: timedelta = TOLD_FOR) -> list[Rewind]:
    """Return the rewinds that were noticed ``within`` this time, the newest first."""
    rows = Rewind.objects.using(using).filter(own("partition__topic__name"))
    rows = rows.filter(noticed_at__gt=UtcNow(-within)).order_by("-noticed_at", "-pk")
    return list(rows.select_related("partition__topic"))


def rewinds(using: str) -> Iterator[Diagnosis]:
    """Yield a warning for each log that was rewound in the last days."""
    guide = documentation("guides/failover.md")
    hint = f"Messages are lost, with their business rows: {guide} says what to do."
    for rewind in rewound(using):
        text = (
            "%(partition)s had reached offset %(known)d, and ended at %(first)d at %(at)s:"
            " %(first)d … %(last)d are left out."
        )
        values = {
            "partition": rewind.partition,
            "known": rewind.known_offset,
            "first": rewind.first_offset,
            "last": rewind.next_offset - 1,
            "at": f"{rewind.noticed_at:%Y-%m-%d %H:%M:%S %Z}",
        }
        yield Diagnosis(WARNING, "rewound", text % values, hint)
