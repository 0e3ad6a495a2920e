"""docs/guides/spark.md knows every table and every job."""

from __future__ import annotations

import pkgutil

from django.apps import apps

from monitoring.management.commands.ems_spark import Command
from sparkjobs import jobs
from tests.docs.documents import DOCS, table

SPARK = DOCS / "guides" / "spark.md"


def test_every_table_of_the_monitoring_is_documented() -> None:
    models = apps.get_app_config("ems_monitoring").get_models()
    assert table(SPARK, "The tables") == {m._meta.db_table: m.__name__ for m in models}


def test_the_command_runs_every_job() -> None:
    names = {module.name for module in pkgutil.iter_modules(jobs.__path__)}
    assert set(Command.verbs) == names | {"report"}
