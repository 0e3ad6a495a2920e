"""docs/guides/spark.md knows every table and every job."""

from __future__ import annotations

import pkgutil

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.management.commands.ems_spark import Command
from monitoring.models import OpenDelivery, ReplayedMessage, StagedMessage
from sparkjobs import jobs
from tests.docs.documents import DOCS, table

SPARK = DOCS / "guides" / "spark.md"


def test_every_table_that_the_jobs_write_is_documented() -> None:
    listed = {
        model for model, page in admin.site._registry.items() if isinstance(page, RollUpAdmin)
    }
    models = listed | {OpenDelivery, ReplayedMessage, StagedMessage}
    assert table(SPARK, "The tables") == {m._meta.db_table: m.__name__ for m in models}


def test_the_command_runs_every_job() -> None:
    names = {module.name for module in pkgutil.iter_modules(jobs.__path__)}
    assert set(Command.verbs) == names | {"report"}
