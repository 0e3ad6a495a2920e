"""The doctor: what is wrong with a running installation, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.db import Error
from django.utils.translation import gettext as _

from streams.observe import diagnoses
from streams.observe.diagnoses import ERROR, Diagnosis


def examine(using: str) -> list[Diagnosis]:
    """Everything that can be seen from here; nothing more if the tables cannot be read."""
    found = ready(using)
    if any(diagnosis.level == ERROR for diagnosis in found):
        return found
    return [
        *found,
        *diagnoses.system_checks(using),
        *diagnoses.steps(using),
        *diagnoses.inbox(using),
        *diagnoses.consumers(using),
        *diagnoses.groups(using),
        *diagnoses.retention(using),
        *diagnoses.redis(),
        diagnoses.clock(using),
        *diagnoses.server(using),
        *_other_apps(using),
    ]


def ready(using: str) -> list[Diagnosis]:
    """What a probe needs to know: the database answers, and its schema is this code's."""
    try:
        return list(diagnoses.schema(using))
    except Error as error:
        hint = _("Is the server of DATABASES[%r] running, and reachable from here?") % using
        return [Diagnosis(ERROR, "database", " ".join(str(error).split()), hint)]


def _other_apps(using: str) -> Iterator[Diagnosis]:
    """What other apps look at: ``ems_diagnoses`` of their AppConfig."""
    for config in apps.get_app_configs():
        if hasattr(config, "ems_diagnoses"):
            yield from config.ems_diagnoses(using)
