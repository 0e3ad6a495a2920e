"""Configures the Django app of the streams: its label, its checks, and its caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from streams.observe.work import Door


class StreamsConfig(AppConfig):
    name = "streams"
    # The host project may have an app with the label "streams", and a label can never be changed.
    label = "ems"
    verbose_name = _("Streams")
    default_auto_field = "django.db.models.BigAutoField"

    def ems_steps(self) -> dict[str, Callable[[str], object]]:
        """Return the steps that run every 5 s, as those of other apps do."""
        from streams.steps.prepared import check_prepared_if_due
        from streams.steps.redrives import step_redrives_if_due

        return {"redrives": step_redrives_if_due, "prepared": check_prepared_if_due}

    def ems_work(self) -> list[Door]:
        """Return by which door Celery's tasks come in, where EMS is its broker."""
        from streams.celery.alias import is_broker
        from streams.celery.naming import GROUP, Naming
        from streams.observe.work import Door

        return [Door("Celery", f"{Naming.prefix}.", GROUP)] if is_broker() else []

    def ready(self) -> None:
        from streams import (
            checks,  # noqa: F401 - registers the system checks
            telemetry,
            tracing,
        )
        from streams.celery.alias import add_alias
        from streams.database import emptied, remembered
        from streams.log import routes
        from streams.metrics import start_if_shared
        from streams.observe.announcement import announce_retention

        # A flush deletes the rows that were read.
        post_migrate.connect(remembered.forget, sender=self)
        # Another namespace, in a test that changes the settings.
        setting_changed.connect(remembered.forget)
        post_migrate.connect(announce_retention, sender=self)
        post_migrate.connect(routes.write_first_routes, sender=self)
        connection_created.connect(emptied.watch)
        start_if_shared()
        add_alias()
        telemetry.look_for(tracing.look)
