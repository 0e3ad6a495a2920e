"""Examines a running installation: the doctor says what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.db import Error

from streams.observe import diagnoses
from streams.observe.backlogs import blocked
from streams.observe.diagnoses import ERROR, Diagnosis
from streams.observe.indexes import indexes
from streams.observe.prepared import prepared
from streams.observe.readers import readers
from streams.observe.replication import replication
from streams.observe.rewinds import rewinds
from streams.observe.shards import shards


def examine(using: str) -> list[Diagnosis]:
    """Return all diagnoses; only the first ones if the tables cannot be read."""
    found = ready(using)
    if any(diagnosis.level == ERROR for diagnosis in found):
        return found
    return [
        *found,
        *indexes(using),
        *diagnoses.system_checks(using),
        *diagnoses.steps(using),
        *diagnoses.inbox(using),
        *diagnoses.partitions(using),
        *rewinds(using),
        *diagnoses.topics(using),
        *shards(using),
        *diagnoses.consumers(using),
        *diagnoses.groups(using),
        *blocked(using),
        *prepared(using),
        *diagnoses.namespaces(using),
        *diagnoses.retention(using),
        *readers(using),
        *diagnoses.redis(),
        diagnoses.clock(using),
        *diagnoses.server(using),
        *replication(using),
        *_other_apps(using),
    ]


def ready(using: str) -> list[Diagnosis]:
    """Tell a probe whether the database answers, and has the schema of this code."""
    try:
        return list(diagnoses.schema(using))
    except Error as error:
        hint = f"Is the server of DATABASES[{using!r}] running, and reachable from here?"
        return [Diagnosis(ERROR, "database", " ".join(str(error).split()), hint)]


def _other_apps(using: str) -> Iterator[Diagnosis]:
    """Yield the diagnoses of other apps: ``ems_diagnoses`` of their AppConfig."""
    for config in apps.get_app_configs():
        if hasattr(config, "ems_diagnoses"):
            yield from config.ems_diagnoses(using)
